"""The broker under test: Magnetar, or another one where MAGNETAR_PEER_URL names it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from server import VARIANTS, Server

from magnetar.admin_client import AdminClient

PEER = os.environ.get("MAGNETAR_PEER_URL", "")


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    url: str
    admin: AdminClient


@pytest.fixture(scope="module", params=["peer"] if PEER else list(VARIANTS))
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test, one for all tests of a module."""
    if PEER:
        yield Broker(PEER, AdminClient(os.environ["MAGNETAR_PEER_ADMIN_URL"]))
        return
    running = Server(tmp_path_factory.mktemp("server"), VARIANTS[request.param])
    try:
        running.start()
        yield Broker(running.url, AdminClient(running.http_url))
    finally:
        running.close()


@pytest.fixture
def topic() -> str:
    """A topic nobody else uses."""
    return f"persistent://public/default/t{os.urandom(8).hex()}"
