"""Both forms of the hot codec, and the recorded conversations."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from codec_forms import CODECS


@pytest.fixture(params=["interpreted", "compiled"], scope="session")
def codec(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The names of ``hot_codec``, once interpreted and once compiled."""
    chosen = CODECS[request.param]
    if chosen is None:
        pytest.skip("the hot modules are not compiled: python -m magnetar.hot build")
    return chosen


@pytest.fixture(scope="session")
def conversations() -> list[dict[str, Any]]:
    """Frames between the official Python client and Apache Pulsar; 64-bit numbers are strings."""
    text = (Path(__file__).parent / "data" / "conversations.json").read_text()
    frames: list[dict[str, Any]] = json.loads(text)["frames"]
    # Frames of chunked messages were recorded without their end.
    return [frame for frame in frames if not frame["hex"].endswith("...")]
