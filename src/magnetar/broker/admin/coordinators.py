"""Administration of transaction coordinators and of their transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.admin.brokers import elsewhere
from magnetar.broker.admin.topic_transactions import (
    REST,
    TopicTransactionAdmin,
    log_stats,
    transactions_disabled,
)
from magnetar.broker.ownership.contract import Asked
from magnetar.broker.ownership.peers import PeerRefused, ask_object
from magnetar.broker.service import BrokerService
from magnetar.errors import InvalidRequest, NotFound
from magnetar.io.waiting import outcome, together

if TYPE_CHECKING:
    from magnetar.broker.coordination.coordinator import Coordinator
    from magnetar.broker.coordination.coordinators import Coordinators

Json = dict[str, object]
_NOT_FOUND = 404
_AT_ONCE = 16
"""The maximum number of transactions whose topics and subscriptions are queried at the same time."""
_MOST = 1024
"""The maximum number of coordinators in a cluster: each has a log, and clients connect to all of them."""


class CoordinatorAdmin:
    def __init__(self, broker: BrokerService, topics: TopicTransactionAdmin) -> None:
        self._broker = broker
        self._topics = topics

    # Listing coordinators

    async def addresses(self) -> Sequence[Mapping[str, object]]:
        """Returns the coordinators, each with the address of the broker that serves it.

        :raises ServiceNotReady: transactions are disabled, or an owner cannot be determined now
        """
        coordinators = self._enabled()
        found = []
        for number in range(await coordinators.count()):
            owner = await coordinators.owner(number, Asked.PLACE)
            told = owner.addresses
            found.append({"id": number, "brokerServiceUrl": told.binary or told.binary_tls or ""})
        return found

    async def raise_count(self, count: int) -> None:
        """Raises the number of coordinators to ``count``. Clients must be restarted to use the new
        coordinators.

        :raises PartitionCountRefused: at least ``count`` coordinators exist
        :raises InvalidRequest: ``count`` is above 1024
        """
        coordinators = self._enabled()
        if count > _MOST:
            raise InvalidRequest(f"At most {_MOST} transaction coordinators are possible, not {count}")
        await coordinators.raise_count(count)

    # One coordinator

    async def stats(self, number: int | None, *, authoritative: bool) -> Mapping[str, object]:
        """Returns ``TransactionCoordinatorStats`` of a coordinator.

        :param number: the coordinator's number; None: all coordinators that are loaded, by number
        :raises NotFound: the coordinator is not loaded
        :raises ServedElsewhere: another broker serves the coordinator
        """
        if number is not None:
            return await _stats(await self._here(number, authoritative=authoritative))
        found = await self._everywhere(_stats, f"{REST}/coordinatorStats")
        return {str(each): stats for each, stats in found.items()}

    async def internal_stats(self, number: int, *, metadata: bool, authoritative: bool) -> Json:
        """Returns ``TransactionCoordinatorInternalStats``: the statistics of a coordinator's log.

        :param metadata: add the metadata of each ledger
        :raises NotFound: the coordinator is not loaded
        :raises ServedElsewhere: another broker serves the coordinator
        """
        coordinator = await self._here(number, authoritative=authoritative)
        stats = await log_stats(self._broker.io, coordinator.log.managed_ledger, metadata=metadata)
        return {"transactionLogStats": stats}

    # Transactions

    async def transaction(self, number: int, least: int, *, authoritative: bool) -> Json:
        """Returns ``TransactionMetadata`` of a transaction that has not ended.

        :param number: the coordinator, the most significant part of the transaction's id
        :param least: the least significant part of the transaction's id
        :raises TransactionNotFound: the transaction does not exist, or has ended
        :raises NotFound: the coordinator is not loaded
        :raises ServedElsewhere: another broker serves the coordinator
        """
        coordinator = await self._here(number, authoritative=authoritative)
        return await self._topics.ends(coordinator.transaction(least))

    async def slow(
        self, milliseconds: int, number: int | None, *, authoritative: bool
    ) -> Mapping[str, object]:
        """Returns ``TransactionMetadata`` of the transactions that have been open for longer than
        ``milliseconds``, by id.

        :param number: a coordinator; None: all coordinators that are loaded
        :raises NotFound: the coordinator is not loaded
        :raises ServedElsewhere: another broker serves the coordinator
        """
        if number is not None:
            return await self._slow(milliseconds, await self._here(number, authoritative=authoritative))
        parts = await self._everywhere(
            partial(self._slow, milliseconds), f"{REST}/slowTransactions/{milliseconds}"
        )
        return {name: each for part in parts.values() for name, each in part.items()}

    async def abort(self, number: int, least: int, *, authoritative: bool) -> None:
        """Aborts an open transaction; returns when the abort has reached all its topics and subscriptions.

        :raises TransactionNotFound: the transaction does not exist, or has ended
        :raises InvalidTransactionStatus: the transaction is being committed
        :raises NotFound: the coordinator is not loaded
        :raises ServedElsewhere: another broker serves the coordinator
        """
        coordinator = await self._here(number, authoritative=authoritative)
        # One that has ended is not found, as it could not be aborted any more.
        coordinator.transaction(least)
        await outcome(self._broker.io.loop, coordinator.end(least, commit=False))

    async def _slow(self, milliseconds: int, coordinator: Coordinator) -> Json:
        before = self._broker.io.clock.wall_ms() - milliseconds
        slow = [each for each in coordinator.transactions.values() if each.started_ms < before]
        found = await together(self._broker.io.loop, slow, self._topics.ends, _AT_ONCE)
        return {"({},{})".format(*each.id): told for each, told in zip(slow, found, strict=True)}

    # Requests to their brokers

    def _enabled(self) -> Coordinators:
        found = self._broker.coordinators
        if found is None:
            raise transactions_disabled()
        return found

    async def _here(self, number: int, *, authoritative: bool) -> Coordinator:
        """Returns a coordinator that this broker serves.

        :param authoritative: whether the leader has chosen this broker to serve the coordinator

        :raises NotFound: the coordinator is not loaded
        :raises ServedElsewhere: another broker serves the coordinator
        """
        coordinators = self._enabled()
        owner = await coordinators.owner(number, Asked.TAKE if authoritative else Asked.PLACE)
        if not owner.here:
            raise elsewhere(f"Transaction coordinator {number} is served by {owner.broker_id}", owner)
        found = coordinators.loaded.get(number)
        if found is None or found.closed:
            raise NotFound(f"Transaction coordinator not found! coordinator id : {number}")
        return found

    async def _everywhere(self, here: Callable[[Coordinator], Awaitable[Json]], path: str) -> dict[int, Json]:
        """Returns the answers of all coordinators that are loaded, on any broker, by number.

        :param here: returns the answer of a coordinator of this broker
        :param path: the path of the request to another broker, which answers with the same JSON
        """
        coordinators = self._enabled()
        found: dict[int, Json] = {}
        for number in range(await coordinators.count()):
            owner = await coordinators.owner(number, Asked.PLACE)
            if owner.here:
                coordinator = coordinators.loaded.get(number)
                if coordinator is not None and not coordinator.closed:
                    found[number] = await here(coordinator)
                continue
            query = {"coordinatorId": str(number)}
            try:
                found[number] = await ask_object(self._broker.beside, owner, path, query)
            except PeerRefused as error:
                if error.status != _NOT_FOUND:
                    raise
        return found


async def _stats(coordinator: Coordinator) -> Json:
    return {
        "state": "Ready",
        "leastSigBits": coordinator.last_id,
        "lowWaterMark": coordinator.low_water_mark(),
        "ongoingTxnSize": len(coordinator.transactions),
        "recoverStartTime": coordinator.recovery_began_ms,
        "recoverEndTime": coordinator.recovery_ended_ms,
    }
