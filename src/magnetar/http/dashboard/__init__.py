"""The page at ``/``: its files, and the events that an open page receives."""
