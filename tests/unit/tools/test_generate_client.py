"""The two interfaces of the client have the same options, written out, with types and meanings."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from tools import generate_client

import magnetar.client
from magnetar.client import aio, blocking

_METHODS = (
    "create_producer",
    "subscribe",
    "subscribe_to_topics",
    "subscribe_to_pattern",
    "create_reader",
    "create_table_view",
)


def _options(function: Callable[..., object]) -> dict[str, object]:
    found = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in found if each.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_methods_are_those_of_the_declarations() -> None:
    for name, text in generate_client.texts().items():
        assert (generate_client.SOURCE / name).read_text() == text, "run python tools/generate_client.py"


@pytest.mark.parametrize("name", _METHODS)
def test_both_interfaces_have_the_same_options(name: str) -> None:
    ours, theirs = _options(getattr(blocking.Client, name)), _options(getattr(aio.Client, name))
    assert list(ours) == list(theirs)
    different = {each for each in ours if ours[each] != theirs[each]}
    own = {"batching_enabled", "block_if_queue_full"}
    assert different == (own if name == "create_producer" else set())


def test_both_interfaces_start_with_the_same_options() -> None:
    assert _options(blocking.Client) == {
        name: default for name, default in _options(aio.Client).items() if name != "io"
    }


@pytest.mark.parametrize("kind", [blocking.Client, aio.Client])
@pytest.mark.parametrize("name", ["__init__", *_METHODS])
def test_each_argument_has_a_meaning_and_a_type(kind: type[object], name: str) -> None:
    function = getattr(kind, name)
    for each in inspect.signature(function).parameters.values():
        if each.name != "self":
            assert f":param {each.name}: " in function.__doc__
            assert each.annotation is not inspect.Parameter.empty


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="recieverQueueSize"):
        magnetar.client.Client("pulsar://127.0.0.1:1", recieverQueueSize=1)
    with magnetar.client.Client("pulsar://127.0.0.1:1") as client:
        for method, arguments in (
            (client.create_producer, ("t",)),
            (client.subscribe, ("t", "s")),
            (client.create_reader, ("t", magnetar.client.MessageId.earliest)),
        ):
            with pytest.raises(TypeError, match="receiver_size"):
                method(*arguments, receiver_size=1)


def test_a_client_of_a_given_loop_needs_the_loop() -> None:
    from magnetar.client.client import Client

    with pytest.raises(TypeError, match="the argument io is missing"):
        Client("pulsar://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="no running event loop"):
        aio.Client("pulsar://127.0.0.1:1")


def test_only_public_names_are_listed() -> None:
    assert dir(magnetar.client) == sorted(magnetar.client.__all__)
    assert dir(aio) == sorted(aio.__all__)
