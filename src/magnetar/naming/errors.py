"""Errors of names."""

from __future__ import annotations


class InvalidName(ValueError):
    """The name of a topic, namespace or bundle breaks the rules; the text says which part and what is
    allowed."""
