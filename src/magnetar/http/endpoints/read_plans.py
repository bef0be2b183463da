"""Endpoints of read plans: Magnetar's own, for readers of its files."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import read_plans as plans
from magnetar.http.routing import Endpoint
from magnetar.security.operations import TopicOperation

_PATH = "/admin/v2/magnetar/read-plans"

READ_PLANS: Sequence[Endpoint] = [
    Endpoint(
        "POST",
        _PATH + "/persistent/{tenant}/{namespace}/{topic}",
        plans.make,
        "files with the entries of a topic, which are kept for a while",
        TopicOperation.READ_FILES,
        asks=True,
        body="ReadPlanRequest",
        success=200,
        refusals={
            405: "the topic is partitioned, or read plans are disabled",
            429: "there are too many read plans",
            501: "the ledger store has no files that can be read",
        },
    ),
    Endpoint(
        "PUT",
        _PATH + "/{plan}",
        plans.prolong,
        "keep the files of a read plan for longer",
        TopicOperation.READ_FILES,
        asks=True,
        body="ReadPlanRequest",
        success=200,
    ),
    Endpoint(
        "DELETE",
        _PATH + "/{plan}",
        plans.release,
        "release the files of a read plan",
        TopicOperation.READ_FILES,
        asks=True,
    ),
]
