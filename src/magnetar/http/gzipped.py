"""Parameters of compression for HTTP."""

from __future__ import annotations

import zlib

GZIP_BITS = zlib.MAX_WBITS | 16
"""The ``wbits`` of zlib for the format gzip."""
GZIP_LEVEL = 1
"""Answers are so repetitive that a higher level hardly makes them smaller."""
