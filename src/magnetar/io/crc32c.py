"""CRC32-C, without the other modules that the package ``crc32c`` imports.

To determine its own version, the package imports ``importlib.metadata``, which needs parsers of mail, CSV and
ZIP: 10 ms and 1 MB of every start. The extension module of the package needs none of these parsers.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

__all__ = ["crc32c"]

if TYPE_CHECKING:
    from types import ModuleType

    from crc32c import crc32c


def _extension() -> ModuleType | None:
    """Returns the package's extension module; None: not found, for example because a release renamed it."""
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    found = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:
        return None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    crc32c = getattr(_extension(), "crc32c", None)
    if crc32c is None:
        from crc32c import crc32c
