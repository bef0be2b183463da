"""``maxUnackedMessagesPerBroker``: what is outstanding on all subscriptions together."""

from __future__ import annotations

import pytest
from raw_client import Client, id_of, position

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe

SHARED, KEY_SHARED = CommandSubscribe.Shared, CommandSubscribe.Key_Shared


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
def test_who_has_most_is_held_back(start_server, kind: CommandSubscribe.SubType.ValueType) -> None:  # type: ignore[no-untyped-def]
    server = start_server(
        maxUnackedMessagesPerBroker=20, maxUnackedMessagesPerSubscriptionOnBrokerBlocked=0.25
    )
    client = Client(server.port)
    greedy = client.subscribe("greedy", "s", kind, 100)
    other = client.subscribe("other", "s", kind, 100)
    first, _ = client.produce("greedy")
    second, _ = client.produce("other")
    for sequence in range(30):
        client.published(first, [b"%d" % sequence])
    found = client.messages(greedy, 20)
    # Its share is 5: with one more it is held back, too.
    for sequence in range(10):
        client.published(second, [b"%d" % sequence])
    client.messages(other, 6)
    assert not client.count_kept(BaseCommand.MESSAGE)
    path = "/admin/v2/persistent/public/default/greedy/stats"
    assert b'"blockedSubscriptionOnUnackedMsgs": true' in server.ask("GET", path)[1].replace(b":t", b": t")
    client.acknowledge(greedy, [id_of(position(message.message_id)) for message, _payload in found[:16]])
    assert not client.count_kept(BaseCommand.MESSAGE)
    rest = [id_of(position(message.message_id)) for message, _payload in found[16:]]
    client.acknowledge(greedy, rest)
    assert [payload for _m, payload in client.messages(greedy, 10)] == [b"%d" % n for n in range(20, 30)]
    client.messages(other, 4)
    client.close()
