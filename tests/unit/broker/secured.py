"""A broker that asks its clients who they are, and whether they may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peers import TOPIC, Brokers, Peer, frame, subscribe_frame

from magnetar.errors import AuthenticationFailure
from magnetar.naming.namespace_name import NamespaceName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security.authentication import Claim, Principal
from magnetar.security.rules import Grants, PulsarRules

NAMESPACE = NamespaceName("public", None, "default")


class Words:
    """Takes the word of a client for its role, as long as it is said to be good."""

    asks = True
    authentication_counts = ()

    def __init__(self) -> None:
        self.lasts: dict[str, float] = {}
        """Seconds since 1970 until which a role is proven; others are for ever."""
        self.gone: set[str] = set()
        self.claims: list[Claim] = []
        self._listeners: list[Callable[[frozenset[str] | None], None]] = []

    async def authenticate(self, claim: Claim) -> Principal:
        self.claims.append(claim)
        role = claim.credentials[0].data.decode()
        if role in self.gone:
            raise AuthenticationFailure(f"nobody is {role}")
        return Principal(role, "word", None, self.lasts.get(role))

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        self._listeners.append(changed)

    def changed(self) -> None:
        for listener in self._listeners:
            listener(frozenset({"word"}))

    async def close(self) -> None:
        """It holds nothing."""


class Secured(Brokers):
    """``admin`` may do everything."""

    def __init__(self, **broker: Any) -> None:
        self.words = Words()
        self.superusers = {"admin"}
        self.replicators = {"broker-of-east"}

        def rules(grants: Grants) -> PulsarRules:
            return PulsarRules(
                grants,
                lambda: frozenset(self.superusers),
                replicators=lambda: frozenset(self.replicators),
            )

        super().__init__(self.words, make_authorizer=rules, **broker)

    def now(self) -> float:
        return self.world.simulation.io.clock.wall_ms() / 1000

    def grant(self, role: str, *actions: str) -> None:
        def work(record: dict[str, Any]) -> None:
            record["auth_policies"]["namespace_auth"][role] = list(actions)

        self.world.run(self.broker.policies.change_namespace(NAMESPACE, work))

    def peer(self, role: str, *, refreshes: bool = True, original: str = "") -> Peer:
        peer = Peer(self, connect=False)
        peer.may_be_closed = True
        command = BaseCommand(type=BaseCommand.CONNECT)
        command.connect.client_version = "test"
        command.connect.protocol_version = 21
        command.connect.auth_method_name = "word"
        command.connect.auth_data = role.encode()
        command.connect.feature_flags.supports_auth_refresh = refreshes
        if original:
            command.connect.original_auth_method = "word"
            command.connect.original_auth_data = original
        peer.connection.data_received(encoded(command))
        self.until(lambda: peer.closed or peer.count(BaseCommand.CONNECTED))
        return peer

    def producer(self, role: str, name: str = "") -> Peer:
        """:param name: of the producer; empty: the broker gives it one"""
        peer = self.peer(role)
        named = {"producer_name": name, "user_provided_producer_name": True} if name else {}
        peer.send(BaseCommand.PRODUCER, "producer", topic=TOPIC, producer_id=1, request_id=1, **named)
        self.until(lambda: peer.count(BaseCommand.PRODUCER_SUCCESS) or peer.count(BaseCommand.ERROR))
        return peer

    def consumer(self, role: str, subscription: str = "s") -> Peer:
        peer = self.peer(role)
        peer.connection.data_received(subscribe_frame(1, subscription, 0))
        self.until(lambda: peer.count(BaseCommand.SUCCESS) or peer.count(BaseCommand.ERROR))
        return peer

    def watcher(self, role: str) -> Peer:
        peer = self.peer(role)
        peer.send(
            BaseCommand.WATCH_TOPIC_LIST,
            "watchTopicList",
            request_id=1,
            watcher_id=1,
            namespace="public/default",
            topics_pattern="persistent://public/default/.*",
        )
        self.until(lambda: peer.count(BaseCommand.WATCH_TOPIC_LIST_SUCCESS) or peer.count(BaseCommand.ERROR))
        return peer


def encoded(command: BaseCommand) -> bytes:
    from magnetar.protocol.frames import encode_command

    return encode_command(command)


__all__ = ["NAMESPACE", "TOPIC", "Secured", "frame"]
