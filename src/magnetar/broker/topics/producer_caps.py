"""Limits of the producers that are connected to a topic, in total and per host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.producer import Producer


class _Settings(Protocol):
    @property
    def max_same_address_producers(self) -> int: ...


class Capped(Protocol):
    """A topic of either kind, as this module needs it."""

    full_name: str
    policies: EffectivePolicies

    @property
    def settings(self) -> _Settings: ...
    @property
    def producers(self) -> Mapping[str, Producer]: ...
    def local_producers(self) -> Collection[Producer]: ...


class Addressed(Protocol):
    @property
    def address(self) -> str: ...


def of_host(address: str, clients: Iterable[Addressed]) -> int:
    """Returns how many of the clients are connected from the host of an address."""
    host = address.rpartition(":")[0]
    return sum(client.address.rpartition(":")[0] == host for client in clients)


def reached_by_producer(topic: Capped, producer: Producer) -> str:
    """Returns the limit that keeps a producer out, or an empty string. Replicators of other clusters are not
    limited."""
    if producer.remote_cluster is not None:
        return ""
    cap, local = topic.policies.max_producers, topic.local_producers()
    if cap and len(local) >= cap and producer.name not in topic.producers:
        return f"Topic '{topic.full_name}' reached max producers limit"
    cap = topic.settings.max_same_address_producers
    if cap and of_host(producer.address, local) >= cap:
        return f"Topic '{topic.full_name}' reached max same address producers limit"
    return ""
