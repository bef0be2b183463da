"""``magnetar explain`` as text: for a terminal with colours, for everything else without."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.cli.explain import _coloured, duration, text

FOUND: dict[str, Any] = {
    "topic": "persistent://public/default/t",
    "servedBy": "pulsar://localhost:6650",
    "producers": {
        "reason": "nothing",
        "sentence": "Nothing prevents publishing: 1 producer is connected.",
        "figures": {},
        "refused": [{"reason": "name_taken", "times": 2, "first": 1, "last": 2, "message": "taken"}],
    },
    "subscriptions": {
        "s": {
            "reason": "no_consumer",
            "sentence": "No consumer is connected; 3 messages wait.",
            "since": 1,
            "seconds": 4.25,
            "figures": {"type": None, "consumers": 0, "backlog": 3, "named": [1]},
            "try": "this",
            "look": "that",
        }
    },
}

TEXT = """persistent://public/default/t, served by pulsar://localhost:6650

producers: nothing
  Nothing prevents publishing: 1 producer is connected.
  refused before: name_taken, 2 times: taken

subscription s: no_consumer for 4.2 s
  No consumer is connected; 3 messages wait.
  consumers 0, backlog 3
  try: this
  look: that
"""


def test_words_figures_and_commands() -> None:
    assert text(FOUND) == TEXT


def test_colours_change_nothing_else() -> None:
    found = text(FOUND, _coloured)
    assert "subscription s: \033[33mno_consumer\033[0m for 4.2 s" in found
    assert "producers: \033[32mnothing\033[0m\n" in found
    for code in ("1", "32", "33", "36", "0"):
        found = found.replace(f"\033[{code}m", "")
    assert found == TEXT


def test_partitions_come_one_below_the_other() -> None:
    found = {"topic": "persistent://public/default/t", "partitions": {"a": FOUND, "b": FOUND}}
    assert text(found) == f"persistent://public/default/t: 2 partitions\n\n{TEXT}\n{TEXT}"


def test_names_of_clients_command_no_terminal() -> None:
    side = {**FOUND["subscriptions"]["s"], "sentence": "\033[2Jc1 holds all.", "figures": {"first": "a\rb"}}
    found = text({**FOUND, "subscriptions": {"s\033]0;owned\007": side}})
    assert found.replace("\n", "").isprintable()
    assert "subscription s\\x1b]0;owned\\x07: no_consumer" in found
    assert "\\x1b[2Jc1 holds all." in found


def test_a_topic_without_subscriptions() -> None:
    assert text({**FOUND, "subscriptions": {}}).endswith(
        "\n\nThe topic has no subscriptions, so no messages are kept for consumers.\n"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (200_000, "2 days")],
)
def test_how_long(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_cluster_whose_messages_are_dropped_has_a_section_of_its_own() -> None:
    dropped = {
        "reason": "duplicates",
        "sentence": "The last 2 entries of cluster east were dropped as duplicates.",
        "figures": {"duplicates": 2, "lastPosition": "7:2"},
        "try": "forget",
    }
    expected = """
replication from east: duplicates
  The last 2 entries of cluster east were dropped as duplicates.
  duplicates 2, lastPosition 7:2
  try: forget
"""
    assert text({**FOUND, "replicatedFrom": {"east": dropped}}) == TEXT + expected
