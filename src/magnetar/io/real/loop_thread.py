"""Event loops for entry points and for callers that block; uvloop if it is installed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar
from weakref import WeakMethod, WeakSet

from magnetar.io.interfaces import ClientIo
from magnetar.io.real import real_client_io
from magnetar.io.waiting import tell

T = TypeVar("T")


_in_children: list[WeakMethod[Callable[[], object]]] = []
_loops_of_parent: list[object] = []
"""Loops that a forked child keeps, because ending them would change the epoll instances that the child shares
with its parent."""


def in_children(call: Callable[[], object]) -> None:
    """Registers a method that is called in each child process forked later from this process.

    The registration ends when the method's object is garbage-collected.
    """
    _in_children[:] = [each for each in _in_children if each() is not None]
    _in_children.append(WeakMethod(call))


def _after_fork() -> None:
    calls = [each() for each in _in_children]
    _in_children.clear()
    for call in calls:
        if call is not None:
            call()


os.register_at_fork(after_in_child=_after_fork)


_ENDED = "the loop that gives back slots was closed"


class Together(Generic[T]):
    """Items that a loop handles together: all items added before the loop handles them cost one wake-up."""

    def __init__(
        self, wake: Callable[[Callable[[], object]], object], handle: Callable[[deque[T]], object]
    ) -> None:
        """:param wake: schedules a call on the loop, from any thread
        :param handle: called on the loop with the queue of items, from which it removes them; other threads
            may add items meanwhile
        """
        self._wake = wake
        self._handle = handle
        self._items: deque[T] = deque()
        self._planned = False

    def add(self, item: T) -> None:
        """Adds an item; called in any thread.

        :raises Exception: as raised by ``wake``, if the loop is closed
        """
        self._items.append(item)
        if not self._planned:
            self._planned = True
            try:
                self._wake(self._drain)
            except BaseException:
                # Otherwise the next item would be kept for a turn that never comes.
                self._planned = False
                raise

    def forget(self) -> None:
        """Forgets the scheduled call, which will never be made; the next item schedules a new call."""
        self._planned = False

    def _drain(self) -> None:
        # Before taking the items: a later one plans another turn, or is taken in this one.
        self._planned = False
        self._handle(self._items)


class Slots:
    """A fixed number of slots that threads take and the loop gives back.

    Taking a free slot costs two calls of a deque, which are atomic, and no lock. Waiting threads are woken at
    most once per turn of the loop.
    """

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self._free = deque([None] * count)
        self._loop = loop
        self._planned = False
        self._waiting = 0
        self._ended = False
        self._changed = threading.Condition()

    def take(self) -> None:
        """Blocks until a slot is free.

        :raises RuntimeError: no slot is free, and the loop has ended, so none will be given back
        """
        try:
            self._free.pop()
        except IndexError:
            self._wait()

    def _wait(self) -> None:
        with self._changed:
            # Before looking again: a slot that is given back later is announced.
            self._waiting += 1
            try:
                while not self._ended:
                    try:
                        self._free.pop()
                        return
                    except IndexError:
                        self._changed.wait()
                raise RuntimeError(_ENDED)
            finally:
                self._waiting -= 1

    def end(self) -> None:
        """Ends the wait of all threads; called when no slot will be given back."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def give(self) -> None:
        """Gives a slot back; called on the loop."""
        self._free.append(None)
        if self._waiting and not self._planned:
            self._planned = True
            self._loop.call_soon(self._wake)

    def put_back(self) -> None:
        """Gives back a slot that was not used; called in any thread."""
        self._free.append(None)
        self._wake()

    def _wake(self) -> None:
        self._planned = False
        with self._changed:
            self._changed.notify(len(self._free))


class ByteSlots:
    """A limit of bytes: threads take parts of it, and the loop gives them back. A part is granted as soon as
    any byte is free, so the last part may exceed the limit."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._taken = 0
        self._ended = False
        self._changed = threading.Condition()

    def take(self, part: int) -> None:
        """Blocks until some of the bytes are free, then takes ``part`` bytes.

        :raises RuntimeError: no bytes will be given back
        """
        with self._changed:
            self._changed.wait_for(lambda: self._taken < self._amount or self._ended)
            if self._ended:
                raise RuntimeError(_ENDED)
            self._taken += part

    def end(self) -> None:
        """Ends the wait of all threads; called when no bytes will be given back."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def give(self, part: int) -> None:
        with self._changed:
            self._taken -= part
            if self._taken < self._amount:
                self._changed.notify()


class CallThread:
    """A daemon thread that makes calls to the user's program; unlike a worker, it can be abandoned while a
    call blocks. It starts with the first call."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"magnetar-{name}", daemon=True)

    def start(self, call: Callable[[], object]) -> None:
        """Makes a call after earlier ones, without waiting for its end; called on the loop.

        :param call: must not raise
        """
        if self._thread.ident is None:
            self._thread.start()
        self._calls.put(call)

    async def call(self, loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        """Makes a call in a copy of the current context, and waits, on ``loop``, for its end.

        :raises Exception: as raised by the call
        """
        done: asyncio.Future[None] = loop.create_future()
        self.start(partial(_reported, loop, partial(copy_context().run, call), done))
        await done

    def end(self) -> None:
        """Ends the thread after its pending calls, without waiting for them."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call


def _reported(
    loop: asyncio.AbstractEventLoop, call: Callable[[], object], done: asyncio.Future[None]
) -> None:
    """Makes a call, and passes its outcome to a future of the loop."""
    failure: BaseException | None = None
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - raised by `CallThread.call`
        failure = error
    with suppress(RuntimeError):
        # The loop may be closed meanwhile, by the call itself or by another thread.
        loop.call_soon_threadsafe(_told, done, failure)


