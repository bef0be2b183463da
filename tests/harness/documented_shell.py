"""A documented page in one shell, from its first command to its last, on ports of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from documented_steps import steps_of
from ports import free_port

_BINARY, _HTTP = "127.0.0.1:6650", "127.0.0.1:8080"
_END = "=== the end of a command"


class Shell:
    """One bash, with ports of its own in place of those that the page has."""

    def __init__(self, process: subprocess.Popen[str], ports: dict[str, str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        self._ports = ports

    def run(self, command: str) -> str:
        """What it prints; of a server, which goes on beside the shell, until it serves."""
        serves = command.endswith("&")
        if serves:
            binary, http = (address.rpartition(":")[2] for address in self._ports.values())
            command = command.replace(" --data-dir", f" --binary-port {binary} --http-port {http} --data-dir")
        else:
            if command.startswith("kill -9 $!"):
                # A reader takes longer to type the next command than the process takes to end.
                command += "\nwait $! 2>/dev/null"
            command += f"\necho {_END}"
        for shown, real in self._ports.items():
            command = command.replace(shown, real)
        self._in.write(command + "\n")
        self._in.flush()
        printed = []
        for line in self._out:
            if line.startswith(_END):
                break
            printed.append(line)
            if serves and " is serving " in line:
                break
        text = "".join(printed)
        for shown, real in self._ports.items():
            text = text.replace(real, shown)
        return text


@contextmanager
def shell(folder: Path, programs: Path) -> Iterator[Shell]:
    """:param programs: the folder of the commands"""
    ports = {address: f"127.0.0.1:{free_port()}" for address in (_BINARY, _HTTP)}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PULSAR_", "MAGNETAR_"))}
    environment = {
        **kept,
        "PATH": os.pathsep.join((str(programs), kept["PATH"])),
        "PULSAR_ADMIN_URL": f"http://{ports[_HTTP]}",
        "PULSAR_SERVICE_URL": f"pulsar://{ports[_BINARY]}",
    }
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    try:
        yield Shell(process, ports)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def comparable(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"bash: line \d+: +\d+ Killed .*\n?", "", text)
    text = re.sub(r"publishTime:\[\d+\]", "publishTime:[MS]", text)
    text = re.sub(r"started in \d+ ms", "started in MS ms", text)
    text = re.sub(r"as of \d{4}-\d\d-\d\d \d\d:\d\d", "as of TIME", text)
    text = re.sub(r"ledger store [0-9a-f]{32}", "ledger store ID", text)
    text = re.sub(r"[\d.]+ (B|KiB|MiB)\b", "SIZE", text)
    return re.sub(r"for [\d.]+ (s|min)$", "for a while", text.strip(), flags=re.MULTILINE)


def differing(page: Path, folder: Path, programs: Path, least: int) -> list[str]:
    """The commands of a page that print something else than the page says.

    :param least: how many commands the page has at least
    """
    steps = list(steps_of(page))
    assert len(steps) >= least
    wrong = []
    with shell(folder, programs) as bash:
        for command, printed in steps:
            told = bash.run(command)
            if comparable(told) != comparable(printed):
                wrong.append(f"$ {command}\n{told}")
    return wrong
