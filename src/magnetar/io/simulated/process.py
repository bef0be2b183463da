"""Simulated child processes, whose work is done on a simulated worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from magnetar.io.interfaces import Buffer, Disk, ProcessFailed, Service
from magnetar.io.serving import answer_to, understood
from magnetar.io.simulated.loop import SimulatedLoop
from magnetar.io.simulated.worker import SimulatedWorker
from magnetar.io.waiting import fail, settle


class SimulatedProcess:
    """A simulated child process. Requests and answers are bytes, as with real ones."""

    def __init__(
        self, loop: SimulatedLoop, name: str, service: Service, disk: Disk, worker: SimulatedWorker
    ) -> None:
        self.worker = worker
        self.name = name
        self.distort: Callable[[bytes], bytes] = bytes
        """Changes answers on their way."""
        self._loop = loop
        self._service = service
        self._disk = disk
        self._answer: Callable[[bytes], Sequence[Buffer]] | None = None
        self._asked: list[Any] = []
        self._ended = ""

    @property
    def ended(self) -> bool:
        return bool(self._ended)

    def ask(self, question: Sequence[Buffer]) -> Any:
        asked = self._loop.create_future()
        if self._ended:
            fail(asked, ProcessFailed(self._ended))
            return asked
        self._asked.append(asked)
        whole = b"".join(question)

        def answered(found: tuple[int, bytes] | None, error: BaseException | None) -> None:
            if asked in self._asked:
                self._asked.remove(asked)
            if error is not None or found is None:
                fail(asked, error or RuntimeError("no answer"))
                return
            try:
                settle(asked, self.distort(understood(self.name, *found)))
            except ProcessFailed as failed:
                fail(asked, failed)

        self.worker.submit(lambda: self._run(whole), answered)
        return asked

    def _run(self, question: bytes) -> tuple[int, bytes]:
        if self._answer is None:
            self._answer = self._service(self._disk)
        how, parts = answer_to(question, self._answer)
        return how, b"".join(parts)

    def die(self) -> None:
        """Ends the process in the middle of its work."""
        self._end(f"the {self.name} process was ended by SIGKILL")

    def close(self) -> None:
        self._end(f"the {self.name} process was ended")

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = reason
        self.worker.abandon()
        self.worker.close()
        asked, self._asked = self._asked, []
        for each in asked:
            fail(each, ProcessFailed(reason))
