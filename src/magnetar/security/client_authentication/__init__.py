"""Credentials of clients, for the binary protocol and HTTP. Names are those of the official Python client."""
