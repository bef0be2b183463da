"""Entries that others wrote, as ``pulsar-admin`` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from magnetar.cli.admin.call import Call
from magnetar.cli.admin.messages import ACTIONS
from magnetar.cli.admin.rendering import Rows

VALUES = {
    "topic": "persistent://public/default/t",
    "initialPosition": "latest",
    "messagePosition": 1,
}


class Broker:
    """Answers with one entry."""

    def __init__(self, data: bytes, **headers: str) -> None:
        named = {f"x-pulsar-{name.replace('_', '-')}": value for name, value in headers.items()}
        self._answer = {"x-pulsar-message-id": "3:4", "x-pulsar-property": "{}", **named}, data

    def fetch(self, _path: str, _query: dict[str, str] | None) -> tuple[Mapping[str, str], bytes]:
        return self._answer


def examined(broker: Broker) -> Any:
    rows = ACTIONS["topics examine-messages"](Call(cast(Any, broker), dict(VALUES)))
    assert isinstance(rows, Rows)
    return rows.value


@pytest.mark.parametrize("header", ["publish_time", "event_time"])
def test_times_that_no_calendar_has_are_told_as_numbers(header: str) -> None:
    [found] = examined(Broker(b"x", **{header: "18446744073709551615"}))
    assert 18446744073709551615 in (found["publishTime"], found["eventTime"])


def test_an_encrypted_batch_is_shown_as_it_is() -> None:
    [found] = examined(Broker(b"\xff" * 40, num_batch_message="3", is_encrypted="true"))
    assert (found["messageId"], found["content"]) == ("3:4", None)
