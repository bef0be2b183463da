"""What keeps a topic from being exported."""

from __future__ import annotations


class NotExported(Exception):
    """It cannot be carried over; the text says what, and why."""
