"""Nothing can be asked for that has no rule, and no row in the matrix of who may do what."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.broker.connections import permissions
from magnetar.broker.connections.handlers import TABLE
from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.routing import Endpoint
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security import authorization
from magnetar.security.rules import ANYBODY, BY_PERMISSION

_TESTS = Path(__file__).parents[2]
_MATRIX = _TESTS / "integration" / "access_matrix" / "apache.tsv"

WITHOUT_A_RULE = {
    "ACK": permissions.HELD,
    "ADD_PARTITION_TO_TXN": permissions.TRANSACTION,
    "ADD_SUBSCRIPTION_TO_TXN": permissions.TRANSACTION,
    "AUTH_RESPONSE": permissions.SESSION,
    "CLOSE_CONSUMER": permissions.HELD,
    "CLOSE_PRODUCER": permissions.HELD,
    "CONNECT": permissions.SESSION,
    "CONSUMER_STATS": permissions.HELD,
    "END_TXN": permissions.TRANSACTION,
    "FLOW": permissions.HELD,
    "NEW_TXN": permissions.TRANSACTIONS,
    "PING": permissions.SESSION,
    "PONG": permissions.SESSION,
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": permissions.HELD,
    "SEND": permissions.HELD,
    "TC_CLIENT_CONNECT_REQUEST": permissions.TRANSACTIONS,
    "WATCH_TOPIC_LIST_CLOSE": permissions.HELD,
}
"""What needs no permission of its own, and why."""


@pytest.fixture(scope="module")
def asked() -> set[str]:
    """The keys of all rows."""
    return {line.partition("\t")[0] for line in _MATRIX.read_text().splitlines()[1:]}


ENDS_THE_BROKER = "POST /admin/v2/brokers/shutdown"


@pytest.mark.parametrize("row", ENDPOINTS, ids=lambda row: f"{row.method} {row.path}")
def test_every_endpoint_is_asked(asked: set[str], row: Endpoint) -> None:
    key = f"{row.method} {row.path}"
    # They have tests of their own: a handshake is more than a request, and an upload more than JSON.
    beside = row.upgrades or "/proxy-stats/" in row.path or "/packages/" in row.path
    assert (key in asked) != (key == ENDS_THE_BROKER or beside)


def test_only_superusers_end_the_broker() -> None:
    [row] = [row for row in ENDPOINTS if f"{row.method} {row.path}" == ENDS_THE_BROKER]
    assert row.operation not in ANYBODY
    assert row.operation not in BY_PERMISSION


def test_every_command_has_a_rule_or_a_reason_and_those_with_a_rule_are_asked(asked: set[str]) -> None:
    commands = {key.partition(" ")[0] for key in asked if "/" not in key.partition(" ")[2][:1]}
    without = {}
    for kind, command in TABLE.items():
        name = BaseCommand.Type.Name(kind)  # type: ignore[arg-type]
        if command.rule.asks is None:
            without[name] = command.rule
        else:
            assert name in commands, name
    assert without == WITHOUT_A_RULE
    assert "CONNECT" in commands


def test_what_permissions_allow_is_asked_of_something_that_has_permissions() -> None:
    for operation in BY_PERMISSION:
        assert isinstance(operation, (authorization.NamespaceOperation, authorization.TopicOperation))
    assert not ANYBODY & BY_PERMISSION.keys()
