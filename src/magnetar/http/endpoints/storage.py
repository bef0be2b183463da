"""Magnetar's own endpoints for stored data: disk space, snapshots for backups, and read plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.broker.admin.messages import ReadPlanAdmin
from magnetar.errors import InvalidRequest, NotSupported
from magnetar.http.calls import as_json, calls, empty
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application, Endpoint, Parameter, SnapshotAccess
from magnetar.http.shapes.fields import shown, whole
from magnetar.http.shapes.names import topic_of, variable
from magnetar.security.authorization import BrokerOperation, TopicOperation

_FROM_THE_START = (-1, -1)
_PATH = "/admin/v2/magnetar/read-plans"
_SNAPSHOTS = "/admin/v2/magnetar/snapshots"
_IN_BOOKKEEPER = {501: "the broker keeps its data in BookKeeper and ZooKeeper"}


async def _report(application: Application, request: Request) -> Response:
    return json_response(await application.process.storage(request.query.get("namespace")))


async def _make(application: Application, request: Request) -> Response:
    """Creates a read plan.

    The body contains ``start`` and ``end`` (exclusive) as message ids, and ``seconds``, for which the plan is
    kept; all three are optional.
    """
    given = _body(request, "start", "end", "seconds")
    start = _position("start", given["start"]) if given.get("start") is not None else _FROM_THE_START
    end = _position("end", given["end"]) if given.get("end") is not None else None
    return json_response(
        await application.admin.read_plans.make(topic_of(request.variables), start, end, _seconds(given))
    )


def _body(request: Request, *known: str) -> dict[str, object]:
    if not request.has_body:
        return {}
    value = request.json()
    if not isinstance(value, dict):
        raise InvalidRequest(f"The body must be an object with {', '.join(known)}")
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise InvalidRequest(f"unknown fields {', '.join(unknown)}; use {', '.join(known)}")
    return value


def _seconds(given: dict[str, Any]) -> int | None:
    seconds = given.get("seconds")
    return None if seconds is None else int(whole()("seconds", seconds))


def _position(name: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{name} must be an object with ledgerId and entryId, not {shown(value)}")
    number = whole(64)
    return number(f"{name}.ledgerId", value.get("ledgerId")), number(f"{name}.entryId", value.get("entryId"))


def _held_seconds(request: Request) -> int | None:
    return _seconds(_body(request, "seconds"))


async def _take(application: Application, request: Request) -> Response:
    snapshots = _snapshots(application)
    return json_response(await snapshots.take(_held_seconds(request)))


async def _prolong(application: Application, request: Request) -> Response:
    snapshots = _snapshots(application)
    return json_response(snapshots.prolong(request.variables["snapshot"], _held_seconds(request)))


async def _release(application: Application, request: Request) -> Response:
    _snapshots(application).release(request.variables["snapshot"])
    return empty(None)


def _snapshots(application: Application) -> SnapshotAccess:
    """Returns the object that makes snapshots of the broker's embedded stores.

    :raises NotSupported: the broker stores its data in BookKeeper and ZooKeeper
    """
    snapshots = application.process.snapshots
    if snapshots is None:
        raise NotSupported(
            "This broker keeps its data in BookKeeper and ZooKeeper; back up these services with "
            "their own tools (docs/backup-clusters.md)"
        )
    return snapshots()


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
SNAPSHOTS: Sequence[Endpoint] = [
    Endpoint(
        "POST",
        _SNAPSHOTS,
        _take,
        "files with the whole state of a standalone broker at one moment, which are kept for a while",
        BrokerOperation.BACK_UP,
        body="SnapshotRequest",
        success=200,
        refusals={**_IN_BOOKKEEPER, 429: "too many snapshots are held"},
    ),
    Endpoint(
        "PUT",
        _SNAPSHOTS + "/{snapshot}",
        _prolong,
        "keep the files of a snapshot for longer",
        BrokerOperation.BACK_UP,
        body="SnapshotRequest",
        success=200,
        refusals={**_IN_BOOKKEEPER, 404: "the snapshot was released, or it has expired"},
    ),
    Endpoint(
        "DELETE",
        _SNAPSHOTS + "/{snapshot}",
        _release,
        "release the files of a snapshot",
        BrokerOperation.BACK_UP,
        refusals=_IN_BOOKKEEPER,
    ),
]
READ_PLANS: Sequence[Endpoint] = [
    Endpoint(
        "POST",
        _PATH + "/persistent/{tenant}/{namespace}/{topic}",
        _make,
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
        calls(ReadPlanAdmin.prolong, variable("plan"), _held_seconds, answer=as_json),
        "keep the files of a read plan for longer",
        TopicOperation.READ_FILES,
        asks=True,
        body="ReadPlanRequest",
        success=200,
    ),
    Endpoint(
        "DELETE",
        _PATH + "/{plan}",
        calls(ReadPlanAdmin.release, variable("plan")),
        "release the files of a read plan",
        TopicOperation.READ_FILES,
        asks=True,
    ),
]
