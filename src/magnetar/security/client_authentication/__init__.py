"""Credentials of clients, for the binary protocol and HTTP, with the class names of the official Python
client."""
