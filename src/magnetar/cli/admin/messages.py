"""Prints messages in the format of Pulsar's ``pulsar-admin``."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice

from magnetar.admin_client.errors import NotFound
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call
from magnetar.cli.admin.rendering import Rows

_ABORTED, _UNCOMMITTED = "X-Pulsar-txn-aborted", "X-Pulsar-txn-uncommitted"
"""HTTP headers that mark messages of aborted and of open transactions; the command prints them as
properties.
"""
_RULE = "-" * 73
_DUMP_RULE = "+--------+-------------------------------------------------+----------------+"
_DUMP_HEAD = (
    "         +-------------------------------------------------+",
    "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |",
    _DUMP_RULE,
)


def _milliseconds(text: str | None) -> int:
    """Parses a time in a header, which is a date or, beyond the range of ``datetime``, a number; returns
    milliseconds since 1970, or 0 for None.
    """
    if text is None:
        return 0
    return int(text) if text.isdigit() else int(datetime.fromisoformat(text).timestamp() * 1000 + 0.5)


def _dump(data: bytes) -> Iterator[str]:
    if not data:
        return
    yield from _DUMP_HEAD
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        text = "".join(chr(byte) if 0x20 < byte < 0x7F else "." for byte in row)
        yield f"|{start:08x}| {row.hex(' '):<48}|{text:<16}|"
    yield _DUMP_RULE


@dataclass(frozen=True, slots=True)
class _Message:
    id: str
    """``ledger:entry``, followed by ``:index`` for a message of a batch."""
    batched: bool
    headers: Mapping[str, str]
    """Headers of the HTTP response, by name in lower case."""
    properties: Mapping[str, str]
    data: bytes

    @property
    def publish_time(self) -> int:
        """The publish time, in milliseconds since 1970; 0: not set."""
        return _milliseconds(self.headers.get("x-pulsar-publish-time"))

    @property
    def event_time(self) -> int:
        """The event time, in milliseconds since 1970; 0: not set."""
        return _milliseconds(self.headers.get("x-pulsar-event-time"))

    def text(self, *, redelivered: bool) -> str:
        """Returns the message in the format of Pulsar's tool.

        :param redelivered: whether to include the redelivery count, as Pulsar does for some commands
        """
        lines = [
            f"{'Batch ' if self.batched else ''}Message ID: {self.id}",
            f"Publish time: {self.publish_time}",
            f"Event time: {self.event_time}",
            *(["Redelivery count: 0"] if redelivered else []),
            "Properties:",
            *(f"{key}    {value}" for key, value in self.properties.items()),
            *_dump(self.data),
        ]
        return "".join(f"{line}\n" for line in lines)

    def value(self) -> Mapping[str, object]:
        """Returns the message as a JSON object; the payload is in Base64, and also as a string if it is valid
        UTF-8.
        """
        try:
            text = self.data.decode()
        except UnicodeDecodeError:
            text = None
        return {
            "messageId": self.id,
            "publishTime": self.publish_time,
            "eventTime": self.event_time,
            "properties": dict(self.properties),
            "content": text,
            "contentBase64": b64encode(self.data).decode(),
        }


def _messages(headers: Mapping[str, str], data: bytes) -> Iterator[_Message]:
    """Yields the messages of an entry that an HTTP response contains."""
    where = headers["x-pulsar-message-id"]
    ends = {name: "true" for name in (_ABORTED, _UNCOMMITTED) if headers.get(name.lower()) == "true"}
    properties = {**json.loads(headers.get("x-pulsar-property", "{}")), **ends}
    size = headers.get("x-pulsar-num-batch-message")
    if size is None or headers.get("x-pulsar-is-encrypted") == "true":
        # An encrypted batch cannot be split without the key: print it as a whole, as Pulsar does.
        yield _Message(where, False, headers, properties, data)
        return
    # Imported only for batches: protobuf is large.
    from magnetar.protocol.metadata import split_batch

    shared = {
        "X-Pulsar-batch-size": headers.get("x-pulsar-batch-size", ""),
        "X-Pulsar-num-batch-message": size,
        **ends,
    }
    for index, message in enumerate(split_batch(data, int(size))):
        own = {pair.key: pair.value for pair in message.metadata.properties}
        yield _Message(f"{where}:{index}", True, headers, {**shared, **own}, message.payload)


def _peek(call: Call) -> object:
    """Prints the first messages of a subscription's backlog.

    Stops at the first message of an open transaction and skips messages of aborted transactions, unless
    READ_UNCOMMITTED is requested. Skipped messages and markers do not count towards the limit; printed
    markers do.
    """
    found: list[_Message] = []
    # The older command, persistent peek-messages, has neither of these options.
    committed = call.get("transaction-isolation-level") != "READ_UNCOMMITTED"
    for number in count(1):
        if len(found) >= call["count"]:
            break
        try:
            headers, data = call.fetch(f"{call.subscription}/position/{number}")
        except NotFound as error:
            if "Message not found" in str(error):
                break
            raise
        if committed and headers.get(_UNCOMMITTED.lower()) == "true":
            break
        if committed and headers.get(_ABORTED.lower()) == "true":
            continue
        if "x-pulsar-marker-type" in headers and not call.get("show-server-marker"):
            continue
        found += islice(_messages(headers, data), call["count"] - len(found))
    texts = [each.text(redelivered=False) for each in found]
    return Rows([f"{_RULE}\n\n".join(texts)], [each.value() for each in found])


def _shown(
    call: Call, path: str, query: dict[str, str] | None = None, *, redelivered: bool = False
) -> object:
    headers, data = call.fetch(path, query)
    found = list(_messages(headers, data))
    return Rows((each.text(redelivered=redelivered) for each in found), [each.value() for each in found])


def _examine(call: Call) -> object:
    query = {"initialPosition": call["initialPosition"], "messagePosition": str(call["messagePosition"])}
    return _shown(call, f"{call.topic}/examinemessage", query)


def _by_id(call: Call) -> object:
    path = f"{call.topic}/ledger/{call['ledgerId']}/entry/{call['entryId']}"
    return _shown(call, path, redelivered=True)


def _by_time(call: Call) -> object:
    try:
        at = datetime.fromisoformat(call["datetime"])
    except ValueError:
        raise UsageError(
            f"{call['datetime']!r} is not a time; use a form like 2026-01-31T12:00:00Z"
        ) from None
    if at.tzinfo is None:
        raise UsageError(f"{call['datetime']!r} has no offset from UTC; add Z, or an offset like +01:00")
    return call.ask("GET", f"{call.topic}/messageid/{int(at.timestamp() * 1000)}")


ACTIONS: dict[str, Action] = {
    "topics peek-messages": _peek,
    "persistent peek-messages": _peek,
    "topics examine-messages": _examine,
    "topics get-message-by-id": _by_id,
    "persistent get-message-by-id": _by_id,
    "topics get-message-id": _by_time,
}
