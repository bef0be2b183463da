"""Conversations over WebSocket, the same with any broker: what is said, what is answered.

``python websocket_talk.py URL`` prints what a broker answers, in the form that the tests compare with.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import websocket

SECONDS = 10.0
QUIET_SECONDS = 1.0

_TEXT, _CLOSE = 1, 8
_ID = re.compile(r"messageId=(?!earliest|xx)[^& ]+")
_HIDDEN = {"messageId": "ID", "publishTime": "TIME", "errorMsg": "TEXT", "remoteConnection": "PEER"}


def payload(text: str) -> str:
    return b64encode(text.encode()).decode()


class Talk:
    """Writes down what was said, without what differs from run to run."""

    def __init__(self, http_url: str, mark: str) -> None:
        """:param mark: in the names of topics, where it is not written down"""
        self._http_url = http_url
        self._mark = mark
        self.lines: list[str] = []
        self.last: dict[str, Any] = {}
        """What was heard last, as it came."""

    def say(self, what: str) -> None:
        self.lines.append(
            re.sub(r"messageId=(?!earliest|xx)[^& ]+", "messageId=ID", what.replace(self._mark, "N"))
        )

    def open(self, path: str, *, headers: Mapping[str, str] | None = None) -> websocket.WebSocket | None:
        """None: it was refused."""
        url = self._http_url.replace("http", "ws", 1) + path
        try:
            opened = websocket.create_connection(url, timeout=SECONDS, header=dict(headers or {}))
        except websocket.WebSocketBadStatusException as error:
            self.say(f"{path} -> {error.status_code}")
            return None
        self.say(f"{path} -> 101")
        return opened

    def tell(self, socket: websocket.WebSocket, what: Any) -> None:
        text = what if isinstance(what, str) else json.dumps(what)
        socket.send(text)
        told = json.loads(text) if text.startswith("{") and text.endswith("}") else None
        self.say(f"> {json.dumps(_hidden(told)) if told is not None else text}")

    def hear(self, socket: websocket.WebSocket, seconds: float = SECONDS) -> None:
        socket.settimeout(seconds)
        try:
            kind, data = socket.recv_data()
        except websocket.WebSocketTimeoutException:
            self.say("< nothing")
            return
        except websocket.WebSocketConnectionClosedException:
            self.say("< gone")
            return
        if kind == _TEXT:
            self.last = json.loads(data)
            self.say(f"< {json.dumps(_hidden(self.last), sort_keys=True)}")
        else:
            code = int.from_bytes(data[:2], "big") if kind == _CLOSE and data else None
            self.say(f"< {'close' if kind == _CLOSE else kind} {code}")

    def ask(self, path: str) -> None:
        try:
            with urllib.request.urlopen(self._http_url + path) as answer:
                told = json.loads(answer.read())
                self.say(f"GET {path} {answer.status} {json.dumps(_hidden(told), sort_keys=True)}")
        except urllib.error.HTTPError as error:
            self.say(f"GET {path} {error.code}")


def _hidden(told: Any) -> Any:
    if isinstance(told, dict):
        return {key: _HIDDEN[key] if key in _HIDDEN else _hidden(value) for key, value in told.items()}
    if isinstance(told, list):
        return [_hidden(each) for each in told]
    return told


def conversation(http_url: str, mark: str) -> list[str]:
    """All of it."""
    talk = Talk(http_url, mark)
    for part in (_publishing, _consuming, _wrong_commands, _reading, _pulling, _several, _refused):
        talk.say(f"# {part.__name__[1:].replace('_', ' ')}")
        part(talk, mark)
    return talk.lines


def _topic(mark: str, name: str) -> str:
    return f"persistent/public/default/{name}-{mark}"


def _wrong_messages() -> Iterator[Any]:
    yield "{"
    yield "[]"
    yield {"context": "a"}
    yield {"payload": None, "context": "b"}
    yield {"payload": "***", "context": "c"}
    yield {"payload": payload("x"), "properties": "no", "context": "d"}
    yield {"payload": payload("x"), "eventTime": "yesterday", "context": "e"}
    yield {"payload": payload("x"), "deliverAt": "soon", "context": "f"}


def _publishing(talk: Talk, mark: str) -> None:
    producer = talk.open(f"/ws/v2/producer/{_topic(mark, 'published')}")
    assert producer is not None
    told: list[Any] = [
        {"payload": payload("one"), "context": "1", "properties": {"k": "v"}, "key": "K"},
        {"payload": payload("two")},
        {"payload": "", "context": 3},
        {"payload": payload("four"), "unknown": 1, "context": "4"},
        {"payload": payload("five"), "deliverAfterMs": 1, "context": "5"},
        *_wrong_messages(),
        {"payload": payload("after all"), "context": "6"},
    ]
    for message in told:
        talk.tell(producer, message)
        talk.hear(producer)
    producer.close()


def _consuming(talk: Talk, mark: str) -> None:
    topic = _topic(mark, "consumed")
    consumer = talk.open(
        f"/ws/v2/consumer/{topic}/s?subscriptionType=Shared&negativeAckRedeliveryDelay=300&receiverQueueSize=2"
    )
    producer = talk.open(f"/ws/v2/producer/{topic}?batchingEnabled=true&compressionType=ZLIB")
    assert consumer is not None
    assert producer is not None
    talk.tell(producer, {"payload": payload("0"), "eventTime": "2024-01-01T00:00:00.120Z", "key": "k"})
    talk.hear(producer)
    for number in range(1, 4):
        talk.tell(producer, {"payload": payload(str(number)), "properties": {"n": str(number)}})
        talk.hear(producer)
    talk.hear(consumer)
    first = talk.last["messageId"]
    talk.hear(consumer)
    second = talk.last["messageId"]
    talk.hear(consumer, QUIET_SECONDS)
    talk.tell(consumer, {"type": "isEndOfTopic"})
    talk.hear(consumer)
    talk.tell(consumer, {"messageId": first})
    talk.hear(consumer)
    talk.tell(consumer, {"messageId": talk.last["messageId"]})
    talk.hear(consumer)
    talk.tell(consumer, {"messageId": talk.last["messageId"]})
    talk.tell(consumer, {"type": "negativeAcknowledge", "messageId": second})
    talk.hear(consumer)
    stats = f"/admin/v2/proxy-stats/{topic}/stats"
    talk.ask(stats)
    talk.tell(consumer, {"messageId": talk.last["messageId"]})
    consumer.close()
    producer.close()


def _wrong_commands(talk: Talk, mark: str) -> None:
    topic = _topic(mark, "commanded")
    for command in ("{", {"messageId": "***"}, {"type": "permit"}, {"type": "nonsense"}, {}):
        consumer = talk.open(f"/ws/v2/consumer/{topic}/s?subscriptionType=Shared")
        assert consumer is not None
        talk.tell(consumer, command)
        talk.hear(consumer, QUIET_SECONDS)
        consumer.close()


def _reading(talk: Talk, mark: str) -> None:
    topic = _topic(mark, "published")
    reader = talk.open(f"/ws/v2/reader/{topic}?messageId=earliest&receiverQueueSize=2")
    assert reader is not None
    for _ in range(2):
        talk.hear(reader)
    second = talk.last["messageId"]
    talk.hear(reader, QUIET_SECONDS)
    talk.tell(reader, {"messageId": second})
    talk.hear(reader)
    reader.close()
    reader = talk.open(f"/ws/v2/reader/{topic}?messageId={quote(second)}")
    assert reader is not None
    for _ in range(4):
        talk.hear(reader)
    talk.tell(reader, {"type": "isEndOfTopic"})
    talk.hear(reader)
    reader.close()


def _pulling(talk: Talk, mark: str) -> None:
    consumer = talk.open(
        f"/ws/v2/consumer/{_topic(mark, 'published')}/pull?pullMode=true&subscriptionInitialPosition=Earliest"
    )
    assert consumer is not None
    talk.hear(consumer, QUIET_SECONDS)
    talk.tell(consumer, {"type": "permit", "permitMessages": 2})
    for _ in range(2):
        talk.hear(consumer)
    talk.hear(consumer, QUIET_SECONDS)
    consumer.close()


def _several(talk: Talk, mark: str) -> None:
    names = ",".join(f"persistent://public/default/{name}-{mark}" for name in ("published", "empty"))
    earliest = "subscriptionInitialPosition=Earliest&receiverQueueSize=1"
    for number, query in enumerate(
        (
            f"topics={names}&{earliest}",
            f"topicsPattern=persistent://public/default/pub.*-{mark}&{earliest}",
        )
    ):
        consumer = talk.open(f"/ws/v3/consumer/several-{number}?{query}")
        assert consumer is not None
        talk.hear(consumer)
        consumer.close()


def _refused(talk: Talk, mark: str) -> None:
    topic = _topic(mark, "published")
    held = talk.open(f"/ws/v2/consumer/{topic}/held")
    named = talk.open(f"/ws/v2/producer/{topic}?producerName=named")
    assert held is not None
    assert named is not None
    for path in (
        f"/ws/v2/consumer/{topic}/held",
        f"/ws/v2/producer/{topic}?producerName=named",
        f"/ws/v2/consumer/{topic}/s?subscriptionType=Nope",
        f"/ws/v2/consumer/{topic}/s?receiverQueueSize=x",
        f"/ws/v2/consumer/{topic}/s?maxRedeliverCount=0",
        f"/ws/v2/producer/{topic}?compressionType=lz4",
        f"/ws/v2/producer/{topic}?messageRoutingMode=x",
        f"/ws/v2/producer/{topic}?hashingScheme=x",
        f"/ws/v2/producer/{topic}?sendTimeoutMillis=x",
        f"/ws/v2/producer/{topic}?encryptionKeys=a",
        f"/ws/v2/reader/{topic}?messageId=xx",
        "/ws/v2/producer/nonsense/public/default/x",
        "/ws/v2/producer/persistent/public/there-is-none/x",
        "/ws/v2/nonsense/persistent/public/default/x",
        "/ws/v3/consumer/v3",
        "/ws/v3/consumer/v3?topics=a&topicsPattern=b",
    ):
        opened = talk.open(path)
        if opened is not None:
            opened.close()
    held.close()
    named.close()
    talk.ask(f"/admin/v2/proxy-stats/{_topic(mark, 'nobody')}/stats")


if __name__ == "__main__":
    for line in conversation(sys.argv[1], sys.argv[2]):
        print(line)
