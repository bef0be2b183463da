"""Magnetar's own endpoints on stored data: disk space, and read plans for readers of its files."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.handlers import messages as plans
from magnetar.http.routing import Application, Endpoint, Parameter
from magnetar.security.authorization import BrokerOperation, TopicOperation

_PATH = "/admin/v2/magnetar/read-plans"


async def _report(application: Application, request: Request) -> Response:
    return json_response(await application.process.storage(request.query.get("namespace")))


STORAGE: Sequence[Endpoint] = [
    Endpoint(
        "GET",
        "/admin/v2/magnetar/storage",
        _report,
        "the disk, the ledger store, and the space that topics use, retain and will need",
        BrokerOperation.GET_STORAGE,
        parameters=(Parameter("namespace", "text"),),
    ),
]
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
