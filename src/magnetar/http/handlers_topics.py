"""Topics: lists, statistics, creation, deletion and the operations on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.errors import InvalidRequest
from magnetar.http.message import Request, Response, json_response, nothing
from magnetar.http.names import namespace_of, partitioned_topic_of, topic_of
from magnetar.http.routing import Application
from magnetar.http.services import StatsOptions

PARTITIONED_METADATA_TYPE = "application/vnd.partitioned-topic-metadata+json"


async def list_topics(application: Application, request: Request) -> Response:
    return json_response(list(await application.broker.topics(namespace_of(request.variables))))


async def list_partitioned_topics(application: Application, request: Request) -> Response:
    names = await application.broker.partitioned_topics(namespace_of(request.variables))
    return json_response(list(names))


async def create_topic(application: Application, request: Request) -> Response:
    properties = _properties(request.json()) if request.body.strip() else {}
    await application.broker.create_topic(topic_of(request.variables), properties)
    return nothing()


async def delete_topic(application: Application, request: Request) -> Response:
    await application.broker.delete_topic(topic_of(request.variables), force=request.flag("force"))
    return nothing()


async def get_partitions(application: Application, request: Request) -> Response:
    create = request.flag("checkAllowAutoCreation")
    count = await application.broker.partitions(topic_of(request.variables), create=create)
    return json_response({"partitions": count, "deleted": False})


async def create_partitioned_topic(application: Application, request: Request) -> Response:
    topic = partitioned_topic_of(request.variables)
    value = request.json()
    properties: Mapping[str, str] = {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == PARTITIONED_METADATA_TYPE:
        if not isinstance(value, dict):
            raise InvalidRequest("The body must be an object with partitions and properties")
        properties = _properties(value.get("properties") or {})
        value = value.get("partitions", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidRequest("The number of partitions must be a whole number")
    await application.broker.create_partitioned_topic(topic, value, properties)
    return nothing()


async def delete_partitioned_topic(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    await application.broker.delete_partitioned_topic(topic, force=request.flag("force"))
    return nothing()


async def topic_stats(application: Application, request: Request) -> Response:
    options = StatsOptions(
        precise_backlog=request.flag("getPreciseBacklog"),
        subscription_backlog_size=request.flag("subscriptionBacklogSize", True),
        earliest_time_in_backlog=request.flag("getEarliestTimeInBacklog"),
        exclude_publishers=request.flag("excludePublishers"),
        exclude_consumers=request.flag("excludeConsumers"),
    )
    return json_response(await application.broker.topic_stats(topic_of(request.variables), options))


async def internal_stats(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    return json_response(await application.broker.internal_stats(topic, metadata=request.flag("metadata")))


async def unload(application: Application, request: Request) -> Response:
    await application.broker.unload(topic_of(request.variables))
    return nothing()


async def terminate(application: Application, request: Request) -> Response:
    last = await application.broker.terminate(topic_of(request.variables))
    return json_response(
        {
            "ledgerId": last.ledger_id,
            "entryId": last.entry_id,
            "partitionIndex": last.partition_index,
            "batchIndex": -1,
            "batchSize": 0,
        }
    )


def _properties(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidRequest("Properties must be an object of strings")
    for text in (*value.keys(), *value.values()):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"Properties must be Unicode: {text!r} has half a character") from error
    return value
