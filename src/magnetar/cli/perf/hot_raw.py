"""The inner loops of the load generator: build frames from a template, and count and check messages.

This module is plain Python that is also compiled, with the C types in ``hot_raw.pxd``; it creates no object
per message. Payloads begin with 24 bytes: a magic number, the producer's number, a sequence number and the
time at which the message was due, so that receivers can detect lost, duplicate and reordered messages.
"""

from __future__ import annotations

from array import array

from magnetar.io.crc32c import crc32c
from magnetar.protocol.hot_client_encode import encode_send

_HEADER = 24
_MAGIC = 0x4D675066

# Sub-buckets of the histogram for each power of two: 128 limit its error to 0.8 %.
_SUB = 128

HEADER_SIZE = _HEADER
"""Size in bytes of the header at the beginning of payloads; smaller payloads cannot be checked."""


class Histogram:
    """A histogram of durations up to 2^47 ns, with an error of at most 0.8 %."""

    def __init__(self) -> None:
        self.counts = array("q", bytes(8 * _SUB * 42))
        self._counts = self.counts
        self.total = 0
        self.maximum = 0

    def record(self, value: int, times: int = 1) -> None:
        """Adds a duration ``times`` times.

        :param value: the duration in nanoseconds; negative values count as 0
        """
        if value < 0:
            value = 0
        if value > self.maximum:
            self.maximum = value
        index = 0
        rest = value
        while rest >= 2 * _SUB:
            rest >>= 1
            index += _SUB
        index += rest
        if index >= _SUB * 42:
            index = _SUB * 42 - 1
        self._counts[index] += times
        self.total += times


class Window:
    """The time window that is measured: only messages that were due in [first, last) count; times are in
    nanoseconds.
    """

    def __init__(self) -> None:
        self.first = 0x7FFFFFFFFFFFFFFF
        self.last = 0x7FFFFFFFFFFFFFFF


def _put_varint(out: bytearray, position: int, value: int) -> int:
    """Writes a non-negative number as a varint; returns the position after it."""
    while value > 127:
        out[position] = (value & 127) | 128
        value >>= 7
        position += 1
    out[position] = value
    return position + 1


def _put_four(out: bytearray, position: int, value: int) -> None:
    out[position] = (value >> 24) & 255
    out[position + 1] = (value >> 16) & 255
    out[position + 2] = (value >> 8) & 255
    out[position + 3] = value & 255


def _put_header(out: bytearray, position: int, producer: int, sequence: int, due: int) -> None:
    _put_four(out, position, _MAGIC)
    _put_four(out, position + 4, producer)
    _put_four(out, position + 8, sequence >> 32)
    _put_four(out, position + 12, sequence)
    _put_four(out, position + 16, due >> 32)
    _put_four(out, position + 20, due)


def _four_at(buffer: bytes, position: int) -> int:
    value = buffer[position]
    value = (value << 8) | buffer[position + 1]
    value = (value << 8) | buffer[position + 2]
    return (value << 8) | buffer[position + 3]


def _eight_at(buffer: bytes, position: int) -> int:
    value = 0
    index = position
    while index < position + 8:
        value = (value << 8) | buffer[index]
        index += 1
    return value


def _varint_size(value: int) -> int:
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


