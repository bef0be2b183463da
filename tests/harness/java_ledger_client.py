"""BookKeeper's own client as a process, told what to do line by line."""

from __future__ import annotations

import asyncio
from pathlib import Path

from java_servers import java

_SOURCE = Path(__file__).parents[1] / "cluster" / "servers" / "LedgerClient.java"


class JavaClientFailed(Exception):
    """What it said."""


class JavaLedgerClient:
    """Answers come in the order of the questions."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, folder: Path, metadata_store: str, version: int = 2) -> JavaLedgerClient:
        """:param version: of the protocol that it speaks with bookies: 2 or 3"""
        command = [*java(folder), str(_SOURCE), f"metadata-store:{metadata_store}", str(version)]
        with (folder / "java-client").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors
            )
        assert process.stdout is not None
        said = await process.stdout.readline()
        assert said == b"ready\n", (said, (folder / "java-client").read_text()[-3000:])
        return cls(process)

    async def do(self, *words: object) -> list[str]:
        """What it answers, in words.

        :raises JavaClientFailed: it could not
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
            answer = (await self._process.stdout.readline()).decode().split()
        if not answer or answer[0] != "ok":
            raise JavaClientFailed(" ".join(answer))
        return answer[1:]

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 20)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
