"""Topics: lists, statistics, creation, deletion and the operations on one."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.broker.stats.assembled import StatsSelection
from magnetar.errors import BrokerError, InvalidRequest, NotFound
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Handler
from magnetar.http.shapes.fields import (
    ACTIONS,
    body,
    choices,
    message_position,
    text_changes,
    text_map,
    texts_given,
    whole,
)
from magnetar.http.shapes.names import namespace_of, partition_of, partitioned_topic_of, topic_of
from magnetar.naming.topic_name import Domain

_PARTITIONS = whole(bits=4096)
"""Accepts any number of partitions: the broker checks the limit."""

PARTITIONED_METADATA_TYPE = "application/vnd.partitioned-topic-metadata+json"


def refused(error: type[BrokerError], reason: str) -> Handler:
    """Returns a handler for operations that this kind of topic does not support."""

    async def refuse(_application: Application, request: Request) -> Response:
        topic_of(request.variables)
        raise error(reason)

    return refuse


async def list_topics(application: Application, request: Request) -> Response:
    namespace, system = namespace_of(request.variables), request.flag("includeSystemTopic")
    if request.variables.get("domain") == "non-persistent":
        names = await application.admin.topic_lists.non_persistent(namespace, system=system)
    else:
        names = await application.admin.namespaces.topics(namespace, mode="PERSISTENT", system=system)
    bundle = request.query.get("bundle")
    if bundle:
        names = await application.admin.topic_lists.within(namespace, bundle, names)
    return json_response(list(names))


async def list_bundle(application: Application, request: Request) -> Response:
    names = await application.admin.topic_lists.of_bundle(
        namespace_of(request.variables), request.variables["bundle"]
    )
    return nothing() if names is None else json_response(list(names))


async def list_partitioned_topics(application: Application, request: Request) -> Response:
    names = await application.admin.namespaces.partitioned_topics(
        namespace_of(request.variables),
        Domain(request.variables["domain"]),
        system=request.flag("includeSystemTopic"),
    )
    return json_response(list(names))


async def create_topic(application: Application, request: Request) -> Response:
    properties = body(text_map, "properties", required=None)(request) or {}
    await application.admin.topics.create(topic_of(request.variables), properties)
    return nothing()


async def delete_topic(application: Application, request: Request) -> Response:
    await application.admin.topics.delete(topic_of(request.variables), force=request.flag("force"))
    return nothing()


async def get_partitions(application: Application, request: Request) -> Response:
    create = request.flag("checkAllowAutoCreation")
    topic = topic_of(request.variables)
    count = await application.admin.partitions.count(topic, create=create)
    answer: dict[str, object] = {"partitions": count, "deleted": False}
    properties = (await application.admin.partitions.describe(topic)).get("properties") if count else None
    return json_response(answer | ({"properties": properties} if properties else {}))


async def create_partitioned_topic(application: Application, request: Request) -> Response:
    topic = partitioned_topic_of(request.variables)
    value = request.json()
    properties: Mapping[str, str] = {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == PARTITIONED_METADATA_TYPE:
        if not isinstance(value, dict):
            raise InvalidRequest("The body must be an object with partitions and properties")
        properties = texts_given("properties", value.get("properties") or {})
        value = value.get("partitions", 0)
    await application.admin.partitions.create(topic, _PARTITIONS("partitions", value), properties)
    return nothing()


async def delete_partitioned_topic(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    await application.admin.partitions.delete(topic, force=request.flag("force"))
    return nothing()


async def topic_stats(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    return json_response(await application.admin.topics.stats(topic, _wanted(request)))


def _wanted(request: Request) -> StatsSelection:
    """Returns the requested statistics; ignores ``getPreciseBacklog``, as every backlog is precise."""
    return StatsSelection(
        backlog_size=request.flag("subscriptionBacklogSize", True),
        earliest_time=request.flag("getEarliestTimeInBacklog"),
        publishers=not request.flag("excludePublishers"),
        consumers=not request.flag("excludeConsumers"),
    )


async def internal_stats(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    return json_response(
        await application.admin.topics.internal_stats(topic, metadata=request.flag("metadata"))
    )


async def explain(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    found = await application.admin.explaining.explain(topic, request.query.get("subscription") or None)
    return json_response(dict(found))


async def unload(application: Application, request: Request) -> Response:
    await application.admin.topics.unload(topic_of(request.variables))
    return nothing()


async def terminate(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    return json_response(_message_id(await application.admin.topics.terminate(topic), partition_of(topic)))


async def compact(application: Application, request: Request) -> Response:
    await application.admin.topics.compact(topic_of(request.variables))
    return nothing()


async def compaction_status(application: Application, request: Request) -> Response:
    """Returns the status as ``LongRunningProcessStatus``."""
    status, error = await application.admin.topics.compaction_status(topic_of(request.variables))
    return json_response({"status": status, "lastError": error})


def _message_id(position: tuple[int, int], partition: int = -1) -> dict[str, int]:
    return {
        "ledgerId": position[0],
        "entryId": position[1],
        "partitionIndex": partition,
        "batchIndex": -1,
        "batchSize": 0,
    }


async def terminate_partitions(application: Application, request: Request) -> Response:
    ends = await application.admin.partitions.terminate(topic_of(request.variables))
    return json_response({str(index): _message_id(end) for index, end in ends.items()})


async def update_partitions(application: Application, request: Request) -> Response:
    count = body(whole(), "partitions")(request)
    await application.admin.partitions.update(topic_of(request.variables), count, force=request.flag("force"))
    return nothing()


async def create_missing_partitions(application: Application, request: Request) -> Response:
    await application.admin.partitions.create_missing(topic_of(request.variables))
    return nothing()


async def partitioned_stats(application: Application, request: Request) -> Response:
    stats = await application.admin.topics.partitioned_stats(
        topic_of(request.variables), _wanted(request), per_partition=request.flag("perPartition", True)
    )
    return json_response(stats)


async def partitioned_internal_stats(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    return json_response(await application.admin.topics.partitioned_internal_stats(topic))


async def properties(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.topics.properties(topic_of(request.variables))))


async def set_properties(application: Application, request: Request) -> Response:
    changes = body(text_changes, "properties")(request)
    await application.admin.topics.set_properties(topic_of(request.variables), changes)
    return nothing()


async def remove_property(application: Application, request: Request) -> Response:
    key = request.query.get("key")
    if key is None:
        raise InvalidRequest("key is missing: it names the property to remove")
    await application.admin.topics.set_properties(topic_of(request.variables), {key: None})
    return nothing()


async def permissions(application: Application, request: Request) -> Response:
    found = await application.admin.topics.permissions(topic_of(request.variables))
    return json_response({role: list(actions) for role, actions in found.items()})


async def grant(application: Application, request: Request) -> Response:
    actions = body(choices(*ACTIONS), "actions")(request)
    await application.admin.topics.set_permissions(
        topic_of(request.variables), request.variables["role"], actions
    )
    return nothing()


async def revoke(application: Application, request: Request) -> Response:
    await application.admin.topics.set_permissions(
        topic_of(request.variables), request.variables["role"], None
    )
    return nothing()


async def last_message_id(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    position, batch_size = await application.admin.topics.last_message(topic)
    last = _message_id(position, partition_of(topic))
    if batch_size:
        last.update(batchIndex=batch_size - 1, outstandingAcksInSameBatch=0, originalBatchSize=0)
    return json_response(last)


async def message_id_at(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    try:
        time_ms = int(request.variables["timestamp"])
    except ValueError:
        raise NotFound(f"{request.variables['timestamp']!r} is not a number") from None
    return json_response(
        _message_id(await application.admin.topics.position_at(topic, time_ms), partition_of(topic))
    )


async def backlog_size(application: Application, request: Request) -> Response:
    position = message_position(request.json())
    return json_response(await application.admin.topics.backlog_size(topic_of(request.variables), position))


async def trim(application: Application, request: Request) -> Response:
    await application.admin.topics.trim(topic_of(request.variables))
    return Response(200)
