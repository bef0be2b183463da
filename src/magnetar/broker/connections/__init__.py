"""Connections of clients: frames in and out, and the commands."""
