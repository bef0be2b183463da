"""Endpoints for persistent and non-persistent topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from magnetar.broker.admin.namespaces import NamespaceAdmin
from magnetar.broker.admin.partitions import PartitionAdmin
from magnetar.broker.admin.topics import TopicAdmin, TopicListAdmin
from magnetar.broker.stats.assembled import StatsSelection
from magnetar.errors import BrokerError, InvalidRequest
from magnetar.http.calls import as_json, calls, done, json_or
from magnetar.http.endpoints.messages import MESSAGES
from magnetar.http.endpoints.refusals_non_persistent import NOT_STORED
from magnetar.http.endpoints.subscriptions import SUBSCRIPTIONS
from magnetar.http.engine.message import Request, Response, json_response, nothing, warned
from magnetar.http.routing import Application, Endpoint, Handler, Parameter
from magnetar.http.shapes.fields import (
    ACTIONS,
    always,
    body,
    choices,
    flag,
    message_position,
    text_changes,
    text_map,
    texts_given,
    whole,
)
from magnetar.http.shapes.names import (
    NAMESPACE,
    TOPIC,
    namespace_of,
    number_in_path,
    partition_of,
    partitioned_topic_of,
    topic_of,
    variable,
)
from magnetar.naming.topic_name import Domain
from magnetar.security.authorization import NamespaceOperation as N
from magnetar.security.authorization import TopicOperation as T

_DOMAINS = ("persistent", "non-persistent")
_PARTITIONS = whole(bits=4096)
"""Checks a number of partitions; any size is accepted, because the broker checks the limit."""
PARTITIONED_METADATA_TYPE = "application/vnd.partitioned-topic-metadata+json"
_FORCE = Parameter("force", "truth", "false")
_SYSTEM = Parameter("includeSystemTopic", "truth", "false")
_STATS = (
    Parameter("getPreciseBacklog", "truth", "false"),
    Parameter("subscriptionBacklogSize", "truth", "true"),
    Parameter("getEarliestTimeInBacklog", "truth", "false"),
    Parameter("excludePublishers", "truth", "false"),
    Parameter("excludeConsumers", "truth", "false"),
)
_SOON_SECONDS = 3600.0
"""If a new topic that nobody uses is deleted within this time, in seconds, the response to its creation
contains a warning.
"""
_DELETED = (
    "a topic that is not used is deleted after {seconds:g} s, with its messages; keep it with set-retention, "
    "or set-inactive-topic-policies --disable-delete-while-inactive"
)
_KIND = {405: "the operation is not possible on a topic of this kind"}
_TAKEN = {409: "the object already exists"}
_USED = {409: "the topic is partitioned", 412: "the topic has clients, or a name is invalid"}
_COUNT = {406: "the number of partitions is not allowed", 422: "the topic already has more partitions"}


def _refused(error: type[BrokerError], reason: str) -> Handler:
    """Returns a handler that refuses an operation, because this kind of topic does not support it."""

    async def refuse(_application: Application, request: Request) -> Response:
        topic_of(request.variables)
        raise error(reason)

    return refuse


async def _list_topics(application: Application, request: Request) -> Response:
    namespace, system = namespace_of(request.variables), request.flag("includeSystemTopic")
    if request.variables.get("domain") == "non-persistent":
        names = await application.admin.topic_lists.non_persistent(namespace, system=system)
    else:
        names = await application.admin.namespaces.topics(namespace, mode="PERSISTENT", system=system)
    bundle = request.query.get("bundle")
    if bundle:
        names = await application.admin.topic_lists.within(namespace, bundle, names)
    return json_response(list(names))


async def _get_partitions(application: Application, request: Request) -> Response:
    create = request.flag("checkAllowAutoCreation")
    topic = topic_of(request.variables)
    count = await application.admin.partitions.count(topic, create=create)
    answer: dict[str, object] = {"partitions": count, "deleted": False}
    properties = (await application.admin.partitions.describe(topic)).get("properties") if count else None
    return json_response(answer | ({"properties": properties} if properties else {}))


async def _create_partitioned_topic(application: Application, request: Request) -> Response:
    topic = partitioned_topic_of(request.variables)
    value = request.json()
    properties: Mapping[str, str] = {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == PARTITIONED_METADATA_TYPE:
        if not isinstance(value, dict):
            raise InvalidRequest("The body must be a JSON object with partitions and properties")
        properties = texts_given("properties", value.get("properties") or {})
        value = value.get("partitions", 0)
    await application.admin.partitions.create(topic, _PARTITIONS("partitions", value), properties)
    return nothing()


def _warning_of_deletion(create: Handler) -> Handler:
    """Returns a handler that calls ``create``, and adds a warning to its response if the new topic will soon
    be deleted unless it is used.
    """

    async def handler(application: Application, request: Request) -> Response:
        answer = await create(application, request)
        return await _warned_of_deletion(application, topic_of(request.variables), answer)

    return handler


async def _warned_of_deletion(application: Application, topic: str, answer: Response) -> Response:
    seconds = await application.admin.topics.seconds_unused(topic)
    return warned(answer, [_DELETED.format(seconds=seconds)] if seconds <= _SOON_SECONDS else ())


async def _explain(application: Application, request: Request) -> Response:
    """Explains why messages of a topic wait; the response also has a warning if the topic has no subscription
    and will soon be deleted.
    """
    topic = topic_of(request.variables)
    found = await application.admin.explaining.explain(topic, request.query.get("subscription") or None)
    answer = json_response(found)
    return answer if _has_subscriptions(found) else await _warned_of_deletion(application, topic, answer)


def _has_subscriptions(explained: object) -> bool:
    match explained:
        case {"partitions": dict(parts)}:
            return any(map(_has_subscriptions, parts.values()))
        case {"subscriptions": dict(found)}:
            return bool(found)
    return False


def _wanted(request: Request) -> StatsSelection:
    """Returns which statistics the query requests; ignores ``getPreciseBacklog``, because every backlog is
    precise.
    """
    return StatsSelection(
        backlog_size=request.flag("subscriptionBacklogSize", True),
        earliest_time=request.flag("getEarliestTimeInBacklog"),
        publishers=not request.flag("excludePublishers"),
        consumers=not request.flag("excludeConsumers"),
    )


def _message_id(position: tuple[int, int], partition: int = -1) -> dict[str, int]:
    return {
        "ledgerId": position[0],
        "entryId": position[1],
        "partitionIndex": partition,
        "batchIndex": -1,
        "batchSize": 0,
    }


async def _terminate(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    return json_response(_message_id(await application.admin.topics.terminate(topic), partition_of(topic)))


async def _last_message_id(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    position, batch_size = await application.admin.topics.last_message(topic)
    last = _message_id(position, partition_of(topic))
    if batch_size:
        last.update(batchIndex=batch_size - 1, outstandingAcksInSameBatch=0, originalBatchSize=0)
    return json_response(last)


async def _message_id_at(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    time_ms = number_in_path("timestamp")(request)
    return json_response(
        _message_id(await application.admin.topics.position_at(topic, time_ms), partition_of(topic))
    )


def _domain(request: Request) -> Domain:
    return Domain(request.variables["domain"])


def _new_properties(request: Request) -> Mapping[str, str]:
    return body(text_map, "properties", required=None)(request) or {}


def _removed(request: Request) -> Mapping[str, None]:
    """Returns the change that removes the topic property named in the query: its name, mapped to None.

    :raises InvalidRequest: the query contains no property
    """
    key = request.query.get("key")
    if key is None:
        raise InvalidRequest("The query parameter key is missing; set it to the property to remove")
    return {key: None}


def _status(found: tuple[str, str]) -> Response:
    """Converts the status of a compaction to ``LongRunningProcessStatus``."""
    return json_response({"status": found[0], "lastError": found[1]})


def _offload_status(found: tuple[str, str, tuple[int, int]]) -> Response:
    """Converts the status of an offload to ``OffloadProcessStatus``."""
    status, error, end = found
    return json_response({"status": status, "lastError": error, "firstUnoffloadedMessage": _message_id(end)})


def _ends(found: Mapping[int, tuple[int, int]]) -> Response:
    return json_response({str(index): _message_id(end) for index, end in found.items()})


def _permissions(found: Mapping[str, Sequence[str]]) -> Response:
    return json_response({role: list(actions) for role, actions in found.items()})


_ROWS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "",
        _list_topics,
        "list topics; each partition is listed separately",
        N.GET_TOPICS,
        parameters=(_SYSTEM, Parameter("bundle", "text")),
    ),
    Endpoint(
        "GET",
        "/partitioned",
        calls(
            NamespaceAdmin.partitioned_topics,
            NAMESPACE,
            _domain,
            system=flag("includeSystemTopic"),
            answer=as_json,
        ),
        "list partitioned topics",
        N.GET_TOPICS,
        parameters=(_SYSTEM,),
    ),
    Endpoint(
        "PUT",
        "/{topic}",
        _warning_of_deletion(calls(TopicAdmin.create, TOPIC, _new_properties)),
        "create a topic without partitions",
        T.CREATE_TOPIC,
        body="map<string,string>",
        refusals={**_TAKEN, 406: "properties need a persistent topic"},
    ),
    Endpoint(
        "DELETE",
        "/{topic}",
        calls(TopicAdmin.delete, TOPIC, force=flag("force")),
        "delete a topic; force disconnects its clients",
        T.DELETE_TOPIC,
        parameters=(_FORCE,),
        refusals=_USED,
    ),
    Endpoint(
        "GET",
        "/{topic}/partitions",
        _get_partitions,
        "number of partitions",
        T.LOOKUP,
        parameters=(Parameter("checkAllowAutoCreation", "truth", "false"),),
    ),
    Endpoint(
        "PUT",
        "/{topic}/partitions",
        _warning_of_deletion(_create_partitioned_topic),
        "create a partitioned topic",
        T.CREATE_TOPIC,
        body="PartitionedTopicMetadata",
        refusals={**_TAKEN, **_COUNT},
    ),
    Endpoint(
        "POST",
        "/{topic}/partitions",
        calls(PartitionAdmin.update, TOPIC, body(whole(), "partitions"), force=flag("force")),
        "increase the number of partitions",
        T.CREATE_TOPIC,
        parameters=(_FORCE,),
        body="int",
        refusals={**_TAKEN, **_COUNT},
    ),
    Endpoint(
        "DELETE",
        "/{topic}/partitions",
        calls(PartitionAdmin.delete, TOPIC, force=flag("force")),
        "delete a partitioned topic",
        T.DELETE_TOPIC,
        parameters=(_FORCE,),
        refusals=_USED,
    ),
    Endpoint(
        "POST",
        "/{topic}/createMissedPartitions",
        _warning_of_deletion(calls(PartitionAdmin.create_missing, TOPIC)),
        "create missing partitions",
        T.CREATE_TOPIC,
    ),
    Endpoint(
        "GET",
        "/{topic}/stats",
        calls(TopicAdmin.stats, TOPIC, _wanted, answer=as_json),
        "statistics of a topic",
        T.GET_STATS,
        parameters=_STATS,
    ),
    Endpoint(
        "GET",
        "/{topic}/internalStats",
        calls(TopicAdmin.internal_stats, TOPIC, metadata=flag("metadata"), answer=as_json),
        "ledgers and cursors of a topic",
        T.GET_STATS,
        parameters=(Parameter("metadata", "truth", "false"),),
    ),
    Endpoint(
        "GET",
        "/{topic}/partitioned-stats",
        calls(
            TopicAdmin.partitioned_stats,
            TOPIC,
            _wanted,
            per_partition=flag("perPartition", True),
            answer=as_json,
        ),
        "statistics of all partitions",
        T.GET_STATS,
        parameters=(Parameter("perPartition", "truth", "true"), *_STATS),
    ),
    Endpoint(
        "GET",
        "/{topic}/partitioned-internalStats",
        calls(TopicAdmin.partitioned_internal_stats, TOPIC, answer=as_json),
        "ledgers and cursors of all partitions",
        T.GET_STATS,
    ),
    Endpoint(
        "GET",
        "/{topic}/explain",
        _explain,
        "why messages do not arrive or cannot be published; Magnetar's own",
        T.GET_STATS,
        parameters=(Parameter("subscription", "text"),),
        refusals={404: "no such topic, namespace or subscription"},
    ),
    Endpoint(
        "PUT",
        "/{topic}/unload",
        calls(TopicAdmin.unload, TOPIC),
        "unload a topic; clients reconnect",
        T.UNLOAD,
        each=True,
    ),
    Endpoint(
        "POST",
        "/{topic}/terminate",
        _terminate,
        "terminate a topic; returns its last message",
        T.TERMINATE,
        success=200,
        refusals=_KIND,
    ),
    Endpoint(
        "POST",
        "/{topic}/terminate/partitions",
        calls(PartitionAdmin.terminate, TOPIC, answer=_ends),
        "terminate all partitions",
        T.TERMINATE,
        success=200,
        refusals=_KIND,
    ),
    Endpoint(
        "PUT",
        "/{topic}/compaction",
        calls(TopicAdmin.compact, TOPIC),
        "compact a topic",
        T.COMPACT,
        refusals={**_KIND, 409: "the topic is already being compacted"},
        each=True,
    ),
    Endpoint(
        "GET",
        "/{topic}/compaction",
        calls(TopicAdmin.compaction_status, TOPIC, answer=_status),
        "state of the compaction of a topic",
        T.COMPACT,
        refusals=_KIND,
    ),
    Endpoint(
        "PUT",
        "/{topic}/offload",
        calls(TopicAdmin.offload, TOPIC, lambda request: message_position(request.json())),
        "offload the ledgers before a message to tiered storage",
        T.OFFLOAD,
        body="MessageId",
        refusals={
            **_KIND,
            409: "an offload is already in progress",
            412: "the topic is a shadow",
        },
    ),
    Endpoint(
        "GET",
        "/{topic}/offload",
        calls(TopicAdmin.offload_status, TOPIC, answer=_offload_status),
        "state of the offload of a topic",
        T.OFFLOAD,
        refusals=_KIND,
    ),
    Endpoint(
        "GET",
        "/{topic}/properties",
        calls(TopicAdmin.properties, TOPIC, answer=as_json),
        "properties of a topic",
        T.GET_METADATA,
    ),
    Endpoint(
        "PUT",
        "/{topic}/properties",
        calls(TopicAdmin.set_properties, TOPIC, body(text_changes, "properties")),
        "add properties",
        T.UPDATE_METADATA,
        body="map<string,string>",
    ),
    Endpoint(
        "DELETE",
        "/{topic}/properties",
        calls(TopicAdmin.set_properties, TOPIC, _removed),
        "remove a property",
        T.DELETE_METADATA,
        parameters=(Parameter("key", "text"),),
    ),
    Endpoint(
        "GET",
        "/{topic}/permissions",
        calls(TopicAdmin.permissions, TOPIC, answer=_permissions),
        "permissions of a topic",
        T.GET_PERMISSION,
    ),
    Endpoint(
        "POST",
        "/{topic}/permissions/{role}",
        calls(TopicAdmin.set_permissions, TOPIC, variable("role"), body(choices(*ACTIONS), "actions")),
        "grant permissions to a role",
        T.GRANT_PERMISSION,
        body="array<AuthAction>",
        sets="permissions",
    ),
    Endpoint(
        "DELETE",
        "/{topic}/permissions/{role}",
        calls(TopicAdmin.set_permissions, TOPIC, variable("role"), always(None)),
        "revoke the permissions of a role",
        T.REVOKE_PERMISSION,
    ),
    Endpoint("GET", "/{topic}/lastMessageId", _last_message_id, "id of the last message", T.PEEK_MESSAGES),
    Endpoint(
        "GET",
        "/{topic}/messageid/{timestamp}",
        _message_id_at,
        "the first message published since a time",
        T.PEEK_MESSAGES,
    ),
    Endpoint(
        "PUT",
        "/{topic}/backlogSize",
        calls(
            TopicAdmin.backlog_size, TOPIC, lambda request: message_position(request.json()), answer=as_json
        ),
        "size of the backlog from a message on, in bytes",
        T.GET_BACKLOG_SIZE,
        asks=True,
        body="MessageId",
        success=200,
    ),
    Endpoint(
        "POST",
        "/{topic}/trim",
        calls(TopicAdmin.trim, TOPIC, answer=done),
        "delete ledgers that are no longer needed",
        T.TRIM_TOPIC,
        success=200,
        each=True,
    ),
    *MESSAGES,
    *SUBSCRIPTIONS,
)
"""Endpoints for topics; their paths are relative to the path of the namespace."""


_BUNDLE = Endpoint(
    "GET",
    "/{bundle}",
    calls(TopicListAdmin.of_bundle, NAMESPACE, variable("bundle"), answer=json_or(204)),
    "list the loaded topics of a bundle",
    N.GET_BUNDLE,
    refusals={412: "the bundle does not exist"},
)
"""The endpoint that lists the non-persistent topics of a bundle, which exist only in the memory of their
broker.
"""


def _rows(domain: str) -> Sequence[Endpoint]:
    if domain == "persistent":
        return _ROWS
    refused = {(method, rest): (error, reason) for method, rest, error, reason in NOT_STORED}
    known = {(row.method, row.path): row for row in (*_ROWS, _BUNDLE)}
    rows = [row for at, row in known.items() if at not in refused]
    for at, (error, reason) in refused.items():
        row = known[at]
        handler = _refused(error, reason)
        refusals = {error(reason).http_status: reason}
        rows.append(
            replace(row, handler=handler, description=f"refused: {reason}", refusals=refusals, each=False)
        )
    return rows


def _endpoints() -> Sequence[Endpoint]:
    found = []
    for domain in _DOMAINS:
        new = f"/admin/v2/{domain}/{{tenant}}/{{namespace}}"
        legacy = (
            f"/admin/{domain}/{{tenant}}/{{cluster}}/{{namespace}}",
            f"/admin/v2/{domain}/{{tenant}}/{{cluster}}/{{namespace}}",
        )
        for row in _rows(domain):
            # Elsewhere the part after a topic would read as a legacy topic, and the last part of a legacy
            # namespace as a bundle: only the old prefix has these aliases.
            bare = row.path in ("/{topic}", "/{bundle}") or (domain == "non-persistent" and not row.path)
            aliases = tuple(path + row.path for path in (legacy[:1] if bare else legacy))
            found.append(replace(row, path=new + row.path, aliases=aliases, constants={"domain": domain}))
    return found


TOPICS: Sequence[Endpoint] = _endpoints()
