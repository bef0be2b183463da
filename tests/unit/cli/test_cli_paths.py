"""What the commands of ``pulsar-admin`` ask is in the table of endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from magnetar.admin_client.http import AdminHttp
from magnetar.cli.admin.arguments import AdminCommand, Option, UsageError, commands
from magnetar.cli.admin.call import Call
from magnetar.cli.pulsar_admin import _action
from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.routing import Found, Router

ROUTER = Router(ENDPOINTS)
SAMPLES = {
    "namespace": "a/b",
    "namespaceName": "a/b",
    "datetime": "2026-01-31T12:00:00Z",
    "position": "1:1",
    "messageId": "1:1",
    "message-id": "1:1",
    "properties": ["k=v"],
    "property": ["k=v"],
    "force": True,
    "filename": "schema",
    "packageName": "function://a/b/p@1",
}


class Asked(Exception):
    """Carries the first request."""

    def __init__(self, method: str, path: str, query: Mapping[str, str]) -> None:
        super().__init__(method, path)
        self.method, self.path, self.query = method, path, query


class Recorder:
    def ask(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: str | None = None,
        *,
        content_type: str = "",
    ) -> NoReturn:
        raise Asked(method, path, query or {})

    def download(self, path: str, take: object) -> NoReturn:
        raise Asked("GET", path, {})

    def fetch(self, path: str, query: dict[str, str] | None = None) -> NoReturn:
        raise Asked("GET", path, query or {})


def _sample(option: Option) -> Any:
    if option.key in SAMPLES:
        return SAMPLES[option.key]
    kind = option.type.removesuffix(" comma")
    if kind == "flag" or kind.startswith("bool"):
        return False
    if kind.startswith(("int", "long", "double", "duration", "size")):
        return 1
    if kind.startswith("enum"):
        return kind[5:].rstrip(")").split(",")[0]
    if kind.startswith("list"):
        return ["x"]
    if kind.startswith("map"):
        return {"k": "v"}
    return "x"


def first_request(command: AdminCommand) -> Asked | None:
    """What a command asks first; None: it says that it is not there."""
    try:
        action = _action(command.name)
    except UsageError as error:
        if "not supported" not in str(error):
            raise
        return None
    values = {o.key: _sample(o) for o in command.operands}
    values |= {o.key: _sample(o) if o.required or o.key == "force" else o.initial() for o in command.options}
    while True:
        try:
            action(Call(cast(AdminHttp, Recorder()), values))
        except Asked as asked:
            return asked
        except UsageError as error:
            if "not supported" in str(error):
                return None
            if not _give_more(command, values):
                raise
        else:
            raise AssertionError(f"{command.name} asked nothing")


def _give_more(command: AdminCommand, values: dict[str, Any]) -> bool:
    """Sets one more option; False: all are."""
    for option in command.options:
        if values[option.key] in (None, False) and option.key not in _NEVER:
            values[option.key] = True if option.type == "flag" else _sample(option)
            return True
    return False


_ASKS_NOTHING = "documents generate"
_OF_PROXIES = {("GET", "/proxy-stats/connections"), ("GET", "/proxy-stats/topics")}
"""tests/integration/test_proxy.py asks for them."""
_NEVER = frozenset(("disable", "disabled", "disable-delete-while-inactive", "all", "regex", "bundle"))


@pytest.mark.parametrize(
    "command",
    [each for each in commands().values() if each.name != _ASKS_NOTHING],
    ids=lambda command: command.name,
)
def test_what_a_command_asks_is_served(
    command: AdminCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"of a package")
    (tmp_path / "schema").write_text('{"type": "STRING", "schema": "", "properties": {}}')
    monkeypatch.chdir(tmp_path)
    asked = first_request(command)
    if asked is None:
        return
    if command.name.startswith("proxy-stats "):
        assert (asked.method, asked.path) in _OF_PROXIES
        return
    found = ROUTER.find(asked.method, asked.path)
    assert isinstance(found, Found), (asked.method, asked.path)
    known = {parameter.name for parameter in found.endpoint.parameters}
    assert set(asked.query) <= known, (asked.method, asked.path)
