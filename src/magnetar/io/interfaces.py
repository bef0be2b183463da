"""The interfaces to the world outside the process.

Everything below ``broker`` gets an :class:`Io` and uses clock, randomness, files, threads and sockets only
through it. Tests pass a simulated ``Io``, on which a seed replays all events. Coroutines, futures and tasks
come from :class:`Loop`; no code asks for "the running loop".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from asyncio import Future as Future
    from asyncio import Task as Task

    from magnetar.io.tls import ClientTls

else:

    def __getattr__(name: str) -> object:
        """Imports asyncio only when a module uses its types, so that commands that never wait do not load
        it."""
        if name not in ("Future", "Task"):
            raise AttributeError(name)
        import asyncio

        return getattr(asyncio, name)


T = TypeVar("T")
LARGE_PIECE = 8 << 10
"""Copying this many bytes takes as long as passing on one more piece: about half a microsecond."""


class Slices:
    """The longest slice of each kind of background work, in the current and the previous measurement period.

    A slice is a piece of work that the loop runs without interruption.
    """

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._processor = 0.0
        self._processor_before = 0.0
        self.waiting: deque[Future[None]] = deque()
        """Futures of work whose next slice is due, in the order of their turns."""
        self.giving = False
        """Whether a call that completes the first future in :attr:`waiting` is scheduled on the loop."""

    def note(self, kind: str, seconds: float, processor: float = 0.0) -> None:
        """Records a slice that blocked the loop for ``seconds``.

        :param processor: the thread's CPU time in seconds; in the rest of the slice, the thread waited for a
            processor
        """
        if seconds >= self._running.get(kind, 0.0):
            self._running[kind] = seconds
        if processor > self._processor:
            self._processor = processor

    def longest(self) -> dict[str, float]:
        """Returns the longest slice in seconds, by kind."""
        kinds = self._running.keys() | self._before.keys()
        return {
            kind: max(self._running.get(kind, 0.0), self._before.get(kind, 0.0)) for kind in sorted(kinds)
        }

    def longest_processor(self) -> float:
        """Returns the longest CPU time of any slice, in seconds."""
        return max(self._processor, self._processor_before)

    def new_window(self) -> None:
        self._before, self._running = self._running, {}
        self._processor_before, self._processor = self._processor, 0.0


class Cancellable(Protocol):
    """A scheduled call that can be cancelled; cancelling twice or after the call has no effect."""

    def cancel(self) -> object: ...


class Loop(Protocol):
    """The event loop, with the interface of an ``asyncio`` loop."""

    def time(self) -> float:
        """Returns the time in seconds of the loop's own monotonic clock."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: object) -> Cancellable: ...
    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Cancellable: ...
    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> Cancellable: ...
    def create_future(self) -> Future[Any]: ...
    def create_task(self, coroutine: Coroutine[object, None, T]) -> Task[T]: ...

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Reports an unhandled error; ``context`` has ``message`` and ``exception``."""
        ...


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Returns the milliseconds since 1970-01-01 UTC; the clock may jump."""
        ...

    def monotonic(self) -> float:
        """Returns the time in seconds, from a clock that never goes back."""
        ...

    def processor(self) -> float:
        """Returns the CPU time of the calling thread in seconds; costs a system call."""
        ...


class Randomness(Protocol):
    def below(self, bound: int) -> int:
        """Returns a whole number in [0, bound)."""
        ...

    def fraction(self) -> float:
        """Returns a number in [0, 1)."""
        ...

    def token(self, length: int) -> bytes:
        """Returns ``length`` random bytes."""
        ...


class File(Protocol):
    """An open file. Calls block, and are made on a :class:`Worker`, or at start and stop."""

    path: str

    def read(self, length: int, offset: int) -> bytes:
        """Returns up to ``length`` bytes at ``offset``; fewer only at the end of the file."""
        ...

    def read_cached(self, length: int, offset: int) -> bytes | None:
        """Returns bytes like :meth:`read` if they are available without waiting for the device; otherwise
        None."""
        ...

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of ``data`` at ``offset``; durable only after :meth:`sync`."""
        ...

    def sync(self) -> None:
        """Makes the file's data and size durable (fdatasync). After an error the process must stop: see
        ``Io.stop_process``."""
        ...

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of ``data`` at ``offset`` and makes it durable, like :meth:`write` and :meth:`sync`.

        Bytes after the data, up to the end of the last block of 4096, may become zeros. After an error the
        process must stop.
        """
        ...

    def begin_durably(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        done: Callable[[None, OSError | None], object],
    ) -> bool:
        """Starts a durable write like :meth:`write_durably`, without waiting for its end.

        At its end, the loop calls ``done(None, error)``, where ``error`` is None if the data is durable;
        until then, no other write to the file may begin. Must be called on the loop's thread.

        :return: whether the write was started; otherwise nothing was written, and the caller must write on a
            worker
        """
        ...

    def truncate(self, size: int) -> None: ...
    def allocate(self, size: int) -> None:
        """Makes the file at least ``size`` bytes long, with room on the device for all of them.

        :raises OSError: there is no room; the length of the file is then undefined
        """
        ...

    def size(self) -> int: ...
    def lock(self, *, exclusive: bool) -> bool:
        """Takes an advisory lock without waiting; returns False if another holder prevents it.

        :param exclusive: whether no other holder is permitted; otherwise, others may hold shared locks, too
        """
        ...

    def unlock(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A file system below one root; paths are relative to it, with ``/`` as separator. Calls block."""

    @property
    def root(self) -> str:
        """The absolute path of the root in the file system; empty: the root has no such path."""
        ...

    def open(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        write: bool = True,
        ahead: bool = True,
    ) -> File:
        """Opens a file.

        :param create: whether to create the file if it is missing
        :param exclusive: whether to refuse a file that exists
        :param ahead: whether the operating system may read ahead, which can be a lot and delay writers to
            the same device
        :raises FileNotFoundError: the file is missing and ``create`` is false
        :raises FileExistsError: the file exists and ``exclusive`` is true
        """
        ...

    def exists(self, path: str) -> bool: ...
    def names(self, directory: str) -> Sequence[str]:
        """Returns the names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Creates a directory and its parents, unless they exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Renames a file, and replaces ``target`` if it exists; durable only after :meth:`sync_directory`."""
        ...

    def unlink(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in a directory durable."""
        ...

    def free_bytes(self) -> int:
        """Returns the number of bytes that can still be written."""
        ...

    def total_bytes(self) -> int:
        """Returns the size of the device for this process: the number of bytes that can still be written,
        plus the number of stored bytes.
        """
        ...


class Worker(Protocol):
    """A thread that runs one job after another; results arrive on the loop, in order."""

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], object] | None = None
    ) -> None:
        """Runs ``job`` on the thread, then calls ``done(result, error)`` on the loop."""
        ...

    def close(self) -> None:
        """Runs the submitted jobs, then ends the thread; blocks until it has ended."""
        ...


