"""Copies the functions that several hot modules have in common from the module that declares them.

    python tools/copy_hot_functions.py [--check]

Cython inlines a function only within its own module, and a call into another one would be added for each
number that is read. So each hot module has its own copy. This command writes the copies; with ``--check`` it
writes nothing, and fails if a copy differs. The declarations in ``.pxd`` files differ in types and are not
copied.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "magnetar"
READERS = ("_size_at", "_varint_end", "_varint")
COPIES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "protocol/hot_decode.py": {
        "protocol/hot_client_decode.py": (*READERS, "_skip"),
        "protocol/hot_compaction.py": (*READERS, "_metadata_at"),
        "protocol/hot_keys.py": (*READERS, "_metadata_at"),
        # Its _varint refuses the 64th bit.
        "protocol/hot_origin.py": ("_size_at", "_varint_end", "_skip", "_metadata_at"),
        "protocol/hot_replication.py": (*READERS, "_metadata_at"),
        "spark/codec/hot_rows.py": (*READERS, "_skip"),
    },
    "protocol/hot_encode.py": {
        "protocol/hot_client_encode.py": ("_varint_size", "_put_varint", "_put_size"),
        "protocol/hot_replication.py": ("_put_varint", "_put_size"),
    },
    # Of numbers that are never negative.
    "spark/codec/hot_batches.py": {"cli/perf/hot_raw.py": ("_varint_size", "_put_varint")},
}
"""The functions that a module declares, by the module that has copies of them."""
TYPES: Mapping[str, tuple[str, str]] = {"spark/codec/hot_rows.py": ("buffer: bytes", "buffer: memoryview")}
"""What a module has instead of a type."""


def copied(target: str, text: str, texts: Mapping[str, str]) -> str:
    """Returns the text of a module with present copies.

    :param texts: the modules that declare functions
    """
    old, new = TYPES.get(target, ("", ""))
    for source, copies in COPIES.items():
        declared = _functions(texts[source])
        for name in copies.get(target, ()):
            wanted = declared[name].replace(old, new) if old else declared[name]
            text = text.replace(_functions(text)[name], wanted)
    return text


def _functions(text: str) -> dict[str, str]:
    lines = text.splitlines(keepends=True)
    return {
        node.name: "".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Copies functions that several hot modules have in common.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a copy differs")
    check = parser.parse_args().check
    texts = {source: (SOURCE / source).read_text() for source in COPIES}
    differing = []
    for target in sorted({target for copies in COPIES.values() for target in copies}):
        before = (SOURCE / target).read_text()
        after = copied(target, before, texts)
        if after != before:
            differing.append(target)
            if not check:
                (SOURCE / target).write_text(after)
    if differing and check:
        print(f"copies differ in {', '.join(differing)}; run tools/copy_hot_functions.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
