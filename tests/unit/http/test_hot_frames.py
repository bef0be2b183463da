"""Frames of WebSockets: whole texts are read here as wsproto reads them, everything else is left to it."""

from __future__ import annotations

from types import ModuleType

import pytest
from codec_forms import forms_of
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage

_FRAMES = forms_of("magnetar.http.engine.hot_frames")
_LARGEST = 1200
_sizes = st.sampled_from([0, 1, 2, 125, 126, 127, 1000, 1200])
_texts = st.one_of(st.text(max_size=40), st.builds(lambda size: "x" * size, _sizes))
_spoken: st.SearchStrategy[list[Event]] = st.one_of(
    st.builds(lambda text: [TextMessage(text)], _texts),
    st.builds(
        lambda one, other, ping: [
            TextMessage(one, message_finished=False),
            *([Ping(b"between")] if ping else []),
            TextMessage(other),
        ],
        _texts,
        _texts,
        st.booleans(),
    ),
    st.builds(lambda data: [BytesMessage(data)], st.binary(max_size=200)),
    st.just([Ping(b"still there?")]),
)


@pytest.fixture(params=["interpreted", "compiled"], scope="module")
def hot(request: pytest.FixtureRequest) -> ModuleType:
    found = _FRAMES[request.param]
    if found is None:
        pytest.skip("the hot modules are not compiled: python -m magnetar.hot build")
    return found


def _read(chunks: list[bytes], hot: ModuleType | None) -> list[object]:
    """What a server takes from a client: with the reader before it, or by wsproto alone."""
    reader = hot.FrameReader(_LARGEST) if hot is not None else None
    whole, found, parts = Connection(ConnectionType.SERVER), [], ""
    for chunk in chunks:
        for frame in reader.read(chunk) if reader is not None else [chunk]:
            if isinstance(frame, str):
                found.append(frame)
                continue
            whole.receive_data(frame)
            for event in whole.events():
                if isinstance(event, TextMessage):
                    parts += event.data
                    if event.message_finished:
                        found.append(parts)
                        parts = ""
                elif isinstance(event, BytesMessage):
                    found.append(bytes(event.data))
                else:
                    found.append(type(event))
    return found


def _cut(sent: bytes, cuts: list[int]) -> list[bytes]:
    chunks = []
    for cut in cuts:
        chunks.append(sent[:cut])
        sent = sent[cut:]
    return [chunk for chunk in (*chunks, sent) if chunk]


@settings(deadline=None)
@given(spoken=st.lists(_spoken, max_size=6), cuts=st.lists(st.integers(1, 1500), max_size=12))
def test_what_is_read_is_what_wsproto_reads_however_it_is_cut(
    hot: ModuleType, spoken: list[list[Event]], cuts: list[int]
) -> None:
    client = Connection(ConnectionType.CLIENT)
    chunks = _cut(b"".join(client.send(event) for events in spoken for event in events), cuts)
    # A message without text may come in parts: where they were cut is nobody's business.
    joined = [b"".join(map(str.encode, _texts_of(_read(chunks, each)))) for each in (hot, None)]
    assert joined[0] == joined[1]
    assert _kinds_of(_read(chunks, hot)) == _kinds_of(_read(chunks, None))


def _texts_of(found: list[object]) -> list[str]:
    return [each for each in found if isinstance(each, str)]


def _kinds_of(found: list[object]) -> list[object]:
    """Binary messages by their bytes, and how many texts came between what else came."""
    kinds: list[object] = []
    for each in found:
        if isinstance(each, bytes) and kinds and isinstance(kinds[-1], bytes):
            kinds[-1] += each
        else:
            kinds.append(str if isinstance(each, str) else each)
    return kinds


@settings(deadline=None)
@given(data=st.lists(st.binary(max_size=30), max_size=4))
def test_anything_is_read_as_wsproto_reads_it(hot: ModuleType, data: list[bytes]) -> None:
    chunks = [chunk for chunk in data if chunk]
    mine, theirs = (_kinds_of(_read([b"".join(chunks)], each)) for each in (hot, None))
    # Of a frame that has not come to its end wsproto may know already that it is none.
    assert theirs in (mine, [*mine, CloseConnection])


