"""Scrapes of ``/metrics`` that come together get one rendering; tenants share what series there may be."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import pairwise

import pytest

from magnetar.broker.stats.figures import MetricsSnapshot, SubscriptionMetrics, TopicMetrics
from magnetar.errors import ServiceNotReady
from magnetar.http.metrics.rendering import bounded, given_up
from magnetar.http.metrics.shared import Scrapes

PIECES = [f"line {number} of a long text\n" * 50 for number in range(200)]


def run(test: Callable[[Scrapes], Awaitable[None]]) -> None:
    async def scenario() -> None:
        await test(Scrapes(asyncio.get_running_loop()))

    asyncio.run(scenario())


async def begin(_kind: str) -> Iterator[str]:
    await asyncio.sleep(0)
    return iter(PIECES)


def test_scrapes_that_come_together_are_one_rendering() -> None:
    async def test(scrapes: Scrapes) -> None:
        texts = await asyncio.gather(*(scrapes.text("plain", begin) for _ in range(4)))
        readers = [text.gzipped() if number % 2 else text.plain() for number, text in enumerate(texts)]
        found = [b"" for _ in readers]
        for turn in range(3 * len(PIECES)):
            # One of them is slow, and another one comes late.
            for number, reader in enumerate(readers):
                if number != 2 or turn % 3 == 0:
                    found[number] += next(reader, b"")
        late = await scrapes.text("plain", begin)
        for number, reader in enumerate(readers):
            found[number] += b"".join(reader)
        whole = "".join(PIECES).encode()
        assert [gzip.decompress(data) if n % 2 else data for n, data in enumerate(found)] == [whole] * 4
        assert b"".join(late.plain()) == whole
        assert scrapes.rendered in (1, 2)

    run(test)


def test_the_next_scrape_is_rendered_anew() -> None:
    async def test(scrapes: Scrapes) -> None:
        for _ in range(2):
            assert b"".join((await scrapes.text("plain", begin)).plain()) == "".join(PIECES).encode()
        assert scrapes.rendered == 2

    run(test)


def test_figures_that_cannot_be_had_fail_all_who_wait() -> None:
    async def fail(_kind: str) -> Iterator[str]:
        await asyncio.sleep(0)
        raise ServiceNotReady("stopping")

    async def test(scrapes: Scrapes) -> None:
        failures = await asyncio.gather(
            *(scrapes.text("plain", fail) for _ in range(3)), return_exceptions=True
        )
        assert all(isinstance(failure, ServiceNotReady) for failure in failures)
        assert b"".join((await scrapes.text("plain", begin)).plain()) == "".join(PIECES).encode()

    run(test)


def topics(tenant: str, count: int, subscriptions: int = 0) -> list[TopicMetrics]:
    of = [SubscriptionMetrics(f"s{number}") for number in range(subscriptions)]
    return [
        TopicMetrics(f"persistent://{tenant}/n/t{n}", f"{tenant}/n", subscriptions=of) for n in range(count)
    ]


def chosen(topics: list[TopicMetrics], most: int) -> tuple[Sequence[TopicMetrics], dict[str, int]]:
    """What is chosen, which takes a pause for each hundred topics at least."""
    pieces = bounded(topics, most)
    pauses = 0
    while True:
        try:
            assert next(pieces) == ""
        except StopIteration as ended:
            assert pauses >= (len(topics) // 100 if most else 0)
            kept, left_out = ended.value
            return kept, left_out
        pauses += 1


@pytest.mark.parametrize("most", [0, 30, 1000])
def test_all_have_series_where_there_is_room(most: int) -> None:
    every = [*topics("large", 20), *topics("small", 5, 1)]
    assert chosen(every, most) == (every, {})


def test_the_tenant_with_the_most_loses_series_first() -> None:
    every = [*topics("large", 1000), *topics("small", 5, 1), *topics("middle", 40)]
    kept, left_out = chosen(every, 100)
    names = [topic.name.split("/")[2] for topic in kept]
    assert (names.count("small"), names.count("middle"), names.count("large")) == (5, 40, 50)
    assert left_out == {"large": 950}


def test_a_topic_with_more_subscriptions_than_there_is_room_for_has_none() -> None:
    kept, left_out = chosen([*topics("t", 1, 500), *topics("t", 3)], 100)
    assert [len(topic.subscriptions) for topic in kept] == [0, 0, 0]
    assert left_out == {"t": 1}


def test_the_figures_of_many_topics_are_given_up_in_pieces() -> None:
    snapshot = MetricsSnapshot("c", "b", topics=topics("t", 1000))
    left = [len(snapshot.topics) for piece in given_up(snapshot) if not piece]
    assert left[-1] == 0
    assert all(before - after <= 100 for before, after in pairwise([1000, *left]))
