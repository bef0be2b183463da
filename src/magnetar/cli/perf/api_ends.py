"""Senders and receivers that use the client's producers, consumers and readers, so that the measured CPU time
includes what these classes need in a user's program.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from magnetar.cli.perf.ends import ReceiveSettings, SendSettings, Shared
from magnetar.cli.perf.hot_raw import HEADER_SIZE, Histogram, OrderCheck, RawReceiver
from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.enums import CompressionType, ConsumerType, InitialPosition, ProducerAccessMode
from magnetar.client.exceptions import AlreadyClosed, PulsarException
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.outgoing_message import MessageOptions
from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer
from magnetar.client.producer import Producer
from magnetar.client.reader import Reader

_MAGIC = b"MgPf"


class ApiProducer:
    def __init__(
        self,
        client: Client,
        topic: str,
        number: int,
        settings: SendSettings,
        shared: Shared,
        extras: Mapping[str, Any],
    ) -> None:
        """:param extras: further options of the load: ``delay`` (in seconds), ``event_time`` and ``keys``"""
        self._client = client
        self._topic = topic
        self._number = number
        self._settings = settings
        self._shared = shared
        self._extras = extras
        self._plain = not any(extras.values())
        self._on_room: Callable[[], object] = lambda: None
        self._producer: Producer | PartitionedProducer | None = None
        self.sent = 0
        self.confirmed = 0
        self.latencies = Histogram()

    async def open(self, on_room: Callable[[], object]) -> None:
        """Opens the producer.

        :param on_room: called when receipts permit sending further messages
        :raises PulsarException: opening failed
        """
        self._on_room = on_room
        settings = self._settings
        name = f"{settings.producer_name}-{self._number}" if settings.producer_name else None
        self._producer = await self._client.create_producer(
            self._topic,
            producer_name=name,
            max_pending_messages=settings.max_outstanding,
            batching_enabled=settings.batch > 1,
            batching_max_messages=settings.batch,
            batching_max_allowed_size_in_bytes=settings.batch_bytes,
            batching_max_publish_delay_ms=settings.batch_delay_ms,
            compression_type=CompressionType(settings.compression),
            access_mode=ProducerAccessMode(settings.access_mode),
            send_timeout_millis=settings.send_timeout_millis,
            chunking_enabled=settings.chunking,
        )

    def room(self) -> int:
        return self._settings.max_outstanding - self.sent + self.confirmed

    def send(self, count: int, due: int, interval: int) -> None:
        assert self._producer is not None
        contents = self._settings.contents
        for _ in range(count):
            content = contents[self.sent % len(contents)]
            if len(content) >= HEADER_SIZE:
                head = _MAGIC + self._number.to_bytes(4, "big") + self.sent.to_bytes(8, "big")
                content = head + due.to_bytes(8, "big") + content[HEADER_SIZE:]
            self.sent += 1
            options = None if self._plain else self._options()
            self._producer.enqueue(content, self._confirmer(due), None, options)
            due += interval

    def _options(self) -> MessageOptions:
        extras = self._extras
        now_ms = self._shared.clock.now() // 1_000_000
        keys = extras["keys"]
        key = None
        if keys:
            key = str(self.sent if keys == "autoIncrement" else random.randrange(1 << 31))
        return MessageOptions(
            partition_key=key,
            event_timestamp=now_ms if extras["event_time"] else None,
            deliver_after=timedelta(seconds=extras["delay"]) if extras["delay"] else None,
            now_ms=now_ms,
        )

    def _confirmer(self, due: int) -> Callable[[MessageId | None, PulsarException | None], None]:
        def done(message_id: MessageId | None, error: PulsarException | None) -> None:
            if error is not None:
                self._shared.failed(f"{self._topic}: {error!r}")
                return
            self.confirmed += 1
            if self._shared.window.first <= due < self._shared.window.last:
                self.latencies.record(self._shared.clock.now() - due)
            if self.sent - self.confirmed <= self._settings.max_outstanding // 2:
                self._on_room()

        return done

    def flush(self) -> None:
        """Does nothing, because the client's producer sends its batches itself, by a timer."""

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()


class ApiConsumer:
    """A receiver that uses the client's consumer or, if a start position is given, the client's reader."""

    def __init__(
        self,
        client: Client,
        topic: str,
        settings: ReceiveSettings,
        shared: Shared,
        order: OrderCheck | None,
        start: MessageId | None = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._settings = settings
        self._shared = shared
        self._start = start
        self.order = order
        self._receiver = RawReceiver(order, shared.window)
        self._end: Consumer | PartitionedConsumer | TopicsConsumer | Reader | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def received(self) -> int:
        return self._receiver.messages

    @property
    def size(self) -> int:
        return self._receiver.size

    @property
    def foreign(self) -> int:
        return self._receiver.foreign

    @property
    def latencies(self) -> Histogram:
        return self._receiver.latencies

    async def open(self) -> None:
        """Opens the consumer or reader.

        :raises PulsarException: opening failed
        """
        settings = self._settings
        if self._start is not None:
            self._end = await self._client.create_reader(
                self._topic, self._start, receiver_queue_size=settings.queue
            )
        else:
            self._end = await self._client.subscribe(
                self._topic,
                settings.subscription,
                consumer_type=ConsumerType(settings.consumer_type),
                receiver_queue_size=settings.queue,
                initial_position=InitialPosition.Earliest if settings.earliest else InitialPosition.Latest,
                ack_group_time_ms=settings.ack_delay_millis,
                ack_group_size=settings.ack_group,
                batch_index_ack_enabled=settings.batch_index_ack,
                replicate_subscription_state_enabled=settings.replicated,
                **settings.chunks,
            )
        self._task = asyncio.ensure_future(self._receive(self._end))

    async def _receive(self, end: Consumer | PartitionedConsumer | TopicsConsumer | Reader) -> None:
        receive = end.read_next if isinstance(end, Reader) else end.receive
        receiver, clock = self._receiver, self._shared.clock
        interval = round(1e9 / self._settings.rate) if self._settings.rate > 0 else 0
        turn = clock.now()
        try:
            while True:
                if interval:
                    turn = max(turn + interval, clock.now() - interval)
                    await asyncio.sleep(max(0, turn - clock.now()) / 1e9)
                message = await receive()
                receiver.take_content(message.data(), message.publish_timestamp(), clock.now())
                self._shared.received += 1
                if not isinstance(end, Reader):
                    await self._acknowledge(end, message)
                self._shared.on_received()
        except AlreadyClosed:
            return
        except PulsarException as error:
            self._shared.failed(f"{self._topic}: {error!r}")

    async def _acknowledge(
        self, end: Consumer | PartitionedConsumer | TopicsConsumer, message: Message
    ) -> None:
        await (end.acknowledge_cumulative if self._settings.cumulative else end.acknowledge)(message)

    def flush(self) -> None:
        if self._end is not None and not isinstance(self._end, Reader):
            self._end.flush_acknowledgements()

    async def close(self) -> None:
        if self._end is not None:
            await self._end.close()
        if self._task is not None:
            await self._task