def _told(done: asyncio.Future[None], failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


_IN_CALLBACK = "a blocking call in a callback of the client; hand the work to another thread"
_LOOK_SECONDS = 1.0
"""Interval at which a waiting thread wakes up to handle signals, in seconds.

A signal just before the wait begins, or to another thread, does not wake it.
"""


class Outcome(Generic[T]):
    """The result of a call in a loop, for the thread that waits for it; see :meth:`LoopThread.outcome`."""

    __slots__ = ("_error", "_lock", "_result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None

    def told(self, result: T | None, error: BaseException | None) -> None:
        """Ends the wait with a result or an error. Must be called exactly once, on the event loop."""
        self._result, self._error = result, error
        self._lock.release()

    def came(self, seconds: float) -> bool:
        """Waits up to ``seconds``; returns whether the call has ended."""
        return self._lock.acquire(timeout=seconds)

    def result(self) -> T | None:
        """Returns the result of a call that has ended.

        :raises BaseException: the error of the call
        """
        if self._error is not None:
            raise self._error
        return self._result


class LoopThread:
    """A thread that runs an event loop until :meth:`close`; a daemon thread, so that the process can end even
    if :meth:`close` is never called."""

    def __init__(self, name: str) -> None:
        self.loop = new_loop()
        self.io: ClientIo = real_client_io(self.loop)
        self._posted: Together[tuple[Callable[..., object], tuple[object, ...]]] = Together(
            self._wake, self._call_posted
        )
        self._slots: WeakSet[Slots | ByteSlots] = WeakSet()
        self._closing = False
        self.is_forked = False
        """Whether this process was forked from the process whose thread runs the loop."""
        in_children(self._forked)
        self._thread = threading.Thread(target=self._run, name=f"magnetar-{name}", daemon=True)
        self._thread.start()

    def _forked(self) -> None:
        self.is_forked = True
        self._posted.forget()
        _loops_of_parent.append(self.loop)

    def check_process(self) -> None:
        """Checks that the loop runs in this process.

        :raises RuntimeError: the loop runs in the parent process
        """
        if self.is_forked:
            raise RuntimeError(
                "the loop was made before this process was forked; make a new client in the child process"
            )

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            # For example, a task that waits for a call of the program in which the program closed the client.
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
        # Calls that were posted meanwhile are lost; the next one must fail.
        self._posted.forget()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Runs ``work`` on the loop and returns its result; blocks. Ctrl-C cancels the work.

        :raises RuntimeError: called on the loop itself, where it would wait forever; or the thread is closed,
            possibly by another thread during the call; or the loop runs in the parent process
        """
        if self.is_forked:
            work.close()
            self.check_process()
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(_IN_CALLBACK)
        if self.loop.is_closed():
            work.close()
            raise RuntimeError("the event loop is closed")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        lives = True
        try:
            while lives:
                try:
                    return future.result(_LOOK_SECONDS)
                except TimeoutError:
                    lives = self._thread.is_alive()
                    if future.done():
                        return future.result()
        except CancelledError:
            if self._closing:
                raise RuntimeError("the loop was closed") from None
            raise
        except BaseException:
            future.cancel()
            raise
        raise RuntimeError("the loop was closed")

    def outcome(self, outcome: Outcome[T], call: Callable[..., object], *arguments: object) -> T | None:
        """Calls ``call`` like :meth:`post`, and returns the result; costs less than :meth:`run`.

        Ctrl-C ends the wait, but not the call.

        :param outcome: the object on which the call must set the result
        :raises RuntimeError: see :meth:`run`
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(_IN_CALLBACK)
        if self.loop.is_closed():
            raise RuntimeError("the event loop is closed")
        self.post(call, *arguments)
        while not outcome.came(_LOOK_SECONDS):
            if not self._thread.is_alive() and not outcome.came(0):
                raise RuntimeError("the loop was closed")
        return outcome.result()

    def post(self, call: Callable[..., object], *arguments: object) -> None:
        """Calls ``call`` on the loop, in the order of posting; many calls posted together cost one wake-up.

        :raises RuntimeError: the loop is closed, or runs in the parent process
        """
        self._posted.add((call, arguments))

    def _wake(self, call: Callable[[], object]) -> None:
        self.check_process()
        self.loop.call_soon_threadsafe(call)

    def _call_posted(self, posted: deque[tuple[Callable[..., object], tuple[object, ...]]]) -> None:
        while posted:
            call, arguments = posted.popleft()
            tell(self.loop, call, *arguments)

    def new_slots(self, count: int) -> Slots:
        """Returns slots that this loop gives back; when the loop ends, threads that wait for a slot get an
        error.
        """
        slots = Slots(count, self.loop)
        self._slots.add(slots)
        return slots

    def new_byte_slots(self, amount: int) -> ByteSlots:
        """Returns a limit of ``amount`` bytes that this loop gives back; see :meth:`new_slots`."""
        slots = ByteSlots(amount)
        self._slots.add(slots)
        return slots

    def close(self) -> None:
        """Ends the loop and the thread, after earlier posts have been called."""
        self._closing = True
        if self.is_forked:
            return
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join()
        # Nobody else ends the wait of threads whose messages came too late for the loop.
        for slots in self._slots:
            slots.end()


def new_loop() -> asyncio.AbstractEventLoop:
    """Makes an event loop that is not running."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_until_done(work: Coroutine[object, object, T]) -> T:
    """Runs ``work`` on a new loop; returns the result after all remaining tasks are cancelled and have
    ended."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)
