"""The whole broker, its clients and everything that can go wrong, in one process and in virtual time."""
