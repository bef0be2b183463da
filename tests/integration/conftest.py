"""Real servers in processes of their own, with default and with miniature limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from server import VARIANTS, Server

_topics = count()

# They depend on ledgers, cursors and the cache most.
MODULES_IN_MINIATURE = {
    "test_client_core",
    "test_failover",
    "test_key_shared",
    "test_protocol_acknowledgement",
    "test_redelivery_counts",
    "test_semantics_deduplication",
    "test_statistics",
    "test_subscription_marks",
}


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


@pytest.fixture(scope="module")
def plain_broker(start_server: StartServer) -> Server:
    """A server with the usual settings, beside which tests start other processes."""
    return start_server()


@pytest.fixture
def topic() -> str:
    """A topic nobody else uses."""
    return f"persistent://public/default/t{next(_topics)}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "interop: needs a client whose build takes minutes (make interop)")
    config.addinivalue_line("markers", "alone: measures, or needs much memory: nothing else runs beside it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked ``interop`` unless MAGNETAR_INTEROP is 1.

    Tests of both variants run with miniature limits in ``MODULES_IN_MINIATURE``; in other modules they do so
    if MAGNETAR_MINIATURE is 1 (``make soak``).
    """
    left_out: set[pytest.Item] = set()
    if os.environ.get("MAGNETAR_INTEROP") != "1":
        left_out.update(item for item in items if item.get_closest_marker("interop") is not None)
    if os.environ.get("MAGNETAR_MINIATURE") != "1":
        ids = {item.nodeid for item in items}
        left_out.update(
            item
            for item in items
            if _is_miniature(item)
            and item.path.stem not in MODULES_IN_MINIATURE
            and item.nodeid.replace("miniature", "default") in ids
        )
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _is_miniature(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and (
        hasattr(item, "callspec") and "miniature" in item.callspec.params.values()
    )
