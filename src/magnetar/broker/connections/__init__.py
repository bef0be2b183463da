"""Connections of clients: frames in and out, and the handling of commands."""
