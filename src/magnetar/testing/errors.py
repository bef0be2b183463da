"""What may go wrong with a broker for tests."""

from __future__ import annotations


class BrokerNotStarted(Exception):
    """A broker did not start; the text has what it said, and the end of its log."""


class BrokerEnded(Exception):
    """A broker's process is gone, and nobody ended it; the text has the end of its log."""


class BrokerRefused(Exception):
    """A broker cannot do what a test asked of it; the text says why."""
