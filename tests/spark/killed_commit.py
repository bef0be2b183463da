"""Publishes a staged batch and kills itself: ``killed_commit.py OPTIONS FOLDER STEP BATCH FILES``."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from magnetar.spark.options import QueryOptions
from magnetar.spark.writing.committing import commit
from magnetar.spark.writing.cutting import CutEntry
from magnetar.spark.writing.staging import Attempt, Manifest, StagedFile, Staging

_MIDDLE = 1100
"""So many entries are sent in the middle, of which at most 1,000 wait for receipts."""
Ends = dict[str, tuple[int, int]]


class Steps(Staging):
    """Kills its process before, at or behind a step."""

    def __init__(self, folder: Path, step: str) -> None:
        super().__init__(folder)
        self._step = step

    def _at(self, step: str) -> None:
        if step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)

    def decide(self, manifest: Manifest) -> tuple[Manifest, bool]:
        self._at("before the manifest")
        found = super().decide(manifest)
        self._at("behind the manifest")
        return found

    def begin_attempt(self, batch_id: int, attempt: Attempt) -> bool:
        begun = super().begin_attempt(batch_id, attempt)
        self._at("behind the attempt")
        return begun

    def entries(self, manifest: Manifest) -> Iterator[CutEntry]:
        for index, entry in enumerate(super().entries(manifest)):
            if index == _MIDDLE:
                self._at("in the middle")
            yield entry

    def decide_commit(self, batch_id: int, attempt: Attempt, ends: Ends) -> None:
        self._at("before the commit")
        super().decide_commit(batch_id, attempt, ends)
        self._at("behind the record of the commit")

    def publish_is_done(self, manifest: Manifest) -> None:
        self._at("behind the commit")
        super().publish_is_done(manifest)


def main() -> None:
    given, folder, step, batch_id, files = sys.argv[1:]
    staged = [
        StagedFile(**{**each, "topics": tuple(each["topics"]), "schemas": tuple(each["schemas"])})
        for each in json.loads(files)
    ]
    commit(QueryOptions.parse(json.loads(given)), Steps(Path(folder), step), int(batch_id), staged)


if __name__ == "__main__":
    main()
