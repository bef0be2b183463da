"""The exit codes of all commands.

:data:`EXIT_CODES` names each code that a command can end with. ``docs/command-lines.md`` has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from signal import SIGHUP, SIGINT, SIGTERM

SUCCEEDED = 0
FAILED = 1
MISUSED = 2
"""The command line, or the configuration of a pipeline, is invalid."""
DIFFERENT = 3
"""``mirror-verify`` found differences."""
VOID = 3
"""The measurements of a ``pulsar-perf`` run are not valid."""
IO_FAILED = 74
"""A process could not write or sync (EX_IOERR of sysexits.h), or lost its session with ZooKeeper."""


def ended_by(signal: int) -> int:
    """Returns the exit code of a process that was ended by a signal."""
    return 128 + signal


INTERRUPTED = ended_by(SIGINT)


_USAGE = "the command line is invalid"
_TOOL = {SUCCEEDED: "success", FAILED: "failure, or standard output was closed", MISUSED: _USAGE}
_PRINTS = {SUCCEEDED: "success", FAILED: "standard output was closed", MISUSED: _USAGE}
_MESSAGES = {
    SUCCEEDED: "success, an interrupt, or standard output was closed",
    FAILED: "failure",
    MISUSED: _USAGE,
}
_ENDED_IMMEDIATELY = {
    ended_by(SIGINT): "a second signal, SIGINT, ended the process immediately",
    ended_by(SIGTERM): "a second signal, SIGTERM, ended the process immediately",
}
_SERVER = {
    SUCCEEDED: "stopped after a signal",
    FAILED: "the process could not start, was stopped while it started, or did not stop in time",
    MISUSED: _USAGE,
}
_STANDALONE = {
    **_SERVER,
    IO_FAILED: "the disk failed, or the ledger store found an internal error",
    **_ENDED_IMMEDIATELY,
}
_BROKER = {**_SERVER, IO_FAILED: "the session with ZooKeeper is lost", **_ENDED_IMMEDIATELY}
_PROXY = {**_SERVER, **_ENDED_IMMEDIATELY}
_PIPELINE = {
    SUCCEEDED: "success",
    FAILED: "failure, or standard output was closed",
    MISUSED: "the command line or the configuration is invalid",
    DIFFERENT: "mirror-verify found differences",
    INTERRUPTED: "an interrupt; the next run continues",
}

EXIT_CODES: Mapping[str, Mapping[int, str]] = {
    "magnetar": {SUCCEEDED: "help or the version was printed", MISUSED: _USAGE},
    "magnetar backup": _TOOL,
    "magnetar broker": _BROKER,
    "magnetar check": {
        SUCCEEDED: "no setting prevents a start",
        FAILED: "a setting prevents a start, the file cannot be read, or standard output was closed",
        MISUSED: _USAGE,
    },
    "magnetar compact-topic": _TOOL,
    "magnetar completion": _PRINTS,
    "magnetar consume": _MESSAGES,
    "magnetar discovery": _PROXY,
    "magnetar doctor": {
        SUCCEEDED: "no finding is `fail`",
        FAILED: "a finding is `fail`, or standard output was closed",
        MISUSED: _USAGE,
    },
    "magnetar explain": _TOOL,
    "magnetar explain-placement": _TOOL,
    "magnetar export-ledgers": {
        SUCCEEDED: "all topics were exported, or can be exported (--check)",
        FAILED: "a topic was not exported, or cannot be exported, or standard output was closed",
        MISUSED: _USAGE,
    },
    "magnetar initialize-cluster-metadata": _TOOL,
    "magnetar initialize-transaction-coordinator-metadata": _TOOL,
    "magnetar orphaned-ledgers": _TOOL,
    "magnetar pipeline": _PIPELINE,
    "magnetar produce": _MESSAGES,
    "magnetar proxy": _PROXY,
    "magnetar recover-metadata": _TOOL,
    "magnetar restore": _TOOL,
    "magnetar standalone": _STANDALONE,
    "magnetar storage": _TOOL,
    "magnetar tail": _MESSAGES,
    "magnetar tokens": _TOOL,
    "magnetar top": {
        SUCCEEDED: "success, or an interrupt",
        FAILED: "nothing can be shown, or standard output was closed",
        MISUSED: _USAGE,
        ended_by(SIGHUP): "SIGHUP, or the terminal is gone",
        ended_by(SIGTERM): "SIGTERM",
    },
    "magnetar translate-positions": _TOOL,
    "magnetar verify-backup": _TOOL,
    "magnetar version": _PRINTS,
    "magnetar websocket": _PROXY,
    "pulsar-admin": {
        SUCCEEDED: "success",
        FAILED: "failure, the command line is invalid, or standard output was closed",
    },
    "pulsar-client": {
        SUCCEEDED: "success",
        FAILED: "failure, the command line is invalid, or standard output was closed",
        INTERRUPTED: "interrupted",
    },
    "pulsar-perf": {
        SUCCEEDED: "success",
        FAILED: "failure, the command is not supported yet, or standard output was closed",
        MISUSED: _USAGE,
        VOID: "the run is void: its results cannot be used",
    },
}
"""The meanings of all exit codes, by command."""
