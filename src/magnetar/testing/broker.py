"""A broker that a test has for itself."""

from __future__ import annotations

import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from magnetar.admin_client import AdminClient
from magnetar.errors import ServerErrorCode
from magnetar.testing.channel import Channel, ChannelClosed
from magnetar.testing.errors import BrokerEnded, BrokerNotStarted, BrokerRefused
from magnetar.testing.faults import Fault, HeldReceipts
from magnetar.testing.kept import Keeper

DEFAULTS = {"bindAddress": "127.0.0.1", "magnetarSegmentSizeBytes": str(4 << 20)}
"""Settings of brokers for tests that differ from those of others: they are many, and hold little."""
_PORTS = {"pulsar": "brokerServicePort", "http": "webServicePort"}
_CHARSET = "iso-8859-1"
"""Java reads property files so, whatever they are."""
_TAIL = 4000
"""Characters of a log that are shown."""


class Broker:
    """Made by the fixtures ``broker`` and ``broker_factory``; gone, with its data, when its test has ended.

    It runs in a process of its own. Every method may be called from any thread.
    """

    def __init__(
        self, keeper: Keeper, settings: Mapping[str, Any] | None = None, config: str | Path | None = None
    ) -> None:
        """:param settings: by Pulsar's names; beside those of ``config``, and before them

        :param config: a file of Pulsar's settings, as ``magnetar standalone --config`` takes it
        :raises ValueError: ports are among ``settings``: those of ``config`` do not count
        :raises OSError: ``config`` cannot be read
        """
        own = settings or {}
        if chosen := sorted(own.keys() & set(_PORTS.values())):
            raise ValueError(f"{', '.join(chosen)} cannot be set: brokers for tests use free ports")
        given = "" if config is None else Path(config).read_text(_CHARSET)
        self._keeper = keeper
        self._folder = Path(tempfile.mkdtemp(prefix="magnetar-testing-"))
        # In a property file the last word counts.
        lines = "\n".join((_properties(DEFAULTS), given, _properties(own)))
        self._config = self._folder / "standalone.conf"
        self._config.write_text(lines, _CHARSET)
        self._ports = dict.fromkeys(_PORTS, 0)
        self._host = ""
        self._ahead = 0.0
        self._running: tuple[int, Channel] | None = None
        self._clients: list[Any] = []
        self._numbers = count(1)
        self._lock = threading.RLock()
        """Around what changes whether it runs."""

    def __repr__(self) -> str:
        return f"<Broker {self.service_url or self._folder}>"

    # Its life

    def start(self) -> None:
        """Starts it, on the data and at the ports that it had before; it is the fixtures that start it first.

        :raises BrokerNotStarted: it does not start; the text has what it said, and its log
        """
        with self._lock:
            if self._running is not None:
                raise BrokerRefused("the broker is already running")
            wanted = {
                "folder": str(self._folder / "data"),
                "config": str(self._config),
                "ports": {_PORTS[scheme]: str(port) for scheme, port in self._ports.items()},
                "ahead": self._ahead,
            }
            pid, channel = self._keeper.fork(wanted, str(self._log_file))
            told: dict[str, Any]
            try:
                heard = channel.hear()
                told = {"refused": "its process ended"} if heard is None else heard[0]
            except ChannelClosed as closed:
                told = {"refused": str(closed)}
            if "refused" in told:
                channel.close()
                self._keeper.end(pid, kill=True)
                said = told["refused"]
                raise BrokerNotStarted(f"the broker did not start: {said}\n{self._log_tail()}".rstrip())
            self._host = told["host"]
            self._ports = {scheme: told["ports"][scheme] for scheme in _PORTS}
            self._running = pid, channel
        for warning in told["warnings"]:
            warnings.warn(warning, stacklevel=2)

    def kill(self) -> None:
        """Ends it at once, with SIGKILL: what has a receipt is there after the next start, and no more."""
        self._end(lambda _channel: None, kill=True)

    def stop(self) -> None:
        """Ends it in order, as SIGTERM does.

        :raises BrokerEnded: it did not end as it should have
        """
        code = self._end(lambda channel: channel.ask({"do": "stop"}), kill=False)
        if code != 0:
            raise BrokerEnded(f"the broker ended with {code}\n{self._log_tail()}")

    def restart(self) -> None:
        """Starts it again, after :meth:`stop` where it runs; same ports, same data, same clock."""
        with self._lock:
            if self._running is not None:
                self.stop()
            self.start()

    def _end(self, ask: Callable[[Channel], object], *, kill: bool) -> int:
        with self._lock:
            if self._running is None:
                raise BrokerRefused("the broker is not running")
            pid, channel = self._running
            self._running = None
            try:
                ask(channel)
            except ChannelClosed:
                # Its exit code says how it ended; one that does not answer is not waited for any longer.
                kill = True
            channel.close()
            return self._keeper.end(pid, kill=kill)

    @property
    def is_running(self) -> bool:
        """Whether it was started and neither killed nor stopped since."""
        return self._running is not None

    def close(self) -> None:
        """Ends it, closes clients of :meth:`client` and removes its data; the fixtures do so.

        :raises BrokerEnded: it had ended before, and nobody had ended it
        """
        try:
            for client in self._clients:
                _close(client)
            if self._running is not None:
                self._check_alive()
        finally:
            self._clients.clear()
            if self._running is not None:
                self.kill()
            shutil.rmtree(self._folder)

    def _check_alive(self) -> None:
        self.now_ms()

    # Where it is

    @property
    def service_url(self) -> str:
        """For clients: ``pulsar://127.0.0.1:…``; the same after a restart."""
        return f"pulsar://{self._host}:{self._ports['pulsar']}"

    @property
    def admin_url(self) -> str:
        """Of its HTTP interface: ``http://127.0.0.1:…``."""
        return f"http://{self._host}:{self._ports['http']}"

    @property
    def folder(self) -> Path:
        """Where its data and its log are, until its test has ended."""
        return self._folder

    @property
    def _log_file(self) -> Path:
        return self._folder / "broker.log"

    @property
    def log(self) -> str:
        """All that it has logged, in all its lives."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def _log_tail(self) -> str:
        text = self.log[-_TAIL:]
        return f"Its log:\n{text}" if text else "The log is empty."

    # What tests need

    @cached_property
    def admin(self) -> AdminClient:
        """Asks its HTTP interface; where more is wanted, any client does at :attr:`admin_url`."""
        return AdminClient(self.admin_url)

    def client(self, **options: Any) -> Any:
        """A ``pulsar.Client`` of the official library, connected with it and closed when the test has ended.

        :param options: as that class takes them, besides the address
        :raises ImportError: ``pulsar-client`` is not installed
        """
        import pulsar

        client = pulsar.Client(self.service_url, **options)
        self._clients.append(client)
        return client

    def create_namespace(self, name: str | None = None, policies: Mapping[str, Any] | None = None) -> str:
        """Makes a namespace, and its tenant where there is none; answers its name.

        :param name: ``tenant/namespace``; None: one that nobody has
        :param policies: as the HTTP interface names them: ``{"message_ttl_in_seconds": 3600}``
        :raises AdminError: it cannot be made
        """
        name = name or f"tests/namespace-{next(self._numbers)}"
        tenant = name.partition("/")[0]
        if tenant not in self.admin.tenants():
            self.admin.create_tenant(tenant)
        self.admin.create_namespace(name, dict(policies or {}))
        return name

    # Its clock

    def now_ms(self) -> int:
        """What its clock says, in milliseconds since 1970."""
        return int(self._ask("now")["ms"])

    def advance(
        self,
        by: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> None:
        """Puts its clock ahead; what would have happened by then has happened when this returns.

        That takes some hundredths of a second. Clients go on by the real clock: times of what they publish
        are put ahead as well, and their connections stay.

        :param by: all parts are added up; not below 0
        :raises BrokerRefused: it never came to rest: clients kept it busy all the time
        """
        whole = (by or timedelta()) + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if whole < timedelta():
            raise ValueError(f"time cannot go back: {whole}")
        with self._lock:
            answer = self._ask("advance", seconds=whole.total_seconds())
            self._ahead = answer["ahead"]
        if not answer["rested"]:
            raise BrokerRefused(
                f"the clock was advanced by {whole}, but clients kept the broker so busy that it is "
                "unknown whether everything due has happened"
            )

    # Faults

    def drop_connections(
        self, *, topic: str | None = None, producer: str | None = None, consumer: str | None = None
    ) -> int:
        """Breaks connections, as a network does; clients may come back at once. Answers how many.

        :param topic: only of clients with a producer or a consumer there
        :param producer: only of the client with a producer of that name
        :param consumer: the same of a consumer
        """
        return int(self._ask("drop", topic=topic, producer=producer, consumer=consumer)["dropped"])

    def unreachable(self) -> AbstractContextManager[Fault]:
        """Connections of clients are broken, and others right after they were made; HTTP goes on."""
        return Fault(self._ask, next(self._numbers), "cut")

    def delayed_receipts(
        self, by: timedelta | float | None = None, *, topic: str | None = None, producer: str | None = None
    ) -> AbstractContextManager[HeldReceipts]:
        """Receipts come late: what was published is stored and delivered, its producer does not hear of it.

        At the end of the ``with`` those that are still held are sent; those of a connection that broke
        meanwhile are lost.

        :param by: how late, in seconds of the real clock; None: until they are released
        :param topic: only of producers there
        :param producer: only of the one of that name
        """
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        return HeldReceipts(
            self._ask, next(self._numbers), "hold", seconds=seconds, topic=topic, producer=producer
        )

    def refused_publishes(
        self,
        code: ServerErrorCode = ServerErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION,
        reason: str = "refused by a test",
        *,
        topic: str | None = None,
        producer: str | None = None,
    ) -> AbstractContextManager[Fault]:
        """Messages are refused, and producers, too; those that are there meet it with their next message.

        :param code: what Pulsar's protocol calls it. Clients of C++ and Python take most of these, said of a
            message, for the end of a connection: they come back, and raise what their producer is told then
        :param reason: told to the client
        :param topic: only there
        :param producer: only of the one of that name
        """
        what = {"code": int(code), "reason": reason, "topic": topic, "producer": producer}
        return Fault(self._ask, next(self._numbers), "refuse", **what)

    def _ask(self, question: str, **what: Any) -> dict[str, Any]:
        """:raises BrokerRefused: it does not run, or cannot do that

        :raises BrokerEnded: it has ended by itself
        """
        with self._lock:
            if self._running is None:
                raise BrokerRefused("the broker is not running")
            pid, channel = self._running
            try:
                return channel.ask({"do": question, **what})
            except ChannelClosed as closed:
                self._running = None
                channel.close()
                code = self._keeper.end(pid, kill=True)
                said = f"the broker ended with {code} although no test stopped it: {closed}"
                raise BrokerEnded(f"{said}\n{self._log_tail()}") from None


def _close(client: Any) -> None:
    import pulsar

    # A test may have closed it itself, and one whose broker is gone has nobody to take leave of.
    with suppress(pulsar.PulsarException):
        client.close()


def _properties(settings: Mapping[str, Any]) -> str:
    """Settings as files have them, a line each."""
    return "".join(f"{key}={_property(value)}\n" for key, value in settings.items())


def _property(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    plain = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    # What is no ASCII is written by its code: two for what lies beyond the first plane.
    units = plain.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
