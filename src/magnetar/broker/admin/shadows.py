"""Checks of which topic may be a shadow of which (PIP-180)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.broker.service import BrokerService
from magnetar.errors import AuthorizationFailure, PreconditionFailed
from magnetar.naming.errors import InvalidName
from magnetar.naming.shadows import SHADOW_SOURCE, shadow_source
from magnetar.naming.topic_name import TopicName


async def check_source(broker: BrokerService, name: TopicName, text: str, partitions: int = 0) -> None:
    """Checks that a new topic may be the shadow of another one.

    :param text: name of the source
    :param partitions: of the new topic; 0: not partitioned
    :raises PreconditionFailed: the source is missing, is a shadow itself, or has another number of partitions
    """
    try:
        source = TopicName.parse(text)
    except InvalidName as error:
        raise PreconditionFailed(
            f"{SHADOW_SOURCE} is {text!r}, which is not the name of a topic: {error}"
        ) from error
    if not source.persistent or source == name:
        raise PreconditionFailed(f"{source} cannot be the source of {name}: use another persistent topic")
    properties = await _properties(broker, source)
    if properties is None:
        raise PreconditionFailed(
            f"The source {source} of shadow topic {name} does not exist: create it first"
        )
    if SHADOW_SOURCE in properties:
        raise PreconditionFailed(
            f"{source} is itself a shadow topic, of {properties[SHADOW_SOURCE]}: use that topic as the source"
        )
    count = await broker.namespaces.partitions(source)
    if count != partitions:
        raise PreconditionFailed(
            f"The source {source} has {count} partitions, but its shadow {name} would have {partitions}: "
            "both must have the same number"
        )


async def check_shadows(broker: BrokerService, source: TopicName, shadows: Sequence[str]) -> None:
    """Checks that a topic may have these topics as its shadows.

    :raises PreconditionFailed: the list is empty, or one is missing or not a shadow of this topic
    :raises AuthorizationFailure: one is not the name of a persistent topic, as in Pulsar
    """
    if not shadows:
        raise PreconditionFailed("Cannot specify empty shadow topics, please use remove command instead.")
    for text in shadows:
        try:
            name = TopicName.parse(text)
        except InvalidName as error:
            raise AuthorizationFailure(f"Invalid topic name: {text}") from error
        if not name.persistent:
            raise AuthorizationFailure(f"Only persistent topics can be shadow topics, not {name}")
        if name == source:
            raise PreconditionFailed(f"{name} cannot be a shadow topic of itself")
        properties = await _properties(broker, name)
        if properties is None:
            raise PreconditionFailed(
                f"Shadow topic {name} does not exist: create it with create-shadow-topic"
            )
        if shadow_source(properties, name) != source:
            raise PreconditionFailed(
                f"{name} is not a shadow topic of {source}: create one with create-shadow-topic -s {source}"
            )


async def _properties(broker: BrokerService, name: TopicName) -> Mapping[str, str] | None:
    """Returns the properties of a topic, on any broker; None: no such topic."""
    if await broker.namespaces.partitions(name):
        found: Mapping[str, str] = (await broker.namespaces.partitioned(name)).get("properties") or {}
        return found
    return await broker.managed_ledgers.properties(name.path)