Buffer = bytes | bytearray | memoryview
Service = Callable[[Disk], Callable[[bytes], Sequence[Buffer]]]
"""The work of a child process: a function of a module, called in the child once, with the disk. The function
that it returns is called with each request, and returns the parts of the answer."""


class ProcessFailed(Exception):
    """A child process has ended, sent an invalid answer, or could not carry out a request."""


class Process(Protocol):
    """A child process that answers one request after another, and ends when this process does.

    If both processes need CPU time, the child gets less.
    """

    def ask(self, question: Sequence[Buffer]) -> Future[bytes]:
        """Sends a request, in parts that must not change any more; returns a future of the answer's bytes.

        The future may fail with :class:`ProcessFailed`.
        """
        ...

    def close(self) -> None:
        """Kills the process; pending requests are not answered."""
        ...


class SqlError(Exception):
    """SQLite cannot carry out a request, or its file is damaged; the message gives the reason."""


class SqlFull(SqlError):
    """The device has no room for a write; the file is unchanged since the transaction began."""


class SqlConnection(Protocol):
    """One SQLite connection with explicit transactions; used on one worker only.

    :raises SqlError: raised by every method
    """

    def start(self) -> None:
        """Accesses the file for the first time, and sets the pragmas of the connection; must be called
        first."""
        ...

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...
    def close(self) -> None: ...


class Transport(Protocol):
    """The sending side of a connection, like asyncio's transports."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...
    def writelines(self, list_of_data: Sequence[bytes | bytearray | memoryview]) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_protocol(self, protocol: Any) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_extra_info(self, name: str, default: object = None) -> Any: ...


class StreamProtocol(Protocol):
    """A connection handler, like asyncio's Protocol."""

    def connection_made(self, transport: Transport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Listener(Protocol):
    host: str
    port: int

    def close(self) -> None:
        """Stops accepting connections; existing ones stay open."""
        ...


class ListeningNetwork(Protocol):
    """The network for servers."""

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> Listener:
        """Accepts TCP connections on ``host``; port 0 chooses a free port.

        :raises OSError: the address cannot be used
        """
        ...


class ConnectingNetwork(Protocol):
    """The network for clients."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """Opens a TCP connection; returns its transport, and the handler from ``factory``, whose
        ``connection_made`` was already called.

        :raises OSError: the address does not answer, or the name has no address
        """
        ...


class Network(ListeningNetwork, ConnectingNetwork, Protocol):
    """The network for servers and clients."""


@dataclass(frozen=True)
class Io:
    """All interfaces of one process to the outside."""

    loop: Loop
    clock: Clock
    randomness: Randomness
    disk: Disk
    network: Network
    start_worker: Callable[[str], Worker]
    start_process: Callable[[str, Service], Process]
    """Starts a child process with a name; raises OSError if the process cannot be started."""
    open_sqlite: Callable[[str], SqlConnection]
    stop_process: Callable[[str], None]
    """Ends the process with a message, after a failed write or fsync; never returns in production."""
    slices: Slices = field(default_factory=Slices)
    """The lengths of slices of background work, which block the loop."""


def _ignored(_call: Callable[[], object]) -> None:
    """Registers nothing; used in processes that are never forked, such as simulated processes."""


async def _at_once(job: Callable[[], T]) -> T:
    return job()


@dataclass(frozen=True, slots=True)
class ClientIo:
    """The input and output of a client: no files, no threads."""

    loop: Loop
    clock: Clock
    randomness: Randomness
    network: Network
    secured: Callable[[ClientTls], ConnectingNetwork] | None = None
    """Returns a network that uses TLS with the given settings; None: TLS is not available."""
    apart: Callable[[Callable[[], Any]], Awaitable[Any]] = _at_once
    """Runs a function that may block, such as a function that returns a new token, without delaying other
    work; returns the function's result.
    """
    in_children: Callable[[Callable[[], object]], object] = _ignored
    """Registers a method, which is then called once in each process that is forked from this process."""


def joined(pieces: Sequence[Buffer], size: int) -> Sequence[Buffer]:
    """Returns the pieces, joined into a single one if copying the bytes costs less than passing on each
    piece.

    :param size: the number of bytes in all pieces together
    """
    if len(pieces) == 1 or size >= LARGE_PIECE * len(pieces):
        return pieces
    return (b"".join(pieces),)
