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
        "which files hold entries of a topic; keeps them for a while",
        TopicOperation.READ_FILES,
        asks=True,
        body="ReadPlanRequest",
        success=200,
        refusals={
            405: "it is partitioned, or the settings allow none",
            429: "there are too many",
            501: "the store has none",
        },
    ),
    Endpoint(
        "PUT",
        _PATH + "/{plan}",
        plans.prolong,
        "keep the files of a plan for longer",
        TopicOperation.READ_FILES,
        asks=True,
        body="ReadPlanRequest",
        success=200,
    ),
    Endpoint(
        "DELETE",
        _PATH + "/{plan}",
        plans.release,
        "the files of a plan are not needed any more",
        TopicOperation.READ_FILES,
        asks=True,
    ),
]
