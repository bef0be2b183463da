"""Hot modules: plain Python that also runs compiled, if the compiled form was made from the same source.

``python -m magnetar.hot build`` compiles them into ``magnetar/_compiled``, each with the hash of its source.
The finder installed here loads a compiled form only if that hash matches and ``MAGNETAR_PURE`` is not 1;
otherwise the source runs interpreted, with one warning if a compiled form exists but is stale.

Everything imports this module, so it imports nothing itself before a hot module is imported.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from magnetar.hot.forms import HotStatus

SERVING = (
    "magnetar.client.hot_messages",
    "magnetar.ledger.bookkeeper.hot_adds",
    "magnetar.ledger.embedded.group",
    "magnetar.managed_ledger.hot_ranges",
    "magnetar.protocol.hot_client_decode",
    "magnetar.protocol.hot_client_encode",
    "magnetar.protocol.hot_compaction",
    "magnetar.protocol.hot_decode",
    "magnetar.protocol.hot_encode",
    "magnetar.protocol.hot_keys",
    "magnetar.protocol.hot_origin",
    "magnetar.protocol.hot_replication",
)
"""The modules of a broker, including replicators: the first start compiles only these."""

MODULES = (
    *SERVING,
    "magnetar.cli.perf.hot_raw",
    "magnetar.http.engine.hot_frames",
    "magnetar.spark.codec.hot_avro",
    "magnetar.spark.codec.hot_batches",
    "magnetar.spark.codec.hot_ids",
    "magnetar.spark.codec.hot_rows",
)
"""All hot modules; the only list of them."""


def status(modules: Sequence[str] = MODULES) -> HotStatus:
    """Returns how the hot modules run in this process, compiled or interpreted."""
    from magnetar.hot import forms

    told = any(isinstance(each, _Finder) and each.warned for each in sys.meta_path)
    return forms.status(modules, told)


class _Finder:
    """Finds the compiled forms, and leaves everything else to the next finders."""

    def __init__(self) -> None:
        self.warned = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in MODULES:
            return None
        from importlib.machinery import ExtensionFileLoader
        from importlib.util import spec_from_file_location

        from magnetar.hot.forms import Form, compiled_path, form, source_path

        found = form(name) if source_path(name).exists() else Form.ABSENT
        if found is Form.STALE and not self.warned:
            self.warned = True
            _warn(name)
        if found is not Form.COMPILED:
            return None
        file = str(compiled_path(name))
        return spec_from_file_location(name, file, loader=ExtensionFileLoader(name, file))


def _warn(name: str) -> None:
    from logging import getLogger

    getLogger(__name__).warning(
        "%s was compiled from a different source and runs interpreted; run python -m magnetar.hot build", name
    )


def install() -> None:
    """Installs the finder before all others, once per process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
