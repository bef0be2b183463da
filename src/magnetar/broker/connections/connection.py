"""One client connection: frames in, frames out, and what belongs to it.

Reading stops, and nothing else, when the client has too many publishes in flight, when all clients together
have, or when the broker holds too many partial frames. Frames going out are gathered over one turn of the
loop.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from typing import Any

from magnetar.broker.connections.requests import Requests
from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.consumers.non_persistent_run import DROPPED_ID, PASSING_ID
from magnetar.broker.flow.keep_alive import KeepAlive
from magnetar.broker.flow.loop_turn import FRAMES_PRICE, REQUEST_PRICE
from magnetar.broker.flow.outgoing import Outgoing
from magnetar.broker.flow.publish_rates import PublishLimiter
from magnetar.broker.namespaces.lists import TopicList
from magnetar.broker.publishing.admission import Part, Verdict
from magnetar.broker.publishing.producer import Opening, Producer, Publish
from magnetar.broker.service import BrokerService
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.errors import BrokerError, ServerErrorCode, ServiceNotReady, TopicTerminated
from magnetar.protocol.errors import FrameError
from magnetar.protocol.frames import decode_command, encode_command
from magnetar.protocol.hot_codec import (
    AckRun,
    SendRun,
    encode_receipts,
    frame_end,
    next_frame,
    read_acks,
    read_flow,
    read_sends,
)
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.protocol.wire_ids import unsigned

log = logging.getLogger(__name__)

SERVER_REQUEST_ID = 2**64 - 1
"""Request id of what the broker itself asks (CLOSE_PRODUCER, CLOSE_CONSUMER)."""

_SEND = BaseCommand.SEND
_ACK = BaseCommand.ACK
_FLOW = BaseCommand.FLOW
_CHECKSUM_MISMATCH = 1
_NOT_PLAIN = 2
_CLOSED_IDS_KEPT = 1000
_ACTIVE_CONSUMER_VERSION = 12
_FRAMES_UNASKED = 32
"""Runs of frames that are handled before it is asked whether the turn has time for more."""


class Connection:
    """A protocol for :class:`magnetar.io.interfaces.Network`."""

    def __init__(self, broker: BrokerService, handle: Callable[[Connection, BaseCommand], None]) -> None:
        """:param handle: does what a command says that is not per message"""
        self.broker = broker
        self._handle = handle
        self.transport: Any = None
        self.address = ""
        self.host = ""
        self.client_version = ""
        self.protocol_version = 0
        self.connected = False
        self.closed = False
        self.supports_partial_producer = False
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer[BaseSubscription]] = {}
        self.opening_producers: dict[int, Opening] = {}
        self.opening_consumers: dict[int, object] = {}
        self.topic_watchers: dict[int, TopicList] = {}
        self._closed_producers: dict[int, None] = {}
        self.pending_publishes = 0
        self.passing = 0
        """Of these, what was sent on by non-persistent topics."""
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._partial_needed = 0
        self._held: tuple[bytes, int] | None = None
        self._pauses = 0
        self._halted = False
        """Whether nothing is taken apart: from the first pause until it is read on."""
        self._paused_by_own = False
        self.outgoing = Outgoing(broker.io.loop, self._read_more, self._overfull, broker.unsent)
        self.requests = Requests(self, broker.io.loop)
        self.keep_alive = KeepAlive(self, broker.io.loop, broker.wheel, broker.keep_alive)

    # The transport's side

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.outgoing.use(transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.host = str(peer[0])
            self.address = f"{peer[0]}:{peer[1]}"
        refusal = self.broker.connections.opened(self)
        if refusal is not None:
            self.send_error(SERVER_REQUEST_ID, refusal)
            self.close()
            return
        self.keep_alive.start()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed and self.transport is None:
            return
        self.closed = True
        self.transport = None
        self.outgoing.use(None)
        self._held = None
        self.keep_alive.stop()
        self._release()
        self.broker.connections.closed(self)

    def _release(self) -> None:
        """Its producers and consumers are gone, whether or not the client has read that it is closed."""
        self._drop_partial()
        opening = [o.producer for o in self.opening_producers.values() if o.producer is not None]
        for producer in [*self.producers.values(), *opening]:
            producer.topic.remove_producer(producer)
        self.producers.clear()
        for consumer in list(self.consumers.values()):
            consumer.subscription.remove(consumer)
        self.consumers.clear()
        self.broker.topic_lists.close_all(self)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.outgoing.pause()

    def resume_writing(self) -> None:
        self.outgoing.resume()

    def _read_more(self) -> None:
        for consumer in list(self.consumers.values()):
            consumer.subscription.read_more()

    def _overfull(self, stop: bool) -> None:
        if stop:
            self.pause_reading()
        else:
            self.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        self.keep_alive.heard()
        if self._held is not None:
            buffer, position = self._held
            self._held = (buffer[position:] + data, 0)
            return
        if self._partial:
            self._partial.append(data)
            self._partial_size += len(data)
            self.broker.partial_frames.grew(self, len(data))
            if self._partial_size < self._partial_needed:
                return
            data = b"".join(self._partial)
            self._drop_partial()
        self._parse(data, 0)

    # Reading

    def _parse(self, buffer: bytes, position: int) -> None:
        limit = len(buffer)
        max_frame = self.broker.max_frame
        unasked = _FRAMES_UNASKED
        try:
            while position < limit and not self.closed:
                if self._halted:
                    self._held = (buffer, position)
                    return
                kind = next_frame(buffer, position, limit, max_frame)
                if kind == 0:
                    self._keep_partial(buffer, position)
                    return
                position = self._take(kind, buffer, position, limit, max_frame)
                unasked -= 1
                if not unasked:
                    unasked = _FRAMES_UNASKED
                    self.broker.turn.spend(FRAMES_PRICE)
                    if position < limit and not self._halted:
                        self._wait_for_turn()
        except FrameError as error:
            log.warning(
                "closing a connection that breaks the protocol",
                extra={"peer": self.address, "reason": str(error)},
            )
            self.close()
        except Exception:
            log.exception("closing a connection after an internal error", extra={"peer": self.address})
            self.close()

    def _wait_for_turn(self) -> bool:
        """Whether the rest of what was read waits for another turn of the loop."""
        if self.broker.turn.admits(self):
            return False
        self.pause_reading()
        return True

    def go_on(self) -> None:
        """Another turn has come: what is done now counts as its share of it."""
        self._pauses -= 1
        self.read_on()

    def _take(self, kind: int, buffer: bytes, position: int, limit: int, max_frame: int) -> int:
        """Handles what begins at ``position``; returns where it ends, ``position`` when it has to wait."""
        if not self.connected and kind != BaseCommand.CONNECT:
            raise FrameError(f"the first command is {kind}, not CONNECT")
        if kind == _SEND:
            sends = self.broker.send_run
            room = self.broker.max_pending_publishes - self.pending_publishes
            after = read_sends(buffer, position, limit, max_frame, sends, True, max(1, room))
            if sends.count:
                self._publish(buffer, sends)
                return after
            if sends.error != _NOT_PLAIN:
                self._refuse_send(sends)
                return after
        elif kind == _ACK:
            acks = self.broker.ack_run
            after = read_acks(buffer, position, limit, max_frame, acks)
            if acks.count:
                self._acknowledge(acks)
                return after
        elif kind == _FLOW:
            flow = read_flow(buffer, position)
            if flow is not None:
                consumer = self.consumers.get(flow[0])
                if consumer is not None:
                    consumer.subscription.flow(consumer, flow[1])
                return frame_end(buffer, position)
        if self._wait_for_turn():
            return position
        self.broker.turn.spend(REQUEST_PRICE)
        end = frame_end(buffer, position)
        command = decode_command(buffer, position)
        if not self.connected and command.type != BaseCommand.CONNECT:
            # Of two types in a command the last one counts.
            raise FrameError(f"the first command is {command.type}, not CONNECT")
        self._handle(self, command)
        return end

    def _keep_partial(self, buffer: bytes, position: int) -> None:
        rest = buffer[position:] if position else buffer
        if len(rest) >= 4:
            self._partial_needed = 4 + int.from_bytes(rest[:4], "big")
        else:
            self._partial_needed = 4
        self._partial = [rest]
        self._partial_size = len(rest)
        self.broker.partial_frames.grew(self, len(rest))

    def _drop_partial(self) -> None:
        if self._partial:
            self.broker.partial_frames.gone(self)
            self._partial = []
            self._partial_size = 0

    def pause_reading(self) -> None:
        """Stops reading until :meth:`resume_reading` was called as often."""
        self._pauses += 1
        self._halted = True
        if self._pauses == 1 and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Takes one pause back; after the last one it is read on in the next turn, never within this call."""
        self._pauses -= 1
        if not self._pauses and not self.closed:
            self.broker.readable.add(self)

    def read_on(self) -> None:
        """Takes apart what is held, then what comes."""
        if self._pauses or self.closed or self.transport is None:
            return
        self._halted = False
        held, self._held = self._held, None
        if held is not None:
            self._parse(*held)
        if not self._halted and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def held_back(self) -> bool:
        """Whether it is not read for a reason that is not its client's: what it sent is still being done."""
        if self._paused_by_own or self.broker.publish_buffer.holds(self):
            return True
        return self.requests.paused and not self.outgoing.paused

    # Publishing

    def _publish(self, buffer: bytes, sends: SendRun) -> None:
        count = sends.count
        producer = self.producers.get(sends.producer_id)
        if producer is None or producer.closed:
            self.unknown_producer(sends.producer_id, producer)
            return
        ids, highest = sends.sequence_ids[:count], sends.highest_sequence_ids[:count]
        starts, ends = sends.starts[:count], sends.ends[:count]
        producer.chunks.messages += sends.chunks
        now = self.broker.io.clock.monotonic()
        checks = producer.topic.admission
        if checks is not None:
            chunked = sends.chunks > 0
            parts = checks.judge(producer.name, ids, highest, buffer, starts, ends, chunked=chunked)
            if parts is not None:
                self._publish_parts(producer, parts, buffer, sends, now)
                return
        publish = Publish(producer, ids, highest, sum(sends.num_messages[:count]), now)
        self._submit(producer, publish, buffer, starts, ends)

    def _publish_parts(
        self, producer: Producer, parts: list[Part], buffer: bytes, sends: SendRun, now: float
    ) -> None:
        """Goes by the verdicts of the topic, in the order of the entries: that of their receipts."""
        for part in parts:
            some = slice(part.first, part.end)
            ids, highest = sends.sequence_ids[some], sends.highest_sequence_ids[some]
            if isinstance(part.verdict, BrokerError):
                for sequence_id in ids:
                    self.send_send_error(producer.producer_id, sequence_id, part.verdict)
            elif part.verdict is Verdict.DUPLICATE:
                for sequence_id, high in zip(ids, highest, strict=True):
                    self._send_duplicate_receipt(producer, sequence_id, high)
            else:
                publish = Publish(producer, ids, highest, sum(sends.num_messages[some]), now)
                publish.completes = part.verdict is Verdict.STORE
                self._submit(producer, publish, buffer, sends.starts[some], sends.ends[some])

    def _submit(
        self, producer: Producer, publish: Publish, buffer: bytes, starts: array[int], ends: array[int]
    ) -> None:
        """Hands entries to the topic; what it refuses is told to the client."""
        count = len(starts)
        size = sum(ends) - sum(starts)
        try:
            producer.topic.publish(publish, buffer, starts, ends, size)
        except ServiceNotReady:
            # The topic is moving: its producers are being closed and their clients send again.
            return
        except TopicTerminated as error:
            for sequence_id in publish.sequence_ids:
                self.send_send_error(producer.producer_id, sequence_id, error)
            return
        producer.rate_in.messages += publish.messages
        producer.rate_in.bytes += size
        producer.pending += count
        producer.submitted += count
        self.pending_publishes += count
        if not self._paused_by_own and self.pending_publishes >= self.broker.max_pending_publishes:
            self._paused_by_own = True
            self.pause_reading()
        self.broker.publish_buffer.grew(self, size)
        if producer.topic.publish_limiter is not None:
            self._slow_down(producer.topic.publish_limiter, publish.messages, size)
        if self.broker.publish_limiter is not None:
            self._slow_down(self.broker.publish_limiter, publish.messages, size)

    def _slow_down(self, limiter: PublishLimiter, messages: int, size: int) -> None:
        """Reads on only when what was published is within its rate again."""
        wait = limiter.take(messages, size, self.broker.io.clock.monotonic())
        if wait > 0:
            self.pause_reading()
            self.broker.wheel.schedule(wait, self.resume_reading)

    def unknown_producer(self, producer_id: int, producer: Producer | None) -> None:
        """A SEND for a producer that is not open: ignored when it was closed a moment ago."""
        if producer is not None and producer.fenced:
            log.info(
                "closing the connection of a fenced producer",
                extra={"peer": self.address, "producer": producer.name},
            )
            self.close()
        elif producer is None and producer_id not in self._closed_producers:
            log.warning(
                "closing a connection that sends for an unknown producer",
                extra={"peer": self.address, "id": producer_id},
            )
            self.close()

    def _refuse_send(self, sends: SendRun) -> None:
        producer = self.producers.get(sends.producer_id)
        if producer is None or producer.closed:
            self.unknown_producer(sends.producer_id, producer)
            return
        if sends.error == _CHECKSUM_MISMATCH:
            code, text = ServerErrorCode.CHECKSUM, "Checksum failed on the broker"
        else:
            code, text = ServerErrorCode.UNKNOWN, "The entry has no readable metadata"
        self._send_send_error(sends.producer_id, sends.error_sequence_id, code, text)

    def _settled(self, producer: Producer, count: int, size: int) -> None:
        """So many publishes less are in flight."""
        producer.pending -= count
        if producer.held_receipts:
            self._release_receipts(producer)
        self.pending_publishes -= count
        self.broker.publish_buffer.shrank(size)
        if self._paused_by_own and self.pending_publishes <= self.broker.max_pending_publishes // 2:
            self._paused_by_own = False
            self.resume_reading()

    def on_durable(
        self,
        producer: Producer,
        publish: Publish,
        ledger_id: int,
        first_entry_id: int,
        first: int,
        count: int,
        size: int,
    ) -> None:
        """Slots [first, first + count) of a publish are stored from ``first_entry_id`` on."""
        if not self.closed and not producer.closed:
            self.queue(
                encode_receipts(
                    producer.producer_id,
                    ledger_id,
                    first_entry_id,
                    publish.sequence_ids,
                    publish.highest_sequence_ids,
                    first,
                    count,
                )
            )
        self._settled(producer, count, size)

    def on_passed(self, producer: Producer, publish: Publish, taken: int, size: int) -> None:
        """The first ``taken`` slots were sent on and are stored nowhere, the rest was dropped."""
        count = len(publish.sequence_ids)
        if not self.closed and not producer.closed:
            ids, highest = publish.sequence_ids, publish.highest_sequence_ids
            number = producer.producer_id
            if taken:
                self.queue(encode_receipts(number, *PASSING_ID, ids, highest, 0, taken, 0))
            if taken < count:
                self.queue(encode_receipts(number, *DROPPED_ID, ids, highest, taken, count - taken, 0))
        self._settled(producer, count, size)

    def _send_duplicate_receipt(self, producer: Producer, sequence_id: int, highest: int) -> None:
        """Says that an entry is stored already, after the receipts of everything before it."""
        ids, highest_ids = array("q", (sequence_id,)), array("q", (highest,))
        receipt = encode_receipts(producer.producer_id, -1, -1, ids, highest_ids, 0, 1)
        if producer.pending:
            # Clients take receipts in order only.
            producer.held_receipts.append((producer.submitted, bytes(receipt)))
        else:
            self.queue(receipt)

    def _release_receipts(self, producer: Producer) -> None:
        settled = producer.submitted - producer.pending
        while producer.held_receipts and producer.held_receipts[0][0] <= settled:
            self.queue(producer.held_receipts.popleft()[1])

    def on_failed(
        self, producer: Producer, publish: Publish, first: int, count: int, size: int, error: BrokerError
    ) -> None:
        """They will never be stored: the client is told, and sends again when its producer was closed."""
        if not self.closed and not producer.closed:
            for sequence_id in publish.sequence_ids[first : first + count]:
                self.send_send_error(producer.producer_id, sequence_id, error)
        self._settled(producer, count, size)

    def send_send_error(self, producer_id: int, sequence_id: int, error: BrokerError) -> None:
        self._send_send_error(producer_id, sequence_id, error.code, str(error))

    def _send_send_error(self, producer_id: int, sequence_id: int, code: ServerErrorCode, text: str) -> None:
        command = BaseCommand(type=BaseCommand.SEND_ERROR)
        command.send_error.producer_id = unsigned(producer_id)
        command.send_error.sequence_id = unsigned(sequence_id)
        command.send_error.error = int(code)  # type: ignore[assignment]
        command.send_error.message = text
        self.send(command)

    # Acknowledging

    def _acknowledge(self, acks: AckRun) -> None:
        consumer = self.consumers.get(acks.consumer_id)
        if consumer is not None:
            consumer.subscription.acknowledge_run(consumer, acks)

    # Writing

    def queue(self, frames: bytes | bytearray) -> None:
        """Sends frames together with everything else of this turn of the loop."""
        if not self.closed:
            self.outgoing.queue(frames)

    def send(self, command: BaseCommand) -> None:
        self.queue(encode_command(command))

    def send_success(self, request_id: int) -> None:
        command = BaseCommand(type=BaseCommand.SUCCESS)
        command.success.request_id = request_id
        self.send(command)

    def send_error(self, request_id: int, error: BrokerError) -> None:
        command = BaseCommand(type=BaseCommand.ERROR)
        command.error.request_id = request_id
        command.error.error = int(error.code)  # type: ignore[assignment]
        command.error.message = str(error)
        self.send(command)

    # What the broker closes

    async def is_alive(self) -> bool:
        """Asks the client; False when it does not answer: the connection is closed then."""
        return await self.keep_alive.ask()

    def stop_producer(self, producer: Producer) -> None:
        """Takes no more of it; receipts of what it has sent still go out."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
        self.remember_closed(producer.producer_id)

    def close_producer(self, producer: Producer) -> None:
        """Tells the client that its producer is closed here; it looks the topic up and comes back."""
        self.stop_producer(producer)
        if producer.producer_id in self.producers:
            # The client has opened another one with that id, and knows.
            return
        command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
        command.close_producer.producer_id = unsigned(producer.producer_id)
        command.close_producer.request_id = SERVER_REQUEST_ID
        self.send(command)

    def remember_closed(self, producer_id: int) -> None:
        """SENDs that are still on their way for it are ignored, not punished."""
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > _CLOSED_IDS_KEPT:
            del self._closed_producers[next(iter(self._closed_producers))]

    def close_consumer(self, consumer: Consumer[Any]) -> None:
        """Tells the client that its consumer is closed here; it comes back."""
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]
        command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
        command.close_consumer.consumer_id = unsigned(consumer.consumer_id)
        command.close_consumer.request_id = SERVER_REQUEST_ID
        self.send(command)

    def send_end_of_topic(self, consumer: Consumer[Any]) -> None:
        command = BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC)
        command.reachedEndOfTopic.consumer_id = unsigned(consumer.consumer_id)
        self.send(command)

    def send_active_consumer_change(self, consumer: Consumer[Any], active: bool) -> None:
        """Tells a Failover consumer whether messages go to it; old clients do not know it."""
        if self.protocol_version < _ACTIVE_CONSUMER_VERSION:
            return
        command = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE)
        command.active_consumer_change.consumer_id = unsigned(consumer.consumer_id)
        command.active_consumer_change.is_active = active
        self.send(command)

    def close(self) -> None:
        """Sends what is queued, then closes; what belongs to it is gone at once."""
        if self.closed:
            return
        self.outgoing.flush()
        self.closed = True
        self._release()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Closes at once; what is unsent is lost."""
        self.closed = True
        self._release()
        if self.transport is not None:
            self.transport.abort()
