"""Real servers in processes of their own, with default and with miniature limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from server import VARIANTS, Server

_topics = count()


@pytest.fixture(scope="module", params=list(VARIANTS))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server of each variant, one for all tests of a module."""
    running = Server(tmp_path_factory.mktemp(f"server-{request.param}"), VARIANTS[request.param])
    try:
        running.start()
        yield running
    finally:
        running.close()


StartServer = Callable[..., Server]


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts servers with settings of their own; they end with the module."""
    running: list[Server] = []

    def start(**settings: int | str) -> Server:
        server = Server(tmp_path_factory.mktemp("server"), settings)
        running.append(server)
        server.start()
        return server

    yield start
    for server in running:
        server.close()


@pytest.fixture
def topic() -> str:
    """A topic nobody else uses."""
    return f"persistent://public/default/t{next(_topics)}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "interop: needs a client whose build takes minutes (make interop)")
    config.addinivalue_line("markers", "alone: measures, or needs much memory: nothing else runs beside it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked ``interop`` unless MAGNETAR_INTEROP is 1."""
    if os.environ.get("MAGNETAR_INTEROP") == "1":
        return
    slow = [item for item in items if item.get_closest_marker("interop") is not None]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
