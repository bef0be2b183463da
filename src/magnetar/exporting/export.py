"""Selects topics, checks whether they can be exported, and exports them one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from magnetar.broker.policies.store import CHANGE_EVENTS
from magnetar.broker.system_topics import change_events
from magnetar.exporting.checks import Known, known_of, of_transactions, refusals, too_many_copies
from magnetar.exporting.namespaces import NamespaceExport, WhichPolicies, namespaces_of
from magnetar.exporting.stored_topics import NotExported, OpenStores, Unit, managed_ledgers_of
from magnetar.exporting.topic_export import PARTITIONED, Keep, TopicExport
from magnetar.exporting.topic_policies import read_policies
from magnetar.lazy_dataclass import dataclass
from magnetar.managed_ledger.exports import notes
from magnetar.managed_ledger.records import ROOT
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, TopicName, decode_path_piece


@dataclass(frozen=True)
class Selection:
    """The selected topics; an empty selection means everything."""

    topics: frozenset[TopicName] = frozenset()
    """The selected topics, without partition indexes."""
    namespaces: frozenset[NamespaceName] = frozenset()

    @property
    def everything(self) -> bool:
        return not self.topics and not self.namespaces

    def has(self, topic: TopicName) -> bool:
        return self.everything or topic in self.topics or topic.namespace_name in self.namespaces


@dataclass
class ExportPlan:
    units: list[Unit] = field(default_factory=list)
    namespaces: list[NamespaceName] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """The reasons why the export is refused, one sentence each; empty: the export is not refused."""
    left_out: list[str] = field(default_factory=list)
    """The objects that are not exported, with reasons."""


class Export:
    def __init__(
        self, source: OpenStores, target: OpenStores, which: WhichPolicies = WhichPolicies.REFUSE
    ) -> None:
        self._source = source
        self._target = target
        self._namespaces = NamespaceExport(source, target, which)

    async def plan(self, selection: Selection) -> ExportPlan:
        """Determines which topics would be exported, and whether they can be exported; writes nothing.

        :raises ManagedLedgerError: a record cannot be read
        :raises MetadataError: a store does not answer
        :raises LedgerError: policies of topics cannot be read
        """
        source, target = self._source, self._target
        if source.identity == target.identity:
            return ExportPlan(refusals=[f"source and target are the same: {source.name}"])
        if shared := self._shared():
            return ExportPlan(refusals=shared)
        plan = ExportPlan()
        for side in (source, target):
            plan.refusals += [f"{each}; stop it first" for each in side.served_by]
        left, arriving = await notes(source.metadata), await notes(target.metadata)
        units = await self._units(selection, plan)
        for path, note in {**left, **arriving}.items():
            name = TopicName.from_path(path)
            ours = note.peer in (source.identity, target.identity)
            if ours and selection.has(name) and name not in units:
                units[name] = Unit(name)
        plan.units = [units[name] for name in sorted(units, key=str)]
        missing = sorted(str(name) for name in selection.topics if name not in units)
        plan.refusals += [f"{source.name} has no topic {name}" for name in missing]
        known: dict[NamespaceName, Known] = {}
        for unit in plan.units:
            namespace = unit.name.namespace_name
            if namespace not in known:
                known[namespace] = await known_of(source, target, namespace)
            begun = left.get(unit.path), arriving.get(unit.path)
            plan.refusals += await refusals(source, target, unit, begun, known[namespace])
        for namespace in plan.namespaces:
            plan.refusals += await self._namespaces.refusals(namespace)
            plan.refusals += await self._policies_refused(namespace, units)
        return plan

    def _shared(self) -> list[str]:
        """Returns the reasons why no topic can be exported because both sides share their ledgers.

        After an interruption, an export deletes the ledgers that it created but did not record. It recognizes
        them by the topic in their custom metadata; if both sides share their ledgers, the source's own
        ledgers have the same topic in their custom metadata.
        """
        source, target = self._source, self._target
        if not source.bookies or source.bookies != target.bookies:
            return []
        return [
            f"{source.name} and {target.name} keep their ledgers on the same bookies, where ledgers left "
            "by an interrupted export could not be distinguished from the topic's own ledgers"
        ]

    async def _policies_refused(self, namespace: NamespaceName, units: dict[TopicName, Unit]) -> list[str]:
        if not self._target.one_copy:
            return []
        found = []
        for key, policies in (await read_policies(self._source, namespace)).items():
            why = too_many_copies(key, policies)
            if why and change_events.topic_of(key) in units:
                found.append(why)
        return found

    async def _units(self, selection: Selection, plan: ExportPlan) -> dict[TopicName, Unit]:
        units: dict[TopicName, Unit] = {}
        wanted = selection.namespaces | {name.namespace_name for name in selection.topics}
        known = await namespaces_of(self._source)
        missing = sorted(str(each) for each in selection.namespaces - set(known))
        plan.refusals += [f"{self._source.name} has no namespace {each}" for each in missing]
        for namespace in known:
            if not selection.everything and namespace not in wanted:
                continue
            found = await self._units_in(namespace, selection, plan)
            # A legacy namespace names a cluster: without topics there is no reason to create it elsewhere.
            if found or namespace in selection.namespaces or not namespace.legacy:
                plan.namespaces.append(namespace)
            units |= found
        return units

    async def _units_in(
        self, namespace: NamespaceName, selection: Selection, plan: ExportPlan
    ) -> dict[TopicName, Unit]:
        metadata, units = self._source.metadata, dict[TopicName, Unit]()
        parts: list[tuple[int, TopicName, str]] = []
        for domain in Domain:
            below = f"{namespace.path}/{domain.value}"
            for piece in await metadata.children(f"{PARTITIONED}/{below}"):
                name = self._name(domain, namespace, piece)
                if selection.has(name):
                    units[name] = Unit(name)
            for piece in await metadata.children(f"{ROOT}/{below}"):
                name = self._name(domain, namespace, piece)
                if not selection.has(name.base):
                    continue
                if name.local == CHANGE_EVENTS:
                    # The policies of topics are exported with the topics.
                    continue
                if of_transactions(name.local):
                    plan.left_out.append(f"{name} has transaction state, which cannot be exported")
                    continue
                parts.append((name.partition_index, name.base, f"{below}/{piece}"))
        for _index, name, path in sorted(parts, key=lambda part: (str(part[1]), part[0])):
            units.setdefault(name, Unit(name)).managed_ledgers.append(path)
        return units

    @staticmethod
    def _name(domain: Domain, namespace: NamespaceName, piece: str) -> TopicName:
        try:
            return TopicName(domain, namespace, decode_path_piece(piece))
        except InvalidName as error:
            raise NotExported(
                f"{namespace}/{domain.value}/{piece} is not the name of a topic: {error}"
            ) from error

    async def give_up(self, selection: Selection, told: Callable[[Unit], None]) -> list[str]:
        """Removes from the target the data of interrupted exports.

        :returns: the reasons why data could not be removed, one sentence each
        :param told: called with each topic that was removed from the target
        """
        refused = self._shared()
        if refused:
            return refused
        left, arriving = await notes(self._source.metadata), await notes(self._target.metadata)
        begun = {path for path, note in arriving.items() if note.peer == self._source.identity}
        begun |= {path for path, note in left.items() if note.peer == self._target.identity}
        for path in sorted(begun):
            name = TopicName.from_path(path)
            if not selection.has(name):
                continue
            parts = await managed_ledgers_of(self._source, name)
            unit = Unit(name, parts)
            try:
                await TopicExport(self._source, self._target, unit, lambda _lines: None).give_up()
            except NotExported as error:
                refused.append(str(error))
            else:
                told(unit)
        return refused

    async def run(self, plan: ExportPlan, keep: Keep, told: Callable[[Unit], None]) -> None:
        """Exports all topics of a plan.

        :param keep: writes lines of the mapping durably
        :param told: called with each exported topic
        :raises NotExported: a check fails, or another process interfered
        """
        if plan.refusals:
            raise NotExported(plan.refusals[0])
        for namespace in plan.namespaces:
            await self._namespaces.carry(namespace)
        for unit in plan.units:
            await TopicExport(self._source, self._target, unit, keep).run()
            told(unit)
