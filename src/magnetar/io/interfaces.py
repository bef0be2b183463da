"""What the rest of Magnetar may know of the world outside the process.

Everything below ``broker`` is handed an :class:`Io` and touches clock, randomness, files, threads and
sockets through it alone, so that one seed can replay a whole run on the simulated ones.
Coroutines, futures and tasks come from :class:`Loop`; nobody asks for "the running loop".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from magnetar.io.slice_times import Slices
from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from magnetar.io.tls import ClientTls

T = TypeVar("T")


class Cancellable(Protocol):
    """A scheduled call that can be taken back; cancelling twice or after the call is harmless."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """The event loop; an ``asyncio`` loop fits as it is."""

    def time(self) -> float:
        """Seconds on the loop's own monotonic clock."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Cancellable: ...
    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Cancellable: ...
    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> Cancellable: ...
    def create_future(self) -> Any: ...
    def create_task(self, coroutine: Coroutine[Any, Any, T]) -> Any: ...

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Reports what nobody handled: ``message`` and ``exception``."""
        ...


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        ...

    def processor(self) -> float:
        """Seconds of the processor that the calling thread has used; costs a system call."""
        ...


class Randomness(Protocol):
    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1)."""
        ...

    def token(self, length: int) -> bytes:
        """``length`` random bytes."""
        ...


class File(Protocol):
    """An open file. Calls block; they are made on a :class:`Worker`, or at start and stop."""

    path: str

    def read(self, length: int, offset: int) -> bytes:
        """Up to ``length`` bytes at ``offset``; shorter only at the end of the file."""
        ...

    def read_cached(self, length: int, offset: int) -> bytes | None:
        """Like :meth:`read` if the bytes are at hand without waiting for the device, else ``None``."""
        ...

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of ``data`` at ``offset``; durable only after :meth:`sync`."""
        ...

    def sync(self) -> None:
        """Makes the file's data and size durable (fdatasync). An error is final: see DiskFailed."""
        ...

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of ``data`` at ``offset`` and makes it durable, as :meth:`write` and :meth:`sync` do.

        Bytes behind it, up to the end of the last block of 4096, may become zeros. An error is final.
        """
        ...

    def begin_durably(
        self,
        data: bytes | bytearray | memoryview,
        offset: int,
        done: Callable[[None, OSError | None], object],
    ) -> bool:
        """Begins what :meth:`write_durably` does, without waiting for it.

        The loop calls ``done(None, error)``; until then nobody else writes to the file. Only for the loop's
        thread.

        :return: whether it began; else nothing was written, and it is a worker's
        """
        ...

    def truncate(self, size: int) -> None: ...
    def allocate(self, size: int) -> None:
        """Makes the file at least ``size`` bytes long, with room on the device for all of them.

        :raises OSError: there is no such room; how long the file is then is not said
        """
        ...

    def size(self) -> int: ...
    def lock(self, *, exclusive: bool) -> bool:
        """Takes an advisory lock without waiting; False when somebody else is in the way."""
        ...

    def unlock(self) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    """A file system below one root; paths are relative to it, ``/`` separated. Calls block."""

    def open(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        write: bool = True,
        ahead: bool = True,
    ) -> File:
        """Opens a file; ``create`` makes it when missing, ``exclusive`` refuses one that exists.

        :param ahead: whether the system may read what follows before anybody asks for it: that can be a lot,
            and who writes to the same device meanwhile waits for it
        :raises FileNotFoundError: it is missing and ``create`` is false
        :raises FileExistsError: it exists and ``exclusive`` is true
        """
        ...

    def exists(self, path: str) -> bool: ...
    def names(self, directory: str) -> Sequence[str]:
        """The names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Makes a directory and its parents; one that exists is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replaces ``target``; durable only after :meth:`sync_directory`."""
        ...

    def unlink(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None:
        """Makes creations, renames and removals in a directory durable."""
        ...

    def free_bytes(self) -> int:
        """Bytes that may still be written."""
        ...

    def total_bytes(self) -> int:
        """All bytes there may be: those that may still be written, and all that is stored, by anybody."""
        ...


class Worker(Protocol):
    """A thread of its own that runs one job after another; answers arrive in the loop, in order."""

    def submit(
        self, job: Callable[[], T], done: Callable[[T | None, BaseException | None], object] | None = None
    ) -> None:
        """Runs ``job`` there, then calls ``done(result, error)`` in the loop."""
        ...

    def close(self) -> None:
        """Runs what was submitted, then ends the thread; blocks until it has ended."""
        ...


Buffer = bytes | bytearray | memoryview

Service = Callable[[Disk], Callable[[bytes], Sequence[Buffer]]]
"""What a process of its own is there for: a function of a module. It is called there once, with the disk;
what it returns is called with each question, and returns the parts of the answer."""


class ProcessFailed(Exception):
    """A process of its own has ended, or answers what nobody understands, or cannot do what it was asked."""


class Process(Protocol):
    """A process of its own that answers one question after another; it ends when this process does.

    It gets less of the processor than this one where both want it.
    """

    def ask(self, question: Sequence[Buffer]) -> Any:
        """Sends a question, given in parts that do not change any more; a future of the answer's bytes.

        The future may come to :class:`ProcessFailed`.
        """
        ...

    def close(self) -> None:
        """Ends it at once, whatever it does; what it was asked is not answered any more."""
        ...


class SqlError(Exception):
    """SQLite cannot do what it was asked, or its file is not sound; ``str()`` says why."""


class SqlFull(SqlError):
    """The device has no room for what was to be written; the file is as it was before the transaction."""


class SqlConnection(Protocol):
    """One SQLite connection with explicit transactions; used on one worker only.

    :raises SqlError: from every call
    """

    def start(self) -> None:
        """Looks at the file for the first time, and sets what every connection has: before all else."""
        ...

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def close(self) -> None: ...


class Transport(Protocol):
    """The sending side of a connection, as asyncio's transports have it."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...
    def writelines(self, list_of_data: Sequence[bytes | bytearray | memoryview]) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


