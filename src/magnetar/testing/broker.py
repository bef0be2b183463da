"""A broker that runs for a single test."""

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
from types import TracebackType
from typing import Any, Self

from magnetar.admin_client import AdminClient
from magnetar.errors import ServerErrorCode
from magnetar.testing.channel import BrokerEnded, BrokerNotStarted, BrokerRefused, Channel, ChannelClosed
from magnetar.testing.kept import Keeper

DEFAULTS = {"bindAddress": "127.0.0.1", "magnetarSegmentSizeBytes": str(4 << 20)}
"""Defaults of test brokers that differ from the usual defaults, because tests run many brokers with little
data.
"""
_PORTS = {"pulsar": "brokerServicePort", "http": "webServicePort"}
_CHARSET = "iso-8859-1"
"""The encoding in which Java reads property files."""
_TAIL = 4000
"""Maximum number of characters of the broker's log in error texts."""
Ask = Callable[..., dict[str, Any]]


class Broker:
    """A broker that the fixtures ``broker`` and ``broker_factory`` start; after the test, it is stopped and
    its data is removed.

    The broker runs in a separate process. Methods can be called from any thread.
    """

    def __init__(
        self, keeper: Keeper, settings: Mapping[str, object] | None = None, config: str | Path | None = None
    ) -> None:
        """:param settings: settings by their names in Pulsar; these settings override the settings in
            ``config``

        :param config: a configuration file in Pulsar's format, as for ``magnetar standalone --config``
        :raises ValueError: ``settings`` contains ports (ports in ``config`` are ignored)
        :raises OSError: ``config`` cannot be read
        """
        own = settings or {}
        if chosen := sorted(own.keys() & set(_PORTS.values())):
            raise ValueError(f"{', '.join(chosen)} cannot be set: brokers for tests use free ports")
        given = "" if config is None else Path(config).read_text(_CHARSET)
        self._keeper = keeper
        self._folder = Path(tempfile.mkdtemp(prefix="magnetar-testing-"))
        # In a property file the last value counts.
        lines = "\n".join((_properties(DEFAULTS), given, _properties(own)))
        self._config = self._folder / "standalone.conf"
        self._config.write_text(lines, _CHARSET)
        self._ports = dict.fromkeys(_PORTS, 0)
        self._host = ""
        self._ahead = 0.0
        self._running: tuple[int, Channel] | None = None
        self._clients: list[object] = []
        self._numbers = count(1)
        self._lock = threading.RLock()
        """Held while the broker is started or stopped."""

    def __repr__(self) -> str:
        return f"<Broker {self.service_url or self._folder}>"

    # Start and stop

    def start(self) -> None:
        """Starts the broker again with the same data and ports, after :meth:`kill` or :meth:`stop`.

        :raises BrokerNotStarted: the broker did not start; the error text contains its output and log
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
        """Kills the broker with SIGKILL. After the next start, the broker has all messages for which it sent
        receipts, and possibly others.
        """
        self._end(lambda _channel: None, kill=True)

    def stop(self) -> None:
        """Shuts the broker down cleanly, as SIGTERM does.

        :raises BrokerEnded: the broker did not stop cleanly
        """
        code = self._end(lambda channel: channel.ask({"do": "stop"}), kill=False)
        if code != 0:
            raise BrokerEnded(f"the broker ended with {code}\n{self._log_tail()}")

    def restart(self) -> None:
        """Stops the broker if it runs, and starts it again with the same ports, data and clock."""
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
                # The exit code tells how it ended; a broker that does not answer is killed.
                kill = True
            channel.close()
            return self._keeper.end(pid, kill=kill)

    @property
    def is_running(self) -> bool:
        """Whether the broker was started, and was not killed or stopped since then."""
        return self._running is not None

    def close(self) -> None:
        """Stops the broker, closes the clients that :meth:`client` returned, and removes the data; the
        fixtures call this.

        :raises BrokerEnded: the broker ended by itself
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

    # Addresses and files

    @property
    def service_url(self) -> str:
        """The URL for clients: ``pulsar://127.0.0.1:…``; the same after a restart."""
        return f"pulsar://{self._host}:{self._ports['pulsar']}"

    @property
    def admin_url(self) -> str:
        """The URL of the HTTP interface: ``http://127.0.0.1:…``."""
        return f"http://{self._host}:{self._ports['http']}"

    @property
    def folder(self) -> Path:
        """The directory of the broker's data and log, which exists until the end of the test."""
        return self._folder

    @property
    def _log_file(self) -> Path:
        return self._folder / "broker.log"

    @property
    def log(self) -> str:
        """The complete log of the broker, from all starts."""
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def _log_tail(self) -> str:
        text = self.log[-_TAIL:]
        return f"Its log:\n{text}" if text else "The log is empty."

    # Clients and namespaces

    @cached_property
    def admin(self) -> AdminClient:
        """Returns a client of the HTTP interface; other clients can use :attr:`admin_url`."""
        return AdminClient(self.admin_url)

    def client(self, **options: object) -> object:
        """Returns a ``pulsar.Client`` of the official library for this broker; it is closed after the test.

        :param options: options of ``pulsar.Client``, except the address
        :raises ImportError: ``pulsar-client`` is not installed
        """
        import pulsar

        client = pulsar.Client(self.service_url, **options)
        self._clients.append(client)
        return client

    def create_namespace(self, name: str | None = None, policies: Mapping[str, object] | None = None) -> str:
        """Creates a namespace, and its tenant if it is missing; returns the name.

        :param name: ``tenant/namespace``; None: a unique name
        :param policies: policies by their names in the HTTP interface, such as ``{"message_ttl_in_seconds":
            3600}``
        :raises AdminError: the namespace cannot be created
        """
        name = name or f"tests/namespace-{next(self._numbers)}"
        tenant = name.partition("/")[0]
        if tenant not in self.admin.tenants():
            self.admin.create_tenant(tenant)
        self.admin.create_namespace(name, dict(policies or {}))
        return name

    # Its clock

    def now_ms(self) -> int:
        """Returns the time of the broker's clock, in milliseconds since 1970."""
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
        """Advances the broker's clock, and waits until everything that is due by the new time is done, which
        takes some hundredths of a second. Clients keep the real clock, and stay connected; publish and
        delivery times in their messages are advanced before the broker gets them.

        :param by: the time by which to advance; the other arguments are added to it, and the sum must be at
            least 0
        :raises BrokerRefused: clients kept the broker busy, so it is unknown whether all due actions are done
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
        """Breaks connections as a network failure would, and returns their number; clients can reconnect at
        once.

        :param topic: break only connections with a producer or a consumer on this topic
        :param producer: break only connections with a producer of this name
        :param consumer: break only connections with a consumer of this name
        """
        return int(self._ask("drop", topic=topic, producer=producer, consumer=consumer)["dropped"])

    def unreachable(self) -> AbstractContextManager[Fault]:
        """Returns a context manager: while its block runs, the broker's connections to clients are broken;
        new connections are broken as soon as they open. HTTP still works.
        """
        return Fault(self._ask, next(self._numbers), "cut")

    def delayed_receipts(
        self, by: timedelta | float | None = None, *, topic: str | None = None, producer: str | None = None
    ) -> AbstractContextManager[HeldReceipts]:
        """Returns a context manager: while its block runs, receipts are held back. Messages are stored and
        delivered, but producers do not learn this.

        At the end of the block, receipts that are still held back are sent, except on connections that were
        lost.

        :param by: delay of each receipt, in seconds of the real clock; None: until ``release()`` or the end
            of the block
        :param topic: delay only receipts of producers on this topic
        :param producer: delay only receipts of producers with this name
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
        """Returns a context manager: while its block runs, messages and new producers are refused.

        Existing producers get the error when they send a message.

        :param code: the error code of Pulsar's protocol. After a refused message, the C++ and Python clients
            usually open the producer again; this attempt is refused with the same error
        :param reason: the reason that is sent to the client
        :param topic: refuse only messages and producers on this topic
        :param producer: refuse only messages and producers with this producer name
        """
        what = {"code": int(code), "reason": reason, "topic": topic, "producer": producer}
        return Fault(self._ask, next(self._numbers), "refuse", **what)

    def _ask(self, question: str, **what: object) -> dict[str, Any]:
        """Sends a request to the broker's process, and returns the answer.

        :raises BrokerRefused: the broker is not running, or refuses the request
        :raises BrokerEnded: the broker has ended by itself
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

    # The test may have closed it, and without a broker the client cannot close in an orderly way.
    with suppress(pulsar.PulsarException):
        client.close()


def _properties(settings: Mapping[str, object]) -> str:
    """Returns settings in the format of configuration files, one per line."""
    return "".join(f"{key}={_property(value)}\n" for key, value in settings.items())


def _property(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    plain = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    # Other characters than ASCII are escaped as UTF-16 code units.
    units = plain.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


class Fault:
    """A fault that is active while its ``with`` block runs."""

    def __init__(self, ask: Ask, number: int, kind: str, **what: object) -> None:
        """:param number: a number that no other fault of this broker has, also across restarts"""
        self._ask = ask
        self._number = number
        self._kind = kind
        self._what = what
        self._on = False

    def __enter__(self) -> Self:
        """Activates the fault.

        :raises BrokerRefused: the arguments are not valid
        """
        self._ask(self._kind, fault=self._number, **self._what)
        self._on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Ends the fault before its ``with`` block ends. Does nothing if the fault has already ended, or the
        broker is no longer running.
        """
        if self._on:
            self._on = False
            # Without a running broker there is nothing to end.
            with suppress(BrokerRefused):
                self._ask("end", fault=self._number)


class HeldReceipts(Fault):
    """A fault that holds back receipts."""

    @property
    def count(self) -> int:
        """Returns the number of held receipts."""
        return int(self._ask("held", fault=self._number)["held"])

    def release(self) -> int:
        """Sends the receipts that are held back, and returns their number; later receipts are held back,
        too.
        """
        return int(self._ask("release", fault=self._number)["released"])