@pytest.mark.parametrize("size", [0, 5, 124, 125, 65_533, 65_534, 65_535])
def test_a_client_reads_what_is_sent(hot: ModuleType, size: int) -> None:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(hot.text_frame("ä" + "x" * size))
    (event,) = client.events()
    assert isinstance(event, TextMessage)
    assert event.data == "ä" + "x" * size


def test_one_byte_after_the_other(hot: ModuleType) -> None:
    client, reader = Connection(ConnectionType.CLIENT), hot.FrameReader(70_000)
    sent = client.send(TextMessage("one")) + client.send(TextMessage("z" * 300))
    sent += client.send(TextMessage("y" * 66_000))
    found = [frame for i in range(len(sent)) for frame in reader.read(bytes(sent[i : i + 1]))]
    assert found == ["one", "z" * 300, "y" * 66_000]


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"\x81\x03abc", id="not masked"),
        pytest.param(b"\x81\xfe\x00\x03" + bytes(4) + b"abc", id="a length of two bytes where one does"),
        pytest.param(b"\x81\xff" + (300).to_bytes(8, "big") + bytes(4) + bytes(300), id="of eight"),
        pytest.param(b"\x81\xff" + b"\xff" * 8 + bytes(4), id="a length that there is not"),
        pytest.param(b"\x89\xfe\x00\x7e" + bytes(4) + bytes(126), id="a ping too long"),
        pytest.param(b"\x09\x80" + bytes(4), id="a ping in parts"),
        pytest.param(b"\x81\x82" + bytes(4) + b"\xc3\x28", id="no UTF-8"),
        pytest.param(b"\xc1\x81" + bytes(4) + b"a", id="a bit that nobody gave a meaning"),
        pytest.param(
            b"\x01\x81" + bytes(4) + b"a" + b"\x81\x81" + bytes(4) + b"b", id="in the midst of another"
        ),
        pytest.param(b"\x80\x81" + bytes(4) + b"a", id="more of nothing"),
        pytest.param(b"\x83\x81" + bytes(4) + b"a", id="a kind that there is not"),
    ],
)
def test_what_breaks_the_protocol_is_left_to_wsproto(hot: ModuleType, frame: bytes) -> None:
    client = Connection(ConnectionType.CLIENT)
    before = bytes(client.send(TextMessage("before")))
    assert _read([before + frame + before], hot) == ["before", *_read([frame], None)]
    assert _read([frame], hot)[-1] is CloseConnection


@pytest.mark.parametrize("size", [1001, 4000, 70_000, (1 << 63) - 1])
@pytest.mark.parametrize("first", [0x81, 0x01])
def test_what_is_too_large_is_known_by_its_head(hot: ModuleType, size: int, first: int) -> None:
    before = bytes(Connection(ConnectionType.CLIENT).send(TextMessage("before")))
    short = size < 0x10000
    head = bytes((first, 0xFE if short else 0xFF)) + size.to_bytes(2 if short else 8, "big")
    reader = hot.FrameReader(1000)
    assert reader.read(before + head[:3]) == ["before"]
    assert reader.read(head[3:]) == [None]
    assert reader.left_out == min(size, 1 << 62) + 4
    assert reader.read(bytes(1000)) == []
    if size == 4000:
        assert reader.read(bytes(3004) + before) == ["before"]


def test_so_is_a_small_one_where_hardly_anything_may_come(hot: ModuleType) -> None:
    client, reader = Connection(ConnectionType.CLIENT), hot.FrameReader(10)
    sent = bytes(client.send(TextMessage("x" * 11)) + client.send(TextMessage("next")))
    assert reader.read(sent) == [None, "next"]
    assert reader.read(sent[:1]) == []
    assert reader.read(sent[1:2]) == [None]
    assert reader.read(sent[2:]) == ["next"]
