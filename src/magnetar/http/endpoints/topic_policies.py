"""Endpoints for the policies of single topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from magnetar.http.endpoints.namespace_policies import KINDS, NOT_THERE, QUOTA_TYPE, reads, writes
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Endpoint, Handler, Parameter
from magnetar.http.shapes import policies as shapes
from magnetar.http.shapes.fields import Shape, always, at_least, body, cap, choice, texts, truth, whole
from magnetar.http.shapes.names import topic_of
from magnetar.lazy_dataclass import dataclass
from magnetar.security.authorization import PolicyName as P

_DOMAINS = ("persistent", "non-persistent")


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """A topic policy, which has up to three endpoints: get, set and remove."""

    path: str
    field: str
    """The field of ``TopicPolicies`` in which the policy is stored."""
    shape: Shape
    method: str = "POST"
    unset: object = None
    """The answer of the get endpoint if the policy is not set; None: an empty body."""
    unset_status: int = 200
    applied: bool = True
    """Whether the get endpoint supports the query parameter ``applied=true``, which requests the effective
    value.
    """
    removable: bool = True
    empty_keeps: bool = False
    """Whether setting with an empty body leaves the policy unchanged; otherwise, it removes the policy."""


def _least_zero(name: str, reason: str, bits: int = 32) -> Shape:
    return at_least(0, body(whole(bits), name), reason)


def _ttl(request: Request) -> object:
    """Returns the message TTL in the query, in seconds.

    :raises InvalidRequest: the value is not a 32-bit integer
    """
    return whole()("messageTTL", request.query.get("messageTTL", "0"))


_TTL = at_least(0, _ttl, "Invalid value for message TTL")


def _object(path: str, field: str, check: Any, **options: Any) -> TopicPolicy:
    return TopicPolicy(path, field, shapes.optional(check, path), **options)


POLICIES: Sequence[TopicPolicy] = (
    TopicPolicy(
        "compactionThreshold",
        "compactionThreshold",
        _least_zero("compactionThreshold", "Invalid value for compactionThreshold", 64),
    ),
    TopicPolicy(
        "deduplicationEnabled", "deduplicationEnabled", shapes.optional(truth, "deduplicationEnabled")
    ),
    TopicPolicy(
        "deduplicationSnapshotInterval",
        "deduplicationSnapshotIntervalSeconds",
        _least_zero("interval", "interval must be 0 or more"),
    ),
    _object("dispatchRate", "dispatchRate", shapes.DISPATCH_RATE, empty_keeps=True),
    _object("subscriptionDispatchRate", "subscriptionDispatchRate", shapes.DISPATCH_RATE, empty_keeps=True),
    _object("replicatorDispatchRate", "replicatorDispatchRate", shapes.DISPATCH_RATE, empty_keeps=True),
    _object("subscribeRate", "subscribeRate", shapes.SUBSCRIBE_RATE, empty_keeps=True),
    _object(
        "publishRate", "publishRate", shapes.PUBLISH_RATE, empty_keeps=True, unset_status=204, applied=False
    ),
    _object("inactiveTopicPolicies", "inactiveTopicPolicies", shapes.INACTIVE_TOPICS),
    TopicPolicy("maxConsumers", "maxConsumerPerTopic", cap("maxConsumers")),
    TopicPolicy(
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
        _least_zero("maxConsumersPerSubscription", "Invalid value for maxConsumersPerSubscription"),
        unset_status=204,
        applied=False,
    ),
    TopicPolicy("maxProducers", "maxProducerPerTopic", cap("maxProducers")),
    TopicPolicy(
        "maxSubscriptionsPerTopic",
        "maxSubscriptionsPerTopic",
        cap("maxSubscriptionsPerTopic"),
        unset_status=204,
        applied=False,
    ),
    TopicPolicy(
        "maxMessageSize", "maxMessageSize", body(whole(), "maxMessageSize"), unset_status=204, applied=False
    ),
    TopicPolicy(
        "maxUnackedMessagesOnConsumer",
        "maxUnackedMessagesOnConsumer",
        cap("maxUnackedNum"),
    ),
    TopicPolicy("maxUnackedMessagesOnSubscription", "maxUnackedMessagesOnSubscription", cap("maxUnackedNum")),
    TopicPolicy("messageTTL", "messageTTLInSeconds", _TTL),
    TopicPolicy("persistence", "persistence", shapes.persistence),
    _object("retention", "retentionPolicies", shapes.RETENTION),
    TopicPolicy(
        "schemaCompatibilityStrategy",
        "schemaCompatibilityStrategy",
        body(choice(*shapes.STRATEGIES), "schemaCompatibilityStrategy", required=None),
        "PUT",
    ),
    TopicPolicy(
        "schemaValidationEnforced",
        "schemaValidationEnforced",
        body(truth, "schemaValidationEnforced"),
        unset=False,
        removable=False,
    ),
    TopicPolicy(
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
        shapes.SUBSCRIPTION_TYPE_SET,
        unset=[],
        applied=False,
    ),
    _object("autoSubscriptionCreation", "autoSubscriptionCreationOverride", shapes.AUTO_SUBSCRIPTIONS),
    TopicPolicy("entryFilters", "entryFilters", shapes.entry_filters),
    TopicPolicy(
        "dispatcherPauseOnAckStatePersistent",
        "dispatcherPauseOnAckStatePersistentEnabled",
        always(True),
        unset=False,
    ),
    TopicPolicy("replication", "replicationClusters", body(texts, "clusterIds")),
    TopicPolicy("shadowTopics", "shadowTopics", body(texts, "shadowTopics"), "PUT", applied=False),
    _object("offloadPolicies", "offloadPolicies", shapes.OFFLOAD),
)


def _everywhere(request: Request) -> bool:
    return request.flag("isGlobal")


def _answer(value: object, unset: object, status: int) -> Response:
    if value is None:
        value = unset
    return json_response(value) if value is not None else Response(status)


async def _value(application: Application, request: Request, field: str, *, applied: bool) -> object:
    topic = topic_of(request.variables)
    admin = application.admin.topic_policies
    if applied and request.flag("applied"):
        return await admin.applied(topic, field)
    return (await admin.policies(topic, everywhere=_everywhere(request))).get(field)


async def _change(
    application: Application,
    request: Request,
    changes: Mapping[str, object],
    field: str,
    key: str | None = None,
) -> Response:
    await application.admin.topic_policies.set_policy(
        topic_of(request.variables), changes, everywhere=_everywhere(request), field=field, key=key
    )
    return nothing()


def _getter(policy: TopicPolicy) -> Handler:
    async def get_policy(application: Application, request: Request) -> Response:
        value = await _value(application, request, policy.field, applied=policy.applied)
        return _answer(value, policy.unset, policy.unset_status)

    return get_policy


def _setter(policy: TopicPolicy) -> Handler:
    async def set_policy(application: Application, request: Request) -> Response:
        value = policy.shape(request)
        if value is None and policy.empty_keeps:
            return nothing()
        return await _change(application, request, {policy.field: value}, policy.field)

    return set_policy


def _remover(policy: TopicPolicy) -> Handler:
    async def remove_policy(application: Application, request: Request) -> Response:
        return await _change(application, request, {policy.field: None}, policy.field)

    return remove_policy


# Policies that are not one field

_DELAYED = {
    "active": "delayedDeliveryEnabled",
    "tickTime": "delayedDeliveryTickTimeMillis",
    "maxDeliveryDelayInMillis": "delayedDeliveryMaxDelayInMillis",
}


async def _get_delayed(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    admin = application.admin.topic_policies
    if request.flag("applied"):
        return json_response(await admin.applied(topic, "delayedDelivery"))
    own = await admin.policies(topic, everywhere=_everywhere(request))
    if own.get("delayedDeliveryEnabled") is None or own.get("delayedDeliveryTickTimeMillis") is None:
        return Response(200)
    return json_response(
        {
            "tickTime": own["delayedDeliveryTickTimeMillis"],
            "active": own["delayedDeliveryEnabled"],
            "maxDeliveryDelayInMillis": own.get("delayedDeliveryMaxDelayInMillis", 0),
        }
    )


async def _set_delayed(application: Application, request: Request) -> Response:
    given = shapes.optional(shapes.DELAYED_DELIVERY, "delayedDelivery")(request) or {}
    changes = {field: given.get(name) for name, field in _DELAYED.items()}
    return await _change(application, request, changes, "delayedDeliveryEnabled")


async def _remove_delayed(application: Application, request: Request) -> Response:
    return await _change(application, request, dict.fromkeys(_DELAYED.values()), "delayedDeliveryEnabled")


async def _get_quotas(application: Application, request: Request) -> Response:
    found = await _value(application, request, "backLogQuotaMap", applied=True)
    return json_response(found or {})


async def _set_quota(application: Application, request: Request) -> Response:
    value = shapes.quota(request)
    kind = shapes.quota_type(request)
    return await _change(application, request, {"backLogQuotaMap": value}, "backLogQuotaMap", kind)


async def _remove_quota(application: Application, request: Request) -> Response:
    kind = shapes.quota_type(request)
    return await _change(application, request, {"backLogQuotaMap": None}, "backLogQuotaMap", kind)


async def _get_subscription_rate(application: Application, request: Request) -> Response:
    topic = topic_of(request.variables)
    admin = application.admin.topic_policies
    own = await admin.policies(topic, everywhere=_everywhere(request))
    mine = (own.get("subscriptionPolicies") or {}).get(request.variables["subscription"]) or {}
    applied = request.flag("applied")
    if mine.get("dispatchRate") is None and applied:
        return json_response(await admin.applied(topic, "subscriptionDispatchRate"))
    return _answer(mine.get("dispatchRate"), None, 200)


async def _set_subscription_rate(application: Application, request: Request) -> Response:
    rate = body(shapes.DISPATCH_RATE, "dispatchRate")(request)
    changes = {"subscriptionPolicies": {"dispatchRate": rate}}
    return await _change(
        application, request, changes, "subscriptionPolicies", request.variables["subscription"]
    )


async def _remove_subscription_rate(application: Application, request: Request) -> Response:
    changes = {"subscriptionPolicies": None}
    return await _change(
        application, request, changes, "subscriptionPolicies", request.variables["subscription"]
    )


async def _delete_all(application: Application, request: Request) -> Response:
    await application.admin.topic_policies.delete(topic_of(request.variables))
    return nothing()


_EVERYWHERE = Parameter("isGlobal", "truth", "false")
_APPLIED = Parameter("applied", "truth", "false")
_QUOTA = (QUOTA_TYPE, _EVERYWHERE)
_READ = (_APPLIED, _EVERYWHERE)
_ALONE = (_EVERYWHERE,)
_RATE = "/{subscription}/dispatchRate"

_OTHERS: Sequence[Endpoint] = (
    Endpoint("GET", "/delayedDelivery", _get_delayed, "", reads(P.DELAYED_DELIVERY), (), _READ),
    Endpoint(
        "POST",
        "/delayedDelivery",
        _set_delayed,
        "",
        writes(P.DELAYED_DELIVERY),
        (),
        _ALONE,
        "DelayedDeliveryPolicies",
        sets="delayedDeliveryEnabled",
    ),
    Endpoint("DELETE", "/delayedDelivery", _remove_delayed, "", writes(P.DELAYED_DELIVERY), (), _ALONE),
    Endpoint("GET", "/backlogQuotaMap", _get_quotas, "", reads(P.BACKLOG), (), _READ),
    Endpoint(
        "POST",
        "/backlogQuota",
        _set_quota,
        "",
        writes(P.BACKLOG),
        (),
        _QUOTA,
        "BacklogQuota",
        sets="backLogQuotaMap",
    ),
    Endpoint("DELETE", "/backlogQuota", _remove_quota, "", writes(P.BACKLOG), (), _QUOTA),
    Endpoint("GET", _RATE, _get_subscription_rate, "", reads(P.RATE), (), _READ),
    Endpoint(
        "POST",
        _RATE,
        _set_subscription_rate,
        "",
        writes(P.RATE),
        (),
        _ALONE,
        "DispatchRate",
        sets="subscriptionPolicies",
    ),
    Endpoint("DELETE", _RATE, _remove_subscription_rate, "", writes(P.RATE), (), _ALONE),
    Endpoint("DELETE", "/policies", _delete_all, "", writes(P.ALL)),
)


def _of_policy(policy: TopicPolicy) -> Iterator[Endpoint]:
    kind, path = KINDS[policy.path], f"/{policy.path}"
    reading, writing = reads(kind.policy), writes(kind.policy)
    unset = {204: "the policy is not set"} if policy.unset_status == 204 else {}
    asked = _READ if policy.applied else _ALONE
    yield Endpoint("GET", path, _getter(policy), "", reading, (), asked, refusals=unset)
    # The only policy whose value is not in the body.
    in_query = policy.shape is _TTL
    yield Endpoint(
        policy.method,
        path,
        _setter(policy),
        "",
        writing,
        (),
        (Parameter("messageTTL", "whole", "0"), *_ALONE) if in_query else _ALONE,
        "" if in_query else kind.body,
        refusals=NOT_THERE,
        sets=policy.field,
    )
    if policy.removable:
        yield Endpoint("DELETE", path, _remover(policy), "", writing, (), _ALONE)


TOPIC_POLICIES: Sequence[Endpoint] = [
    replace(
        row,
        path=f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}{row.path}",
        description=f"{row.path.rpartition('/')[2]} of a topic",
        constants={"domain": domain},
        refusals={**row.refusals, 405: "topic policies are disabled"},
    )
    for domain in _DOMAINS
    for row in (*_OTHERS, *chain.from_iterable(map(_of_policy, POLICIES)))
]
