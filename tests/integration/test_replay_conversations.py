"""The recorded conversations within this broker's scope: the same commands come back, and fields."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conversation import Replay, conversations
from server import MINIATURE, Server

CASES = conversations()


@pytest.fixture(scope="module", params=["default", "miniature"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings: dict[str, int | str] = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
    if request.param == "miniature":
        # Consumed messages are asked for again: nothing may be trimmed. The longest conversation has eight.
        settings |= MINIATURE | {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}
        settings["managedLedgerMaxEntriesPerLedger"] = 8
    server = Server(tmp_path_factory.mktemp("conversations"), settings)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("case", list(CASES))
def test_replay(broker: Server, case: str) -> None:
    topic = {
        "partitioned topic": "v20",
        "terminated topic": "v23",
        "broker-side close: unload while connected": "v25",
    }
    act = {}
    base = f"/admin/v2/persistent/public/default/{topic.get(case)}"

    def post(method: str, path: str, body: str | None = None) -> None:
        status, answer = broker.ask(method, path, body)
        assert status < 300, (status, answer)

    if case == "partitioned topic":
        post("PUT", f"/admin/v2/persistent/public/default/{partitioned_topic(case)}/partitions", "3")
    elif case == "terminated topic":
        act["CLOSE_PRODUCER"] = lambda: post("POST", f"{base}/terminate")
    elif case.startswith("broker-side close"):
        act["CLOSE_PRODUCER"] = lambda: post("PUT", f"{base}/unload")
    Replay(broker.port, act).run(CASES[case])


def partitioned_topic(case: str) -> str:
    for frame in CASES[case]:
        if frame["command"] == "PARTITIONED_METADATA":
            return str(frame["fields"]["topic"]).rpartition("/")[2]
    raise AssertionError(case)
