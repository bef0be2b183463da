"""Partitions that a topic does not have: nobody makes them by their names."""

from __future__ import annotations

import pytest
from served import Served

from magnetar.errors import TopicNotFound
from magnetar.naming.topic_name import TopicName


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_partitions_beyond_those_of_the_topic_are_not_made(served: Served, domain: str) -> None:
    root = f"/admin/v2/{domain}/public/default/few"
    assert served.ask("PUT", f"{root}/partitions", "2").status == 204
    assert served.ask("PUT", f"{root}-partition-5").status == 412
    name = TopicName.parse(f"{domain}://public/default/few-partition-5")
    with pytest.raises(TopicNotFound):
        served.world.run(served.broker.topics.load(name, create=True))
    # Nothing is in the way of more.
    assert served.ask("POST", f"{root}/partitions", "6").status == 204
    assert served.world.run(served.broker.topics.load(name, create=True)).name == name