class RawSender:
    """Builds the SEND frames of one producer and counts its receipts."""

    def __init__(
        self,
        producer_id: int,
        number: int,
        head: bytes,
        content: bytes,
        batch: int,
        max_outstanding: int,
        window: Window,
    ) -> None:
        """:param number: the producer's number in the run, which payloads of at least 24 bytes contain

        :param head: the metadata field with the producer name, serialized
        :param batch: maximum number of messages in an entry; 1: no batches
        """
        self.producer_id = producer_id
        self.number = number
        self.batch = batch
        self.next_sequence = 0
        self.next_receipt = 0
        self.errors = 0
        self.latencies = Histogram()
        self._window = window
        self._head = head
        self._content = content
        self._size = len(content)
        self._frame = bytearray()
        self._checked: memoryview | bytes = b""
        self._sequence_at = 0
        self._again_at = 0
        self._time_at = 0
        self._content_at = 0
        self._checksum_at = 0
        self._until = -1
        self._body = bytearray((len(content) + 32) * (batch if batch > 1 else 0))
        slots = 1
        while slots < max_outstanding + 1:
            slots *= 2
        self._dues = array("q", bytes(8 * slots))
        self._sizes = array("i", bytes(4 * slots))
        self._mask = slots - 1
        self._sent = 0
        self._told = 0

    def make(self, count: int, due: int, interval: int, publish_ms: int) -> bytearray:
        """Builds the frames of the next ``count`` messages.

        :param due: time at which the first message was due, in nanoseconds
        :param interval: nanoseconds between the times at which messages were due
        :param publish_ms: publish time, in milliseconds since 1970
        """
        if self.batch > 1:
            return self._make_batches(count, due, interval, publish_ms)
        parts = []
        while count > 0:
            if self.next_sequence > self._until:
                self._make_template(publish_ms)
            n = min(count, self._until + 1 - self.next_sequence)
            parts.append(self._make_run(n, due, interval, publish_ms))
            due += interval * n
            count -= n
        return parts[0] if len(parts) == 1 else bytearray().join(parts)

    def _make_run(self, count: int, due: int, interval: int, publish_ms: int) -> bytearray:
        """Builds frames of equal size, as copies of the template in which the changing fields are
        replaced.
        """
        _put_varint(self._frame, self._time_at, publish_ms)
        whole = self._frame * count
        frame = self._frame
        out = whole
        position = 0
        size = len(self._frame)
        while count > 0:
            # Computes the checksum on the template, so that no view is created for each message.
            self._patch(frame, 0, due)
            checksum = crc32c(self._checked)
            self._patch(out, position, due)
            _put_four(out, position + self._checksum_at, checksum)
            self._dues[self.next_sequence & self._mask] = due
            self._sizes[self._sent & self._mask] = 1
            self._sent += 1
            self.next_sequence += 1
            position += size
            due += interval
            count -= 1
        return whole

    def _patch(self, frame: bytearray, position: int, due: int) -> None:
        """Replaces the changing fields, except the checksum, in the frame at ``position``."""
        _put_varint(frame, position + self._sequence_at, self.next_sequence)
        _put_varint(frame, position + self._again_at, self.next_sequence)
        if self._size >= _HEADER:
            _put_header(frame, position + self._content_at, self.number, self.next_sequence, due)

    def _make_template(self, publish_ms: int) -> None:
        """Builds a template, a frame that serves for all sequence ids up to ``_until``."""
        sequence = self.next_sequence
        self._checked = b""
        self._frame = encode_send(
            self.producer_id, sequence, -1, 1, self._head, publish_ms, b"", self._content
        )
        size = _varint_size(sequence)
        self._until = (1 << (7 * size)) - 1
        self._sequence_at = 14 + _varint_size(self.producer_id)
        command_end = self._sequence_at + size
        self._checksum_at = command_end + 2
        self._again_at = command_end + 10 + len(self._head) + 1
        self._time_at = self._again_at + size + 1
        self._content_at = len(self._frame) - len(self._content)
        self._checked = memoryview(self._frame)[command_end + 6 :]

    def _make_batches(self, count: int, due: int, interval: int, publish_ms: int) -> bytearray:
        out = bytearray()
        while count > 0:
            n = min(count, self.batch)
            tail = bytearray(12)
            tail[0] = 0x58
            del tail[_put_varint(tail, 1, n) :]
            first = self.next_sequence
            payload = self._batch_payload(n, due, interval)
            highest = first + n - 1 if n > 1 else -1
            out += encode_send(
                self.producer_id, first, highest, n, self._head, publish_ms, bytes(tail), payload
            )
            self._sizes[self._sent & self._mask] = n
            self._sent += 1
            due += interval * n
            count -= n
        return out

    def _batch_payload(self, count: int, due: int, interval: int) -> bytes:
        body = self._body
        content = self._content
        size = len(self._content)
        position = 0
        index = 0
        while index < count:
            start = position
            body[start + 4] = 0x18
            position = _put_varint(body, start + 5, size)
            body[position] = 0x40
            position = _put_varint(body, position + 1, self.next_sequence)
            _put_four(body, start, position - start - 4)
            body[position : position + size] = content
            if size >= _HEADER:
                _put_header(body, position, self.number, self.next_sequence, due)
            position += size
            self._dues[self.next_sequence & self._mask] = due
            self.next_sequence += 1
            due += interval
            index += 1
        return bytes(self._body[:position])

    def receipts(self, sequence_ids: array[int], count: int, now: int) -> int:
        """Processes receipts; returns the number of messages that they confirm. Unexpected receipts are
        counted in ``errors``.

        :param now: the present time, in nanoseconds
        """
        before = self.next_receipt
        index = 0
        while index < count:
            if sequence_ids[index] != self.next_receipt or self._told == self._sent:
                self.errors += 1
                index += 1
                continue
            size = self._sizes[self._told & self._mask]
            self._told += 1
            while size > 0:
                due = self._dues[self.next_receipt & self._mask]
                if self._window.first <= due and due < self._window.last:
                    self.latencies.record(now - due)
                self.next_receipt += 1
                size -= 1
            index += 1
        return self.next_receipt - before


