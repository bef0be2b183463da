"""Background work: each task has an owner that ends it, and no failure of a task is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import finished

if TYPE_CHECKING:
    from magnetar.io.interfaces import Task

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
OnFailure = Callable[[str, BaseException], object]
"""Called with the name of a task that failed, and its error."""

_NO_TASKS: dict[Task[object], None] = {}
"""An empty dict that all scopes without tasks share, because a topic has several scopes; never changed."""

log = logging.getLogger(__name__)


def owner_goes_on(_work: str, _error: BaseException) -> None:
    """The ``on_failure`` of a scope whose owner must not end with a failed task, because the owner tries
    again, or other objects depend on the owner. The scope has reported the failure.
    """


class TaskScope:
    """The background tasks of one owner.

    The way in which a task is started determines what its failure means:

    - :meth:`start`: the failure is a defect. It is reported to the loop, which logs it (a simulation ends
      with such a report), and to the owner's handler, which ends the owner unless it is
      :func:`owner_goes_on`.
    - :meth:`start` with ``may_fail``: the owner continues. The failure is logged as a warning.
    - :meth:`answer`: other code awaits the task, and gets its result or its error.

    A cancelled task has not failed.
    """

    __slots__ = ("_closed", "_loop", "_on_failure", "_owner", "_tasks")

    def __init__(self, loop: Loop, owner: str, on_failure: OnFailure | None = None) -> None:
        """:param owner: the name of the owner in logs
        :param on_failure: called on the loop after the failure of a task that was started without
            ``may_fail``, but not after :meth:`close` was called. :func:`owner_goes_on`: a failure must not
            end the owner. None: every task is started with ``may_fail`` or by :meth:`answer`
        """
        self._loop = loop
        self._owner = owner
        self._on_failure = on_failure
        self._closed = False
        # In the order of their start, so that they are always cancelled in the same order.
        self._tasks = _NO_TASKS

    def __len__(self) -> int:
        """Returns the number of tasks that have not ended, or that ended within this turn of the loop."""
        return len(self._tasks)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def start(self, work: Coroutine[object, None, T], name: str, *, may_fail: bool = False) -> Task[T]:
        """Starts a task whose failure this scope reports.

        :param name: the name of the task's work in logs
        :param may_fail: whether the owner continues after a failure, which is only logged
        :returns: the task; it is cancelled at once if the scope is closed
        :raises ValueError: the scope has no handler of failures, and ``may_fail`` is False
        """
        if self._on_failure is None and not may_fail:
            work.close()
            raise ValueError(
                f"{self._owner}: nothing handles a failure of {name}: pass on_failure or may_fail"
            )
        task = self._begin(work)
        task.add_done_callback(partial(self._ended, name, may_fail))
        return task

    def answer(self, work: Coroutine[object, None, T]) -> Task[T]:
        """Starts a task for callers that await it with :func:`magnetar.io.waiting.outcome`, or otherwise
        retrieve its result or error.

        :returns: the task; it is cancelled at once if the scope is closed
        """
        task = self._begin(work)
        task.add_done_callback(self._forget)
        return task

    def cancel(self) -> None:
        """Cancels all tasks without waiting for them; the scope stays open for new ones."""
        for task in tuple(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Cancels all tasks, and returns when they have ended; later tasks are cancelled before they begin.

        A failure of a task that is being cancelled is reported like any other, but the owner's handler is not
        called. No task of the scope may await this.
        """
        self._closed = True
        self.cancel()
        await self.ended()

    async def ended(self) -> None:
        """Returns when all tasks have ended; no task of the scope may await this."""
        while self._tasks:
            await finished(self._loop, next(iter(self._tasks)))

    def _begin(self, work: Coroutine[object, None, T]) -> Task[T]:
        task = self._loop.create_task(work)
        if self._tasks is _NO_TASKS:
            self._tasks = {}
        self._tasks[task] = None
        if self._closed:
            task.cancel()
        return task

    def _forget(self, task: Task[T]) -> None:
        del self._tasks[task]
        if not self._tasks:
            self._tasks = _NO_TASKS

    def _ended(self, name: str, may_fail: bool, task: Task[T]) -> None:
        self._forget(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if may_fail:
            log.warning(
                "background work failed; its owner goes on",
                extra={"owner": self._owner, "work": name, "error": str(error) or type(error).__name__},
                exc_info=error,
            )
            return
        self._report(f"{self._owner}: {name} failed", error)
        if self._on_failure is not None and not self._closed:
            try:
                self._on_failure(name, error)
            except Exception as raised:  # noqa: BLE001 - reported
                self._report(f"{self._owner}: its handler of the failure of {name} failed", raised)

    def _report(self, message: str, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error})


class KeyedTasks(Generic[K, T]):
    """Tasks of a scope, at most one for each key at the same time: for work that several callers share, or
    that must not run twice at once."""

    __slots__ = ("_scope", "_tasks")

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope
        self._tasks: dict[K, Task[T]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: K) -> bool:
        return key in self._tasks

    def get(self, key: K) -> Task[T] | None:
        """Returns the task of a key; None: no task of the key is in progress."""
        return self._tasks.get(key)

    def items(self) -> list[tuple[K, Task[T]]]:
        """Returns the tasks in progress, in the order of their start."""
        return list(self._tasks.items())

    def answer(self, key: K, work: Callable[[], Coroutine[object, None, T]]) -> Task[T]:
        """Returns the task in progress for a key, or starts one; see :meth:`TaskScope.answer`.

        :param work: not called if a task is in progress
        """
        task = self._tasks.get(key)
        return task if task is not None else self._keep(key, self._scope.answer(work()))

    def start(
        self, key: K, work: Callable[[], Coroutine[object, None, T]], name: str, *, may_fail: bool = False
    ) -> Task[T]:
        """Returns the task in progress for a key, or starts one; see :meth:`TaskScope.start`.

        :param work: not called if a task is in progress
        """
        task = self._tasks.get(key)
        return (
            task if task is not None else self._keep(key, self._scope.start(work(), name, may_fail=may_fail))
        )

    def _keep(self, key: K, task: Task[T]) -> Task[T]:
        self._tasks[key] = task
        task.add_done_callback(lambda _done: self._tasks.pop(key, None))
        return task
