"""``magnetar compact-topic`` where a broker runs on the data: which one is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from magnetar.cli import compact_topic
from magnetar.cli.magnetar import main
from magnetar.ledger.embedded.identity import StoreLocked
from magnetar.server import compact_topic as stored


@pytest.mark.parametrize(
    ("address", "url"),
    [("::1", "http://[::1]:8081"), ("127.0.0.1", "http://127.0.0.1:8081"), ("::", "http://localhost:8081")],
)
def test_the_broker_of_the_file_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, url: str
) -> None:
    asked: list[str] = []

    def locked(*_: Any) -> NoReturn:
        raise StoreLocked("a broker runs")

    def ask(_parsed: Any, known_url: str) -> int:
        asked.append(known_url)
        return 0

    monkeypatch.setattr(stored, "compact_stored", locked)
    monkeypatch.setattr(compact_topic, "_ask_broker", ask)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"bindAddress={address}\nwebServicePort=8081\n")
    assert main(["compact-topic", "-t", "t", "-c", str(conf), "--data-dir", str(tmp_path)]) == 0
    assert asked == [url]
