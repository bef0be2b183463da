"""Credentials of clients, for both listeners. Names are the official Python client's."""
