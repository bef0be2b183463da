"""The traffic of each bundle that is served here, from the rates that topics measure anyway."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.broker.load.reports import BundleStats
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import BrokerError
from magnetar.io.slices import PAUSE_SECONDS, each
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.bundles import Bundles
from magnetar.naming.namespace_name import NamespaceName


@dataclass(slots=True)
class _Sums:
    rate_in: float = 0.0
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0
    consumers: int = 0
    producers: int = 0
    topics: int = 0

    def add(self, topic: AnyTopic) -> None:
        self.rate_in += topic.rate_in.per_second
        self.throughput_in += topic.rate_in.bytes_per_second
        self.rate_out += topic.rate_out.per_second
        self.throughput_out += topic.rate_out.bytes_per_second
        self.consumers += topic.consumer_count()
        self.producers += len(topic.producers)
        self.topics += 1

    def done(self) -> BundleStats:
        return BundleStats(
            self.rate_in,
            self.throughput_in,
            self.rate_out,
            self.throughput_out,
            self.consumers,
            self.producers,
            self.topics,
        )


async def bundle_stats(served: ServedTopics) -> Mapping[str, BundleStats]:
    """Returns statistics by full name of bundle; bundles without a loaded topic are missing, as in Pulsar."""
    topics = list(served.topics.values())
    divided: dict[NamespaceName, Bundles] = {}
    for namespace in dict.fromkeys(topic.name.namespace_name for topic in topics):
        try:
            divided[namespace] = await served.bundles.of_namespace(namespace)
        except BrokerError:
            # The bundle is being unloaded, or the namespace's bundles cannot be read now.
            continue
    sums: dict[str, _Sums] = {}

    def take(topic: AnyTopic) -> None:
        name = topic.name
        bundles = divided.get(name.namespace_name)
        if bundles is not None:
            bundle = f"{name.namespace_name}/{bundles.find(name.bundle_hash)}"
            sums.setdefault(bundle, _Sums()).add(topic)

    await each(served.io, "load report", topics, take, pause=PAUSE_SECONDS)
    return {bundle: found.done() for bundle, found in sums.items()}
