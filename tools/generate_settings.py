"""Writes the typed attributes of settings from the tables that declare them.

    python tools/generate_settings.py [--check]

A setting is declared in one row of a table in ``src/magnetar/config``. This command writes the attribute of
each honoured one into the class of its process, between two marks. With ``--check`` it writes nothing, and
fails if an attribute is not what the table declares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from magnetar.config.reading import attribute_name
from magnetar.config.table import (
    Setting,
    SettingClass,
    cluster_settings_table,
    proxy_settings_table,
    settings_table,
    websocket_settings_table,
)

FOLDER = Path(__file__).parents[1] / "src" / "magnetar" / "config"
FIRST = "    # Written by tools/generate_settings.py.\n"
LAST = "    # End of what it writes.\n"
_TYPES = {"bool": "bool", "double": "float", "int": "int", "long": "int", "string": "str"}


def attributes() -> dict[str, str]:
    """Returns the attributes of each module that has some."""
    standalone = settings_table()
    additional = [
        setting
        for name, setting in cluster_settings_table().items()
        if standalone[name].kind is not SettingClass.HONOURED
    ]
    return {
        "settings.py": "".join(_lines(standalone.values())),
        "cluster.py": "".join(_lines(additional)),
        "proxy.py": "".join(_lines(proxy_settings_table().values())),
        "websocket.py": "".join(_lines(websocket_settings_table().values())),
    }


def _lines(settings: Iterable[Setting]) -> Iterator[str]:
    for setting in settings:
        if setting.kind is SettingClass.HONOURED:
            hidden = " = field(repr=False)" if setting.secret else ""
            yield f"    {attribute_name(setting.name)}: {_annotation(setting.type)}{hidden}\n"


def _annotation(kind: str) -> str:
    plain = kind.removesuffix("?")
    if plain.startswith("list"):
        return "tuple[str, ...]"
    annotation = "str" if plain.startswith("enum") else _TYPES[plain]
    return f"{annotation} | None" if kind.endswith("?") else annotation


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the attributes of settings from their tables.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    check = parser.parse_args().check
    changed = []
    for name, written in attributes().items():
        text = (FOLDER / name).read_text()
        before, first, rest = text.partition(FIRST)
        _old, last, after = rest.partition(LAST)
        if not (first and last):
            print(f"{name} lacks the marks {FIRST.strip()!r} and {LAST.strip()!r}")
            return 1
        new = f"{before}{first}{written}{last}{after}"
        if new != text:
            changed.append(name)
            if not check:
                (FOLDER / name).write_text(new)
    if changed and check:
        print(f"{', '.join(changed)} differ from the tables of settings; run tools/generate_settings.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
