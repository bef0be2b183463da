"""Errors of exports."""

from __future__ import annotations


class NotExported(Exception):
    """Something cannot be exported; the text says what, and why."""
