"""Names that are not names."""

from __future__ import annotations


class InvalidName(ValueError):
    """A topic, namespace or bundle name breaks the rules; says which part and what is allowed."""
