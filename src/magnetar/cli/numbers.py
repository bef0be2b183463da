"""Numbers of the command line, as types for argparse."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """0 and above."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def positive(text: str) -> int:
    """1 and above."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number
