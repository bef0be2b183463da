"""Partitions that are added have the subscriptions of the first, as these are."""

from __future__ import annotations

from typing import Any

from lived import NAME, Lived

from magnetar.broker.admin.partitions import PartitionAdmin
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.managed_ledger.position import EARLIEST


def test_a_mark_of_a_subscription_is_that_of_all_partitions() -> None:
    lived = Lived(EffectivePolicies())
    admin = PartitionAdmin(lived.broker)
    lived.world.run(admin.create(str(NAME), 1, {}))
    first: Any = lived.world.run(lived.broker.topics.load(NAME.partition(0), create=False))
    for name in ("marked", "plain"):
        made = lived.world.run(
            first.subscriptions.subscribe(name, EARLIEST, {"of": name}, durable=True, create=True)
        )
        made.replicate(name == "marked")
    lived.world.run(admin.update(str(NAME), 2, force=False))
    added: Any = lived.world.run(lived.broker.topics.load(NAME.partition(1), create=False))
    assert {name: (each.properties, each.replicated) for name, each in added.subscriptions.items()} == {
        "marked": ({"of": "marked"}, True),
        "plain": ({"of": "plain"}, False),
    }
