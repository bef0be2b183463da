"""Consumers of ``pulsar-perf`` that acknowledge in transactions."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from magnetar.cli.perf.ends import ReceiveSettings, Shared
from magnetar.cli.perf.hot_raw import Window
from magnetar.cli.perf.pacing import SharedClock
from magnetar.cli.perf.transactions import TransactionalConsumer, TransactionUse
from magnetar.client.exceptions import AlreadyClosed


class Message:
    def data(self) -> bytes:
        return b"x"

    def publish_timestamp(self) -> int:
        return 1


class End:
    """A consumer whose acknowledgements wait, and fail once it is closed."""

    def __init__(self, messages: int) -> None:
        self.messages = [Message() for _ in range(messages)]
        self.answered = asyncio.Event()
        self.closed = asyncio.Event()
        self.acknowledged = 0

    async def receive(self) -> Message:
        if self.messages:
            return self.messages.pop()
        await self.closed.wait()
        raise AlreadyClosed("closed")

    async def acknowledge(self, _message: Message, *, transaction: Begun) -> None:
        await self.answered.wait()
        if self.closed.is_set():
            raise AlreadyClosed("closed")
        assert not transaction.committed
        self.acknowledged += 1

    async def close(self) -> None:
        self.closed.set()


class Begun:
    committed = False

    async def begin(self) -> Begun:
        return self

    async def commit(self) -> None:
        self.committed = True


class Client:
    def __init__(self, end: End) -> None:
        self.end = end
        self.begun: list[Begun] = []

    async def subscribe(self, _topic: str, _subscription: str, **_options: object) -> End:
        return self.end

    def transaction(self, _seconds: float) -> Begun:
        self.begun.append(Begun())
        return self.begun[-1]


async def consumed(messages: int) -> tuple[End, Client, Shared]:
    """Closes a consumer with transactions of two messages while their acknowledgements wait."""
    end = End(messages)
    client = Client(end)
    shared = Shared(SharedClock(), Window())
    settings = ReceiveSettings("s", 1, 100, True, False, 0.0, 1, False, False, 0.0)
    use = TransactionUse(10.0, 2, aborts=False)
    consumer = TransactionalConsumer(cast(Any, client), "t", settings, shared, None, use)
    await consumer.open()
    await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0.01)
    assert not end.closed.is_set()
    end.answered.set()
    await closing
    assert end.closed.is_set()
    return end, client, shared


def test_a_transaction_that_is_being_ended_is_committed_before_the_consumer_closes() -> None:
    end, client, shared = asyncio.run(consumed(2))
    assert (end.acknowledged, [each.committed for each in client.begun]) == (2, [True])
    assert not shared.failures


def test_the_last_transaction_is_committed_though_it_is_not_full() -> None:
    end, client, shared = asyncio.run(consumed(1))
    assert (end.acknowledged, [each.committed for each in client.begun]) == (1, [True])
    assert not shared.failures
