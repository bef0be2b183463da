"""The process of one test broker: serves clients, and carries out the test's requests to advance the clock
and to inject faults.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from magnetar.broker.connections.connection import Connection
from magnetar.broker.service import BrokerService
from magnetar.config.settings import ConfigurationError, Settings, SettingsContradict, load
from magnetar.errors import ServerErrorCode
from magnetar.io.advancing import AdvancingIo, QuietLoop
from magnetar.io.real import real_io
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import settle
from magnetar.ledger.interface import LedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import AuthenticationCounts, Authenticator, Claim, Principal
from magnetar.server.broker_process import Assembly
from magnetar.server.logs import configure_logging
from magnetar.server.loop_process import prepare_process
from magnetar.server.settings import load_entry_filters
from magnetar.server.standalone import StandaloneBroker
from magnetar.testing.injected import Faults, Hold, InjectedRefusal, Whom
from magnetar.testing.wire import FaultyNetwork

log = logging.getLogger(__name__)
_FAILURES = (OSError, LedgerError, MetadataError, SettingsContradict)
_MOST_LINE = 1 << 20


@dataclass(frozen=True)
class WantedBroker:
    """Describes the broker that a test wants."""

    folder: str
    """The directory of the broker's data."""
    config: str
    """The path of a configuration file in Pulsar's format."""
    ports: Mapping[str, str] = field(default_factory=dict)
    """Ports by the names of their settings."""
    ahead: float = 0.0
    """By how many seconds the broker's clock is ahead of the real clock."""
    log_level: str = "info"


class TestedBroker(StandaloneBroker):
    """A standalone broker whose running service tests can reach."""

    __test__ = False
    """Keeps pytest from collecting the class."""

    @property
    def service(self) -> BrokerService:
        """The service of the running broker.

        :raises RuntimeError: the broker has not started
        """
        if self._broker is None:
            raise RuntimeError("the broker has not started")
        return self._broker


