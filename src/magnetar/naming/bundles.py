"""Bundles: the ranges of hashes into which a namespace is divided, each owned by one broker."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from magnetar.naming.hashes import bundle_hash
from magnetar.naming.name_rules import InvalidName

FULL_LOWER = 0x00000000
FULL_UPPER = 0xFFFFFFFF
MAX_BUNDLES = 1 << 16

_RANGE = re.compile(r"0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})")
_BOUNDARY = re.compile(r"0x[0-9a-fA-F]{1,8}")


@dataclass(frozen=True, slots=True, order=True)
class BundleRange:
    """The hashes from ``lower`` up to ``upper``, which is excluded except in the last range of a
    namespace."""

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not FULL_LOWER <= self.lower < self.upper <= FULL_UPPER:
            raise InvalidName(f"invalid bundle {self}: the bounds must ascend within 0x00000000 … 0xffffffff")

    @classmethod
    def parse(cls, text: str) -> BundleRange:
        """Parses ``0xSTART_0xEND``.

        :raises InvalidName: the string has another form, or the bounds do not ascend
        """
        match = _RANGE.fullmatch(text)
        if match is None:
            raise InvalidName(f"invalid bundle {text!r}: it must be 0xSSSSSSSS_0xEEEEEEEE")
        return cls(int(match[1], 16), int(match[2], 16))

    def __contains__(self, value: int) -> bool:
        return self.lower <= value < self.upper or value == self.upper == FULL_UPPER

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"


class Bundles:
    """The bundles of one namespace; n bundles have n + 1 ascending boundaries, from 0x00000000 to
    0xffffffff."""

    __slots__ = ("boundaries",)

    def __init__(self, boundaries: Sequence[int]) -> None:
        """:raises InvalidName: the boundaries do not ascend, or do not cover all hashes"""
        ascending = all(a < b for a, b in pairwise(boundaries))
        if (
            len(boundaries) < 2
            or boundaries[0] != FULL_LOWER
            or boundaries[-1] != FULL_UPPER
            or not ascending
        ):
            raise InvalidName("invalid bundle boundaries: they must ascend from 0x00000000 to 0xffffffff")
        self.boundaries = tuple(boundaries)

    @classmethod
    def even(cls, count: int) -> Bundles:
        """Returns ``count`` ranges of equal size, the last of which also has the remainder of the hashes.

        :param count: the number of ranges, 1 … 65536
        :raises InvalidName: ``count`` is out of range
        """
        if not 1 <= count <= MAX_BUNDLES:
            raise InvalidName(f"invalid number of bundles {count}: it must be from 1 to {MAX_BUNDLES}")
        size = (1 << 32) // count
        return cls([*(size * index for index in range(count)), FULL_UPPER])

    @classmethod
    def parse(cls, boundaries: Sequence[str]) -> Bundles:
        """Parses boundaries in the form of policies: ``0x00000000`` and so on.

        :raises InvalidName: a boundary is not a number, or the boundaries do not ascend from 0x00000000 to
            0xffffffff
        """
        for boundary in boundaries:
            if not _BOUNDARY.fullmatch(boundary):
                raise InvalidName(f"invalid bundle boundary {boundary!r}: it must be 0xHHHHHHHH")
        return cls([int(boundary, 16) for boundary in boundaries])

    def find(self, value: int) -> BundleRange:
        """Returns the range that contains a hash (0 … 0xffffffff)."""
        index = min(bisect_right(self.boundaries, value), len(self.boundaries) - 1)
        return BundleRange(self.boundaries[index - 1], self.boundaries[index])

    def of_topic(self, full_name: str) -> BundleRange:
        """Returns the range that contains the hash of a topic's full name."""
        return self.find(bundle_hash(full_name))

    def texts(self) -> list[str]:
        """Returns the boundaries in the form of policies."""
        return [f"0x{boundary:08x}" for boundary in self.boundaries]

    def __iter__(self) -> Iterator[BundleRange]:
        for lower, upper in pairwise(self.boundaries):
            yield BundleRange(lower, upper)

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bundles) and self.boundaries == other.boundaries

    def __hash__(self) -> int:
        return hash(self.boundaries)
