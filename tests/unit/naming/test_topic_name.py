"""Topic names against answers recorded from Apache Pulsar, and the rules that hold for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.naming import (
    MAX_NAME_BYTES,
    Domain,
    InvalidName,
    NamespaceName,
    TopicName,
    check_subscription_name,
    decode_path_piece,
    encode_path_piece,
)

_LINES = (Path(__file__).parent / "data" / "topic_names.tsv").read_text().splitlines()[1:]
_KNOWN = [line.split("\t") for line in _LINES if "\t" in line]
_REFUSED = [line for line in _LINES if "\t" not in line]

_PLACES = (".", "..")
_PART = st.from_regex(r"[-=:.\w]+", fullmatch=True).filter(
    lambda text: text.isascii() and text not in _PLACES
)
_LOCAL = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: "/" not in text and text not in _PLACES and not text.isspace() and "-partition-" not in text
)


@pytest.mark.parametrize(
    ("name", "full", "path", "index", "base", "third", "schema", "cluster"),
    _KNOWN,
    ids=[k[0] for k in _KNOWN],
)
def test_known_names(
    name: str, full: str, path: str, index: str, base: str, third: str, schema: str, cluster: str
) -> None:
    topic = TopicName.parse(name)
    assert str(topic) == full
    assert topic.path == path
    assert topic.partition_index == int(index)
    assert str(topic.base) == base
    assert str(topic.partition(3)) == third
    assert topic.schema_path == schema
    assert (topic.cluster or "null") == cluster
    assert TopicName.from_path(path) == topic


@pytest.mark.parametrize("name", _REFUSED, ids=repr)
def test_refused_names(name: str) -> None:
    with pytest.raises(InvalidName):
        TopicName.parse(name)


def test_the_recorded_answers_are_there() -> None:
    assert len(_KNOWN) == 21
    assert len(_REFUSED) == 15


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kafka://a/b/c", "'kafka' is neither persistent nor non-persistent"),
        ("persistent://a b/c/d", "invalid tenant name 'a b'"),
        ("persistent://a/b c/d/e", "invalid cluster name 'b c'"),
        ("persistent://a/b$/c", r"invalid namespace name 'b\$'"),
        ("persistent://a/b/", "the local name is empty"),
        ("a/b", "must be topic or tenant/namespace/topic"),
    ],
)
def test_the_reason_names_the_part(name: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        TopicName.parse(name)


@given(st.sampled_from(Domain), _PART, st.none() | _PART, _PART, _LOCAL)
def test_full_names_read_back(
    domain: Domain, tenant: str, cluster: str | None, namespace: str, local: str
) -> None:
    topic = TopicName(domain, NamespaceName(tenant, cluster, namespace), local)
    assert TopicName.parse(str(topic)) == topic
    assert TopicName.from_path(topic.path) == topic
    assert topic.legacy is (cluster is not None)


@given(_LOCAL, st.integers(0, 2**31 - 1))
def test_partitions_know_their_topic(local: str, index: int) -> None:
    topic = TopicName(Domain.PERSISTENT, NamespaceName("a", None, "b"), local)
    partition = topic.partition(index)
    assert partition.partition_index == index
    assert partition.base == topic
    assert partition.partition(index) == partition
    assert topic.partition_index == -1
    assert topic.base is topic


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_path_pieces_read_back(text: str) -> None:
    piece = encode_path_piece(text)
    assert decode_path_piece(piece) == text
    assert "/" not in piece


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        topic = TopicName.parse(text)
    except InvalidName:
        return
    assert TopicName.parse(str(topic)) == topic


def test_reserved_names() -> None:
    assert TopicName.parse("a/b/__change_events").reserved
    assert not TopicName.parse("a/b/change_events").reserved


@pytest.mark.parametrize("path", ["a/b/c", "a/b/persistent", "a/b/other/t", "a/b/c/d/persistent/t"])
def test_paths_of_another_shape(path: str) -> None:
    with pytest.raises(InvalidName):
        TopicName.from_path(path)


def test_namespaces() -> None:
    assert str(NamespaceName.parse("a/b")) == "a/b"
    legacy = NamespaceName.parse("a/global/b")
    assert (legacy.tenant, legacy.cluster, legacy.local) == ("a", "global", "b")
    assert legacy.is_global
    assert not NamespaceName.parse("a/c/b").is_global
    for wrong in ("", "a", "a/", "a/b/c/d", "a/b c"):
        with pytest.raises(InvalidName):
            NamespaceName.parse(wrong)


def _named(local: str) -> str:
    return f"persistent://public/default/{local}"


_ROOM = MAX_NAME_BYTES - len(_named(""))


@pytest.mark.parametrize(
    ("fits", "too_long"),
    [
        (_named("x" * _ROOM), _named("x" * (_ROOM + 1))),
        (_named("é" * (_ROOM // 2)), _named("é" * (_ROOM // 2 + 1))),
        ("x" * _ROOM, "x" * (_ROOM + 1)),
        ("t" * 500 + "/" + "n" * 400 + "/t", "t" * 500 + "/" + "n" * 500 + "/t"),
        (f"persistent://a/{'c' * 400}/n/{'l' * 400}", f"persistent://a/{'c' * 1000}/n/l"),
        (_named("x" * _ROOM + "-partition-2147483647"), _named("x" * (_ROOM + 1) + "-partition-7")),
        (_named("x" * _ROOM), "x" * 5_000_000),
        (_named("x" * _ROOM), "persistent://" + "x" * 5_000_000),
        (_named("x" * _ROOM), "/" * 5_000_000),
    ],
)
def test_names_that_are_too_long(fits: str, too_long: str) -> None:
    topic = TopicName.parse(fits)
    assert TopicName.parse(str(topic)) == topic
    with pytest.raises(InvalidName, match="at most 1000 are allowed") as refused:
        TopicName.parse(too_long)
    assert len(str(refused.value)) < 300


def test_partitions_of_any_topic_have_names() -> None:
    topic = TopicName.parse(_named("x" * _ROOM))
    assert topic.partition(2**31 - 1).base == topic


@pytest.mark.parametrize("place", _PLACES)
def test_places_in_a_path_are_no_names(place: str) -> None:
    for name in (f"{place}/n/t", f"t/{place}/x", f"t/n/{place}", f"persistent://t/{place}/n/x", place):
        with pytest.raises(InvalidName, match="it has a special meaning in paths"):
            TopicName.parse(name)
    for name in (f"{place}/n", f"t/{place}", f"t/{place}/n"):
        with pytest.raises(InvalidName, match="it has a special meaning in paths"):
            NamespaceName.parse(name)
    with pytest.raises(InvalidName, match="it has a special meaning in paths"):
        check_subscription_name(place)
    assert TopicName.parse(f"t/n/{place}.x").local == f"{place}.x"


@pytest.mark.parametrize("name", ["", "x" * 1001, "é" * 501, "x" * 5_000_000])
def test_names_that_no_subscription_has(name: str) -> None:
    with pytest.raises(InvalidName, match="invalid subscription name") as refused:
        check_subscription_name(name)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", ["x" * 1000, "é" * 500, "...", "a/b", " "])
def test_names_that_subscriptions_may_have(name: str) -> None:
    check_subscription_name(name)


@pytest.mark.parametrize("name", ["x" * 1001, "x" * 5_000_000, "t/" + "x" * 999])
def test_namespaces_that_are_too_long(name: str) -> None:
    with pytest.raises(InvalidName, match="at most 1000 are allowed") as refused:
        NamespaceName.parse(name)
    assert len(str(refused.value)) < 300
