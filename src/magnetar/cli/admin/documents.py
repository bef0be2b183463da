"""The command that writes a page with the documentation of commands."""

from __future__ import annotations

from typing import Any

from magnetar.cli.admin.arguments import UsageError, commands
from magnetar.cli.admin.call import Action, Call
from magnetar.cli.admin.help import markdown
from magnetar.cli.admin.rendering import Rows


def _generate(call: Call) -> Any:
    known = list(dict.fromkeys(name.partition(" ")[0] for name in commands()))
    wanted = call["modules"] or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"unknown group {unknown[0]!r}")
    lines = list(markdown(wanted))
    return Rows(lines, "".join(lines))


ACTIONS: dict[str, Action] = {"documents generate": _generate}