class OrderCheck:
    """Checks the order of the messages that one subscription receives from each producer."""

    def __init__(self, producers: int) -> None:
        self.expected = array("q", bytes(8 * producers))
        """By producer number: the sequence number of the message that must come next."""
        self.missing: set[tuple[int, int]] = set()
        """Messages that were skipped and have not arrived since, as (producer number, sequence number)."""
        self.duplicates = 0
        self.disorder = 0
        """Number of messages that arrived too late: after a later message of the same producer."""
        self._expected = self.expected
        self._producers = producers

    def take(self, producer: int, sequence: int) -> None:
        if producer >= self._producers:
            self.duplicates += 1
        elif sequence == self._expected[producer]:
            self._expected[producer] = sequence + 1
        else:
            self._odd(producer, sequence)

    def _odd(self, producer: int, sequence: int) -> None:
        expected = self.expected[producer]
        if sequence > expected:
            self.missing.update([(producer, each) for each in range(expected, sequence)])
            self.expected[producer] = sequence + 1
        elif (producer, sequence) in self.missing:
            self.missing.discard((producer, sequence))
            self.disorder += 1
        else:
            self.duplicates += 1


class RawReceiver:
    """Counts and checks the messages of one consumer."""

    def __init__(self, order: OrderCheck | None, window: Window) -> None:
        """:param order: checks the order; shared by all consumers of a subscription. None: the order is not
        checked
        """
        self.messages = 0
        self.size = 0
        """Total size of the received payloads, in bytes."""
        self.foreign = 0
        """Number of messages that no load generator has sent."""
        self.latencies = Histogram()
        self._order = order
        self._window = window

    def take(
        self,
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        batch_sizes: array[int],
        count: int,
        now: int,
    ) -> None:
        """Counts and checks the messages of ``count`` uncompressed entries, which ``read_messages`` found in
        received frames.

        :param buffer: the received bytes; entry i is ``buffer[starts[i]:ends[i]]``
        :param batch_sizes: the number of messages in each entry; 0: the entry is not a batch
        :param now: the present time, in nanoseconds since 1970
        """
        index = 0
        while index < count:
            start = starts[index]
            entry_end = ends[index]
            if buffer[start] == 0x0E and buffer[start + 1] == 0x01:
                start += 6
            metadata = _four_at(buffer, start)
            published = _number(buffer, start + 4, start + 4 + metadata, 0x18)
            start += 4 + metadata
            left = batch_sizes[index]
            if left == 0:
                self._message(buffer, start, entry_end, published, now)
            while left > 0 and entry_end - start >= 4:
                metadata = _four_at(buffer, start)
                size = _number(buffer, start + 4, start + 4 + metadata, 0x18)
                start += 4 + metadata
                end = start + size
                if end > entry_end:
                    break
                self._message(buffer, start, end, published, now)
                start = end
                left -= 1
            index += 1

    def take_content(self, content: bytes, published_ms: int, now: int) -> None:
        """Counts and checks one message.

        :param content: the payload
        :param published_ms: publish time, in milliseconds since 1970
        :param now: the present time, in nanoseconds since 1970
        """
        self._message(content, 0, len(content), published_ms, now)

    def _message(self, buffer: bytes, start: int, end: int, published: int, now: int) -> None:
        self.messages += 1
        self.size += end - start
        if end - start < _HEADER or _four_at(buffer, start) != _MAGIC:
            self.foreign += 1
            due = published * 1000000
        else:
            due = _eight_at(buffer, start + 16)
            if self._order is not None:
                producer = _four_at(buffer, start + 4)
                sequence = _eight_at(buffer, start + 8)
                self._order.take(producer, sequence)
        if self._window.first <= due and due < self._window.last:
            self.latencies.record(now - due)


def _number(buffer: bytes, position: int, end: int, wanted: int) -> int:
    """Returns the number in the protobuf field with the one-byte tag ``wanted``; 0 if the field is missing,
    or if a field that is neither a varint nor length-delimited precedes it.
    """
    while position < end - 1:
        tag = buffer[position]
        position += 1
        value = 0
        shift = 0
        while position < end and shift < 63:
            byte = buffer[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if tag == wanted:
            return value
        if tag & 7 == 2:
            position += value
        elif tag & 7 != 0:
            return 0
    return 0
