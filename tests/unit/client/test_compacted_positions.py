"""Whether a reader of a compacted topic has messages left."""

from __future__ import annotations

from typing import Any

import pytest
from client_world import World, arrives

from magnetar.client.message_id import MessageId
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


@pytest.mark.parametrize(("compacted", "available"), [(True, True), (False, False)])
def test_a_mark_behind_the_last_message_does_not_hide_compacted_messages(
    compacted: bool, available: bool
) -> None:
    world = World()
    consumer = world.consumer(durable=False, start_message_id=MessageId.earliest, is_read_compacted=compacted)
    ask = world.broker.ask

    def answered(request_id: int, command: BaseCommand, seconds: float, **options: bool) -> Any:
        future = ask(request_id, command, seconds, **options)
        if command.type == BaseCommand.GET_LAST_MESSAGE_ID:
            told = future.result().getLastMessageIdResponse
            told.last_message_id.ledgerId, told.last_message_id.entryId = 1, 5
            told.consumer_mark_delete_position.ledgerId = 1
            told.consumer_mark_delete_position.entryId = 5
        return future

    world.broker.ask = answered  # type: ignore[method-assign]
    assert world.loop.run_until(consumer.has_message_available()) is available
    arrives(consumer, 5, 0)
    assert world.loop.run_until(consumer.has_message_available()) is True
    assert consumer.take() is not None
    assert world.loop.run_until(consumer.has_message_available()) is False
