"""The file of ``--cluster-config-file``: fields of a cluster, as JSON or as YAML lines ``name: value``."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path

from magnetar.cli.admin.arguments import UsageError, advice

_LINE = re.compile(r"(\w+):(?:\s+(.*))?")
_COMMENT = re.compile(r"\s+#.*$")
_TRUTHS = {"true": True, "false": False}


def read_cluster_file(file: str, known: Collection[str]) -> dict[str, object]:
    """Returns the fields of a file.

    :param known: names of known fields
    :raises UsageError: the file cannot be read, is malformed, or has an unknown field
    """
    try:
        text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    fields = _object(file, text) if text.lstrip().startswith("{") else _lines(file, text)
    for name in fields:
        if name not in known:
            raise UsageError(f"{file}: a cluster has no {name!r}{advice(name, known)}")
    return {name: value for name, value in fields.items() if value is not None}


def _object(file: str, text: str) -> dict[str, object]:
    try:
        value: dict[str, object] = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    return value


def _lines(file: str, text: str) -> dict[str, object]:
    """Parses YAML of one level; fields of a cluster are not nested."""
    found: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() == "---":
            continue
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise UsageError(f"{file}, line {number} must be 'name: value'")
        found[match[1]] = _value(match[2] or "")
    return found


def _value(text: str) -> object:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    if quoted:
        return text[1:-1]
    text = _COMMENT.sub("", f" {text}").strip()
    if text.startswith("[") and text.endswith("]"):
        return [_value(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    return _TRUTHS.get(text, text) if text not in ("", "~", "null") else None