class StreamProtocol(Protocol):
    """What a connection handler offers, as asyncio's Protocol has it."""

    def connection_made(self, transport: Any) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Listener(Protocol):
    host: str
    port: int

    def close(self) -> None:
        """Stops accepting; connections that exist go on."""
        ...


class ListeningNetwork(Protocol):
    """The side of servers."""

    async def listen(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> Listener:
        """Accepts TCP connections on ``host``; port 0 takes a free one.

        :raises OSError: the address cannot be used
        """
        ...


class ConnectingNetwork(Protocol):
    """The side of clients."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], StreamProtocol]
    ) -> tuple[Transport, StreamProtocol]:
        """A TCP connection, and what ``factory`` made to handle it: ``connection_made`` has been called.

        :raises OSError: nobody answers there; a name without an address included
        """
        ...


class Network(ListeningNetwork, ConnectingNetwork, Protocol):
    """Both."""


@dataclass(frozen=True)
class Io:
    """Everything outside, in one hand."""

    loop: Loop
    clock: Clock
    randomness: Randomness
    disk: Disk
    network: Network
    start_worker: Callable[[str], Worker]
    start_process: Callable[[str, Service], Process]
    """Starts one, by a name. It raises OSError when there can be none."""
    open_sqlite: Callable[[str], SqlConnection]
    stop_process: Callable[[str], None]
    """Ends the process with a message, as a failed write or fsync does; never returns in production."""
    slices: Slices = field(default_factory=Slices)
    """How long background work keeps the loop."""


async def _at_once(job: Callable[[], T]) -> T:
    return job()


@dataclass(frozen=True, slots=True)
class ClientIo:
    """What a client needs of the world outside: no files, no threads."""

    loop: Loop
    clock: Clock
    randomness: Randomness
    network: Network
    secured: Callable[[ClientTls], ConnectingNetwork] | None = None
    """Like :attr:`network`, with TLS; None: there is none."""
    apart: Callable[[Callable[[], Any]], Awaitable[Any]] = _at_once
    """Runs what may block, like giving a fresh token, where it keeps nobody waiting; answers what it does."""
