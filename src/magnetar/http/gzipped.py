"""Compression parameters for HTTP."""

from __future__ import annotations

import zlib

GZIP_BITS = zlib.MAX_WBITS | 16
"""The ``wbits`` parameter of zlib for the gzip format."""
GZIP_LEVEL = 1
"""The compression level; responses are so repetitive that a higher level hardly makes them smaller."""
