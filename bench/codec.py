"""Measures nanoseconds per entry of the hand-written codec; prints one JSON object.

Run twice, once with MAGNETAR_PURE=1, to compare the compiled and the interpreted form.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable
from time import perf_counter_ns

from crc32c import crc32c

from magnetar import hot
from magnetar.protocol import hot_codec
from magnetar.protocol.frames import (
    DEFAULT_MAX_MESSAGE_SIZE,
    encode_command,
    encode_with_payload,
    max_frame_size,
)
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata

ENTRIES = 1000
MAX_FRAME = max_frame_size(DEFAULT_MAX_MESSAGE_SIZE)


def sends(first_sequence_id: int, payload: bytes) -> bytes:
    """Returns frames of ``ENTRIES`` unbatched messages."""
    frames = []
    for sequence_id in range(first_sequence_id, first_sequence_id + ENTRIES):
        metadata = MessageMetadata(
            producer_name="standalone-0-1", sequence_id=sequence_id, publish_time=1_800_000_000_000
        ).SerializeToString()
        checked = len(metadata).to_bytes(4, "big") + metadata + payload
        entry = b"\x0e\x01" + crc32c(checked).to_bytes(4, "big") + checked
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id = 1
        command.send.sequence_id = sequence_id
        frames.append(encode_with_payload(command, entry))
    return b"".join(frames)


def acks(first_entry_id: int) -> bytes:
    """Returns ``ENTRIES`` frames that acknowledge one entry each."""
    frames = []
    for entry_id in range(first_entry_id, first_entry_id + ENTRIES):
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = 1
        command.ack.ack_type = 0
        command.ack.message_id.add(ledgerId=77, entryId=entry_id)
        frames.append(encode_command(command))
    return b"".join(frames)


def nanoseconds(work: Callable[[], object], rounds: int = 30) -> float:
    """Returns the nanoseconds per entry of the best round."""
    best = None
    for _ in range(rounds):
        begin = perf_counter_ns()
        work()
        spent = perf_counter_ns() - begin
        best = spent if best is None else min(best, spent)
    return round((best or 0) / ENTRIES, 1)


def main() -> int:
    first = 20_000
    results: dict[str, float] = {}
    run = hot_codec.SendRun(ENTRIES)
    ack_run = hot_codec.AckRun(ENTRIES)
    for size in (100, 1000):
        buffer = sends(first, bytes(size))
        for checksum in (True, False):
            name = f"read_sends {size} B{'' if checksum else ', unchecked'}"
            results[name] = nanoseconds(
                lambda b=buffer, c=checksum: hot_codec.read_sends(b, 0, len(b), MAX_FRAME, run, c, ENTRIES)
            )
        assert run.count == ENTRIES
        results[f"encode_messages {size} B"] = nanoseconds(
            lambda b=buffer: hot_codec.encode_messages(1, 77, first, b, run.starts, run.ends, 0, ENTRIES)
        )
        sizes = array("i", bytes(4 * ENTRIES))
        results[f"batch_sizes {size} B"] = nanoseconds(
            lambda b=buffer, s=sizes: hot_codec.batch_sizes(b, run.starts, run.ends, 0, ENTRIES, s)
        )
    results["encode_receipts"] = nanoseconds(
        lambda: hot_codec.encode_receipts(
            1, 77, first, run.sequence_ids, run.highest_sequence_ids, 0, ENTRIES
        )
    )
    acknowledged = acks(first)
    results["read_acks"] = nanoseconds(
        lambda: hot_codec.read_acks(acknowledged, 0, len(acknowledged), MAX_FRAME, ack_run)
    )
    assert ack_run.count == ENTRIES
    forms = {module: form.name.lower() for module, form in hot.status().forms.items()}
    json.dump(
        {"unit": "ns/entry", "python": sys.version.split()[0], "forms": forms, "results": results}, sys.stdout
    )
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
