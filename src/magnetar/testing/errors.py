"""Errors of test brokers."""

from __future__ import annotations


class BrokerNotStarted(Exception):
    """A broker did not start; the text has its output, and the end of its log."""


class BrokerEnded(Exception):
    """A broker's process has ended by itself; the text has the end of its log."""


class BrokerRefused(Exception):
    """A broker cannot carry out a request of a test; the text says why."""
