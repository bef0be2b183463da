"""Credentials of clients, for the binary protocol and HTTP, with the names of the official Python client."""
