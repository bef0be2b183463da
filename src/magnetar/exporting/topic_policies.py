"""Exports topic policies, which are records in a system topic of the namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from magnetar.broker.policies.store import CHANGE_EVENTS
from magnetar.broker.system_topics import change_events
from magnetar.exporting.rewriting import without_id
from magnetar.exporting.stored_topics import NotExported, OpenStores, compacted_ledger_of, read_record
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.protocol.errors import ProtocolError

_READ_BYTES = 1 << 20

_NOTHING_SET: dict[str, object] = {
    "backLogQuotaMap": {},
    "subscriptionTypesEnabled": [],
    "subscriptionPolicies": {},
}
"""The fields that a record has even if no policy is set."""

Records = dict[str, dict[str, object]]
"""The topic policies of a namespace, by the key of the record that contains them."""


async def read_policies(side: OpenStores, namespace: NamespaceName) -> Records:
    """Returns the topic policies of a namespace; does not fence the writer of the system topic.

    :raises LedgerError: a ledger cannot be read
    """
    found: Records = {}
    await read_records(side, namespace, CHANGE_EVENTS, lambda entry: _apply(entry, found))
    return found


async def read_records(
    side: OpenStores, namespace: NamespaceName, local: str, take: Callable[[bytes], None]
) -> None:
    """Passes the entries of a compacted system topic to ``take``; does not fence the topic's writer.

    :raises LedgerError: a ledger cannot be read
    """
    name = TopicName(Domain.PERSISTENT, namespace, local).path
    topic = await read_record(side, name)
    if topic is None:
        return
    compacted = await compacted_ledger_of(side, name)
    if compacted is not None:
        await _read(side, compacted, lambda entry: take(without_id(entry)))
    for each in topic.record.ledgers:
        await _read(side, each.ledger_id, take)


async def _read(side: OpenStores, ledger_id: int, take: Callable[[bytes], None]) -> None:
    reader = await side.ledgers.open(ledger_id, recover=False)
    try:
        at, last = 0, await reader.last_add_confirmed()
        while at <= last:
            for run in await reader.read(at, last, _READ_BYTES):
                for index in range(run.count):
                    take(run.entry(index))
                at += run.count
    finally:
        reader.close()


def _apply(entry: bytes, found: Records) -> None:
    try:
        changes = list(change_events.decode(entry))
    except ProtocolError:
        # Clients with permission to publish to the topic can write anything: ignore other messages.
        return
    for change in changes:
        if change.policies is None:
            found.pop(change.key, None)
        else:
            found[change.key] = change.policies


async def carry_policies(source: OpenStores, target: OpenStores, topic: TopicName) -> None:
    """Copies the topic policies of the source to the target, where they replace any existing ones.

    :raises NotExported: topic policies are disabled at the target
    :raises BrokerError: policies cannot be read or set
    """
    known, policies = source.broker.policies.topics, target.broker.policies.topics
    if known is None:
        return
    for everywhere in (False, True):
        wanted = dict(await known.own(topic, everywhere=everywhere))
        here = {} if policies is None else await policies.own(topic, everywhere=everywhere)
        if _without_place(wanted) == _without_place(here):
            continue
        if policies is None:
            raise NotExported(
                f"{topic} has topic policies, but {target.name} does not store them "
                "(systemTopicEnabled=false)"
            )

        def work(record: dict[str, object], wanted: dict[str, object] = wanted) -> None:
            record.clear()
            record.update(_NOTHING_SET | wanted)

        await policies.change(topic, work, everywhere=everywhere)


def _without_place(policies: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in policies.items() if value not in ({}, []) and key != "isGlobal"}


async def forget_policies(source: OpenStores, topic: TopicName) -> None:
    """Removes the policies of a topic that has left the source."""
    if source.broker.policies.topics is not None:
        await source.broker.policies.topics.delete(topic)
