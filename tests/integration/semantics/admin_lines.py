"""Command lines of ``pulsar-admin``, what Apache Pulsar 4.0.8 said, and where it is otherwise here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from printed import comparable

ANSWERS = Path(__file__).parent / "admin_answers.jsonl"
"""Rows of a line, its exit code, and what was printed, parsed where it is JSON."""
LINES = Path(__file__).parent / "admin_lines.jsonl"
"""The other commands, on a broker of their own. ``{"ANY": ...}`` is an answer of which the kind counts."""

T = "persistent://lt/n/t"
DIFFERENT: dict[str, tuple[int, str]] = {
    "namespaces set-bookie-affinity-group lt/n -pg one": (1, "there is one copy of entries"),
    "brokers list nowhere": (1, "Apache Pulsar lists its own cluster's, whatever is asked for"),
    "namespaces get-schema-autoupdate-strategy lt/n": (0, "Apache Pulsar's fails while none is set"),
    "topics list lt/n -b 0x1_0x2": (1, "Apache Pulsar takes what is no bundle for an empty one"),
    f"topics peek-messages {T} -s none -n 1": (1, "Apache Pulsar hides that there is no such subscription"),
    f"topics set-replicated-subscription-status {T} -s none --enable": (1, "Apache Pulsar makes one"),
    f"persistent reset-cursor {T} -s none -t 1h": (1, "Apache Pulsar makes a subscription"),
    f"topics get-shadow-topics {T}": (0, "Apache Pulsar's fails where there are none"),
    "broker-stats mbeans": (1, "it does not run on a Java VM"),
    "namespaces get-topic-positions lt/n -b 0x00000000_0x40000000": (0, "of Apache Pulsar's own topics, too"),
    f"topics get-offload-policies -ap {T}": (0, "Apache Pulsar tells its defaults; here none apply"),
    f"topicPolicies get-dispatcher-pause-on-ack-state-persistent {T}": (0, "Apache Pulsar's prints a future"),
    f"topicPolicies get-replication-clusters {T}": (0, "Apache Pulsar's prints null, whatever is set"),
    f"persistent subscriptions {T}": (0, "Apache Pulsar has made one"),
}
"""What is otherwise here each time that it differs: the exit code, and why."""


def lines_of(*files: Path) -> list[tuple[str, int, Any]]:
    """The rows of some files."""
    return [tuple(json.loads(row)) for file in files for row in file.read_text().splitlines()]


def fits(printed: Any, expected: Any) -> bool:
    """Whether something was printed that may be, of :data:`LINES`."""
    if isinstance(expected, list) and isinstance(printed, list):
        # Sets: Java has them in the order of hashes.
        return sorted(map(str, printed)) == sorted(map(str, expected))
    if not isinstance(expected, dict) or "ANY" not in expected:
        return bool(comparable(printed) == comparable(expected))
    kind = {"object": dict, "list": list, "text": str}[expected["ANY"]]
    return isinstance(printed, kind) and (kind is not str or bool(printed))