def run(control: socket.socket, wanted: WantedBroker) -> int:
    """Runs the broker until the test stops it, or the process of the tests has ended; returns the exit
    code.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the test runner handles these signals: the broker stays until the test has ended.
        signal.signal(number, signal.SIG_IGN)
    configure_logging("text", wanted.log_level)
    prepare_process()
    loop = QuietLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(_Served(loop, control, wanted).run())
    finally:
        loop.close()


class _Served:
    def __init__(self, loop: QuietLoop, control: socket.socket, wanted: WantedBroker) -> None:
        self._loop = loop
        self._control = control
        self._wanted = wanted
        self._stopping = loop.create_future()
        self._asked_to_stop = False
        """Whether the test has requested to stop the broker; if not, a closed channel means that the process
        of the tests has ended.
        """
        self._faults = Faults(loop)
        real = real_io(loop, wanted.folder, in_threads=True)
        self._time = AdvancingIo(
            replace(real, network=FaultyNetwork(real.network, self._faults)), loop, wanted.ahead
        )
        self._faults.ahead_ms = lambda: round(self._time.loop.ahead * 1000)
        self._faults.awaited = self._time.under_way
        self._real = real
        self._broker: TestedBroker | None = None
        self._answers: dict[str, Callable[[Mapping[str, object]], Awaitable[Mapping[str, object]]]] = {
            "advance": self._advance,
            "now": self._now,
            "drop": self._drop,
            "refuse": self._refuse,
            "hold": self._hold,
            "held": self._held,
            "release": self._release,
            "cut": self._cut,
            "end": self._end,
            "stop": self._stop,
        }

    async def run(self) -> int:
        self._control.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=self._control, limit=_MOST_LINE)

        def tell(what: Mapping[str, object]) -> None:
            writer.write(json.dumps(what).encode() + b"\n")

        try:
            loaded = load(self._wanted.config, (), self._wanted.ports)
            _check_ports(loaded.settings)
            load_entry_filters(loaded.settings.entry_filter_names)
            assembly = Assembly(
                self._real,
                self._loop,
                loaded,
                TestedBroker,
                partial(settle, self._stopping),
                self._time.io,
                lambda asked: AheadAuthenticator(asked, self._faults.ahead_ms),
            )
            broker = await assembly.make()
            assert isinstance(broker, TestedBroker)
            self._broker = broker
            await broker.start()
        except (ConfigurationError, *_FAILURES) as error:
            problems = error.problems if isinstance(error, ConfigurationError) else (str(error),)
            tell({"refused": "\n".join(problems)})
            await writer.drain()
            writer.close()
            return 1
        assembly.serve_http(broker)
        ports = dict(assembly.ports(broker))
        tell({"host": assembly.host, "ports": ports, "warnings": loaded.warnings})
        listening = TaskScope(
            self._loop, "the kept broker", lambda _work, _error: settle(self._stopping)
        ).start(self._listen(reader, tell), "listening to the tests")
        await self._stopping
        code = await assembly.stop(broker)
        if self._asked_to_stop:
            tell({"code": code})
            await writer.drain()
        listening.cancel()
        writer.close()
        return code

    async def _listen(
        self, reader: asyncio.StreamReader, tell: Callable[[Mapping[str, object]], None]
    ) -> None:
        """Handles requests one after another; stops the broker when the channel closes."""
        while line := await reader.readline():
            asked = json.loads(line)
            try:
                answer = await self._answers[asked["do"]](asked)
            except InvalidName as error:
                answer = {"refused": str(error)}
            except Exception as error:
                log.exception("request of a test failed")
                answer = {"refused": f"{type(error).__name__}: {error}"}
            if self._asked_to_stop:
                # The request is answered after the stop.
                return
            tell(answer)
        # The test has ended, and the reader of the log with it.
        sys.stderr.flush()
        settle(self._stopping)

    # Requests

    async def _stop(self, _asked: Mapping[str, object]) -> Mapping[str, object]:
        self._asked_to_stop = True
        settle(self._stopping)
        return {}

    async def _advance(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        self._faults.advancing = True
        try:
            rested = await self._time.advance(asked["seconds"])
        finally:
            self._faults.advancing = False
        return {"rested": rested, "ahead": self._time.loop.ahead}

    async def _now(self, _asked: Mapping[str, object]) -> Mapping[str, object]:
        return {"ms": self._time.io.clock.wall_ms()}

    async def _drop(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        assert self._broker is not None
        topic = _topic(asked)
        every = topic is None and asked["producer"] is None and asked["consumer"] is None
        dropped = 0
        for each in list(self._broker.service.connections.all):
            assert isinstance(each, Connection)
            if every or _has(each, topic, asked["producer"], asked["consumer"]):
                each.abort()
                dropped += 1
        return {"dropped": dropped}

    async def _refuse(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        code = ServerErrorCode(asked["code"])
        self._faults.refusals[asked["fault"]] = InjectedRefusal(_publisher(asked), code, asked["reason"])
        return {}

    async def _hold(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        self._faults.holds[asked["fault"]] = Hold(_publisher(asked), asked["seconds"])
        return {}

    async def _held(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"held": self._faults.held(asked["fault"])}

    async def _release(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"released": self._faults.release(asked["fault"])}

    async def _cut(self, asked: Mapping[str, Any]) -> Mapping[str, object]:
        assert self._broker is not None
        self._faults.cuts.add(asked["fault"])
        for each in list(self._broker.service.connections.all):
            each.abort()
        return {}

    async def _end(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        self._faults.end(asked["fault"])
        return {}


def _has(connection: Connection, topic: TopicName | None, producer: str | None, consumer: str | None) -> bool:
    """Whether a client has a producer or a consumer with the given name or, if no name is given, any producer
    or consumer on the topic.
    """
    session = connection.session
    published = producer is not None or consumer is None
    if published and any(
        Whom(topic, producer).meets(p.topic.name, p.name) for p in session.producers.values()
    ):
        return True
    consumed = consumer is not None or producer is None
    met = Whom(topic, consumer)
    return consumed and any(met.meets(c.subscription.topic.name, c.name) for c in session.consumers.values())


def _check_ports(settings: Settings) -> None:
    """Checks that faults can be injected into all configured listeners.

    :raises SettingsContradict: faults cannot be injected into one of the listeners
    """
    if settings.broker_service_port_tls is not None or settings.web_service_port_tls is not None:
        raise SettingsContradict("brokers for tests have no TLS: remove its ports from the settings")


def _topic(asked: Mapping[str, Any]) -> TopicName | None:
    """Returns the topic that a request names; None: all topics.

    :raises InvalidName: the name is not a valid topic name
    """
    return None if asked["topic"] is None else TopicName.parse(asked["topic"])


def _publisher(asked: Mapping[str, Any]) -> Whom:
    return Whom(_topic(asked), asked["producer"])


class AheadAuthenticator:
    """Checks credentials by the real clock, and moves their expiry to the broker's clock. If the broker's
    clock is then advanced beyond the expiry, the broker requests new credentials.
    """

    def __init__(self, real: Authenticator, ahead_ms: Callable[[], int]) -> None:
        self._real = real
        self._ahead_ms = ahead_ms

    @property
    def asks(self) -> bool:
        return self._real.asks

    async def authenticate(self, claim: Claim) -> Principal:
        """Returns the principal of the credentials, with the expiry on the broker's clock; see
        :class:`magnetar.security.authentication.Authenticator`.
        """
        principal = await self._real.authenticate(claim)
        if principal.expires is None:
            return principal
        return replace(principal, expires=principal.expires + self._ahead_ms() / 1000)

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        self._real.listen(changed)

    @property
    def authentication_counts(self) -> Sequence[AuthenticationCounts]:
        return self._real.authentication_counts

    async def close(self) -> None:
        await self._real.close()
