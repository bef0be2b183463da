"""Reads topics as rows."""
