"""Topics that are being loaded while their bundle is given up."""

from __future__ import annotations

from typing import Any

import pytest
from lived import NAME, Lived

from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Owner
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.errors import ServiceNotReady
from magnetar.io.waiting import sleep
from magnetar.managed_ledger.managed_ledger import ManagedLedger


class OneBundle:
    """Held, being given up, or gone: as ownership in a cluster goes."""

    def __init__(self, lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
        self.releasing = self.gone = False
        self._lived = lived
        for name in ("owner_of", "is_current", "begin_release", "release"):
            monkeypatch.setattr(lived.broker.ownership, name, getattr(self, name))

    async def owner_of(self, _bundle: Bundle, _asked: Asked, *, persistent: bool = True) -> Owner:
        if self.releasing:
            raise ServiceNotReady("it is being unloaded")
        return Owner("one:80", Addresses("pulsar://one:6650"), True, 1)

    def is_current(self, _bundle: Bundle, _owner: Owner) -> bool:
        return not self.gone

    def begin_release(self, _bundle: Bundle) -> bool:
        self.releasing = True
        return True

    async def release(self, _bundle: Bundle, _towards: str | None = None) -> None:
        assert not self._lived.broker.topics.loaded, "something of it is open still"
        self.gone = True


@pytest.fixture
def lived(monkeypatch: pytest.MonkeyPatch) -> Lived:
    """A broker that takes a second to recover anything."""
    found = Lived(EffectivePolicies())
    opened = found.world.managed.open

    async def slow(name: str, **how: Any) -> ManagedLedger:
        await sleep(found.broker.io.loop, 1)
        return await opened(name, **how)

    monkeypatch.setattr(found.world.managed, "open", slow)
    return found


def test_who_came_before_is_served_and_sent_on_and_who_comes_after_is_not(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = OneBundle(lived, monkeypatch)
    broker, loop = lived.broker, lived.broker.io.loop
    bundle = lived.world.run(broker.bundles.of_topic(NAME))
    before = loop.create_task(broker.topics.load(NAME, create=True))
    lived.world.wait(0.5)
    unloading = loop.create_task(broker.topics.unloads.unload(bundle))
    lived.world.wait(0.1)
    assert not owned.gone
    other = next(NAME.partition(n) for n in range(100) if NAME.partition(n) in bundle)
    with pytest.raises(ServiceNotReady, match="being unloaded"):
        lived.world.run(broker.topics.load(other, create=True))
    # A client that has come for it is not refused, and comes back when it is closed.
    assert lived.world.run(before).full_name == str(NAME)
    lived.world.run(unloading)
    assert owned.gone
    assert not broker.topics.loaded


def test_what_is_not_loaded_in_time_writes_nothing_once_the_bundle_is_given_up(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner may have deleted the topic, and created it again with a record of the same version."""
    topic = lived.topic()
    lived.world.run(lived.broker.topics.unload_topic(topic))
    owned = OneBundle(lived, monkeypatch)
    broker, loop = lived.broker, lived.broker.io.loop
    bundle = lived.world.run(broker.bundles.of_topic(NAME))
    broker.topics.unloads.patience = lambda: 0.5
    loading = loop.create_task(broker.topics.load(NAME, create=True))
    lived.world.wait(0.1)
    lived.world.run(broker.topics.unloads.unload(bundle))
    assert owned.gone
    assert not loading.done()
    record = lived.world.run(lived.world.metadata.get(topic.managed_ledger.path))
    with pytest.raises(ServiceNotReady, match="no longer served by this broker"):
        lived.world.run(loading)
    assert lived.world.run(lived.world.metadata.get(topic.managed_ledger.path)) == record


def test_what_is_being_loaded_when_its_bundle_is_lost_writes_nothing(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = lived.topic()
    lived.world.run(lived.broker.topics.unload_topic(topic))
    OneBundle(lived, monkeypatch)
    broker, loop = lived.broker, lived.broker.io.loop
    bundle = lived.world.run(broker.bundles.of_topic(NAME))
    loading = loop.create_task(broker.topics.load(NAME, create=True))
    lived.world.wait(0.1)
    record = lived.world.run(lived.world.metadata.get(topic.managed_ledger.path))
    broker.topics._lost(bundle)
    with pytest.raises(ServiceNotReady, match="no longer served by this broker"):
        lived.world.run(loading)
    assert lived.world.run(lived.world.metadata.get(topic.managed_ledger.path)) == record
