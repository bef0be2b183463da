"""What is shared among processes, and numbers that are none."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.admin_client import Conflict, NotFound
from magnetar.cli.perf.command import _create_partitioned
from magnetar.cli.perf.options import parser
from magnetar.cli.perf.workload import Share, plan
from magnetar.client.exceptions import InvalidConfiguration


def plans(line: str, processes: int) -> list[Any]:
    parsed = parser().parse_args(line.split())
    return [
        plan(parsed, Share(index, processes), rate=0, messages=parsed.num_messages)
        for index in range(processes)
    ]


@pytest.mark.parametrize(("messages", "shares"), [(3, [1, 1, 1]), (8, [3, 3, 2]), (0, [0, 0, 0])])
def test_each_process_has_its_share_of_the_messages(messages: int, shares: list[int]) -> None:
    assert [each.messages for each in plans(f"produce t -m {messages}", 3)] == shares


@pytest.mark.parametrize("messages", [1, 2])
def test_fewer_messages_than_processes_are_refused(messages: int) -> None:
    """What is left for the last ones, none, is what says that there is no end."""
    with pytest.raises(InvalidConfiguration, match="3 processes require at least 3 messages"):
        plans(f"produce t -m {messages}", 3)


@pytest.mark.parametrize(("behind", "each"), [(2, 1), (9, 3), (0, 0)])
def test_a_bound_of_what_is_behind_stays_one(behind: int, each: int) -> None:
    found = plans(f"run t -m 9 --max-behind {behind}", 3)
    assert [one.max_behind for one in found] == [each] * 3


def test_a_time_below_0_is_no_end() -> None:
    assert plans("produce t -time -1", 1)[0].seconds == 0


@pytest.mark.parametrize("flag", ["-r", "-time", "-i", "--warmup-time", "-b", "--send-timeout", "-d"])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e300"])
def test_what_is_no_number_is_refused(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["produce", "t", f"{flag}={text}"])
    assert "must be between -1e+12 and 1e+12" in capsys.readouterr().err


class Admin:
    """Another process makes the topic between the look and the creation."""

    def __init__(self, found: int) -> None:
        self.found = found
        self.asked = 0

    def partitions(self, _topic: str) -> int:
        self.asked += 1
        if self.asked == 1:
            raise NotFound("not yet")
        return self.found

    def create_partitioned_topic(self, _topic: str, _partitions: int) -> None:
        raise Conflict("This topic already exists")


@pytest.mark.parametrize(("found", "error"), [(4, None), (5, InvalidConfiguration), (0, Conflict)])
def test_a_topic_that_another_process_made_is_taken(
    found: int, error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.cli.perf.command.new_admin", lambda _parsed: Admin(found))
    parsed = parser().parse_args(["produce", "t", "-np", "4"])
    if error is None:
        assert _create_partitioned(parsed, ["t"]) == ["t"]
        return
    with pytest.raises(error):
        _create_partitioned(parsed, ["t"])
