"""What pages that watch topics are told: pages of them, by any order, as they are now; and what it costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from served import Served

from magnetar.broker.stats import topic_board
from magnetar.broker.stats.topic_board import (
    LINGER_SECONDS,
    MOST_LINES,
    MOST_WATCHERS,
    ORDER_SECONDS,
    TICK_SECONDS,
    Listed,
    TopicBoard,
    TopicOrder,
)
from magnetar.errors import TooManyRequests
from magnetar.http.dashboard.views import HEARTBEAT, MOST_TICKS, Shown, Viewing

TICK = TICK_SECONDS + 0.1
ALL = Listed()
EU = "persistent://public/default/eu-orders"
US = "persistent://public/default/us-orders"


@pytest.fixture
def served() -> Served:
    found = Served()
    for name in (EU, US):
        found.topic(name)
    return found


@pytest.fixture
def board(served: Served) -> Iterator[TopicBoard]:
    """That somebody watches."""
    made = TopicBoard(served.broker)
    made.enter()
    served.world.run(made.looked())
    yield made
    made.leave()


def names(board: TopicBoard, listed: Listed = ALL, first: int = 0, count: int = MOST_LINES) -> list[str]:
    return [each["topic"].rpartition("/")[2] for each in board.page(listed, first, count)["topics"]]


def test_topics_come_in_pages_filtered_by_name_and_namespace(board: TopicBoard) -> None:
    assert names(board) == ["eu-orders", "t", "us-orders", "t"]
    assert names(board, first=1, count=2) == ["t", "us-orders"]
    assert names(board, first=9) == []
    assert names(board, Listed(words=("ORD".lower(), "us"))) == ["us-orders"]
    assert names(board, Listed(namespace="sample/standalone/ns1")) == ["t"]
    assert board.page(Listed(words=("orders",)), 0, 1)["total"] == 2


def test_a_topic_that_is_loaded_anew_between_two_looks_has_no_rate_below_zero(
    served: Served, board: TopicBoard
) -> None:
    before = served.broker.topics.loaded[EU].rate_in
    before.messages, before.bytes = 100_000, 5_000_000
    served.world.wait(TICK)
    assert board.page(ALL, 0, 9)["topics"][0]["rateIn"] > 0
    served.ask("PUT", "/admin/v2/persistent/public/default/eu-orders/unload")
    served.topic(EU)
    assert served.broker.topics.loaded[EU].rate_in is not before
    served.world.wait(TICK)
    line = board.page(ALL, 0, 9)["topics"][0]
    assert (line["topic"], line["rateIn"], line["throughputIn"]) == (EU, 0.0, 0.0)
    assert board.totals()["rateIn"] == 0.0
    # From there on rates are those between looks again.
    served.broker.topics.loaded[EU].rate_in.messages += 100
    served.world.wait(TICK)
    assert board.page(ALL, 0, 9)["topics"][0]["rateIn"] == pytest.approx(100 / TICK_SECONDS, rel=0.1)


def test_rates_are_of_the_last_tick_and_an_order_is_kept_for_a_while(
    served: Served, board: TopicBoard
) -> None:
    by_rate = Listed(order=TopicOrder.RATE_IN, words=("orders",))
    assert names(board, by_rate) == ["eu-orders", "us-orders"]
    busy = served.broker.topics.loaded[US].rate_in
    busy.messages, busy.bytes = busy.messages + 100, busy.bytes + 5000
    served.world.wait(TICK)
    line = board.page(by_rate, 0, 9)["topics"][1]
    assert line["rateIn"] == pytest.approx(100 / TICK_SECONDS, rel=0.1)
    assert line["throughputIn"] == pytest.approx(5000 / TICK_SECONDS, rel=0.1)
    assert board.totals()["rateIn"] == line["rateIn"]
    # Lines do not jump at once.
    assert names(board, by_rate)[0] == "eu-orders"
    for _ in range(int(ORDER_SECONDS / TICK_SECONDS) + 1):
        busy.messages += 100
        served.world.wait(TICK)
    assert names(board, by_rate)[0] == "us-orders"


def test_who_comes_and_goes_is_seen_at_the_next_tick(served: Served, board: TopicBoard) -> None:
    served.topic("persistent://public/default/new")
    served.world.wait(TICK)
    assert "new" in names(board)
    served.ask("DELETE", "/admin/v2/persistent/public/default/new")
    served.world.wait(TICK)
    assert "new" not in names(board)
    served.ask("PUT", "/admin/v2/persistent/public/default/eu-orders/unload")
    served.world.wait(2 * TICK)
    [line] = board.page(Listed(words=("eu-orders",)), 0, 9)["topics"]
    assert line == {"topic": EU, "loaded": False}
    assert board.totals()["notLoaded"] == 1


def test_a_deleted_topic_that_was_not_loaded_leaves_the_list_at_the_next_tick(
    served: Served, board: TopicBoard
) -> None:
    served.ask("PUT", "/admin/v2/persistent/public/default/eu-orders/unload")
    served.world.wait(2 * TICK)
    assert board.totals()["notLoaded"] == 1
    served.ask("DELETE", "/admin/v2/persistent/public/default/eu-orders")
    served.world.wait(TICK)
    assert "eu-orders" not in names(board)
    assert board.totals()["notLoaded"] == 0


def test_busy_topics_have_their_turn_first(
    served: Served, board: TopicBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_board, "LOOKS", 1)
    topic = served.broker.topics.loaded[EU]
    served.broker.topics.mark_busy(topic)
    for _ in range(3):
        topic.rate_in.messages += 100
        served.world.wait(TICK)
        assert board.totals()["rateIn"] == pytest.approx(100 / TICK_SECONDS, rel=0.1)


def test_a_tick_looks_at_so_many_and_all_have_their_turn(
    served: Served, board: TopicBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_board, "LOOKS", 1)
    for topic in served.broker.topics.loaded.values():
        topic.rate_in.messages += 1000
    served.world.wait(TICK)
    rates = [board.totals()["rateIn"]]
    for _ in range(4):
        served.world.wait(TICK)
        rates.append(board.totals()["rateIn"])
    assert 0 < rates[0] < rates[3]


def test_nothing_is_kept_while_nobody_watches(served: Served) -> None:
    board = TopicBoard(served.broker)
    assert names(board) == []
    board.enter()
    served.world.run(board.looked())
    assert len(names(board)) == 4
    for _ in range(MOST_WATCHERS - 1):
        board.enter()
    with pytest.raises(TooManyRequests, match="64 pages already watch"):
        board.enter()
    for _ in range(MOST_WATCHERS):
        board.leave()
    board.enter()
    served.world.wait(LINGER_SECONDS + 1)
    assert len(names(board)) == 4
    board.leave()
    served.world.wait(LINGER_SECONDS + 1)
    ticks = board.ticks
    served.world.wait(3 * TICK)
    assert (board.ticks, names(board)) == (ticks, [])


def read(event: bytes) -> Any:
    kind, data = event.decode().removesuffix("\n\n").split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_pages_that_show_the_same_share_it_and_end_after_a_while(served: Served) -> None:
    board, shown, made = TopicBoard(served.broker), Shown(), list[int]()

    async def show() -> dict[str, int]:
        made.append(board.ticks)
        return {"shown": len(made) // 4}

    pages = [Viewing(board, shown, "the same", show) for _ in range(2)]
    assert [read(served.world.run(each.next())) for each in pages] == [("shown", {"shown": 0})] * 2
    # What was done before a page is opened is seen on it.
    assert len(made) == 2
    assert [served.world.run(each.next()) for each in pages] == [HEARTBEAT] * 2
    assert len(made) == 3
    assert read(served.world.run(pages[0].next())) == ("shown", {"shown": 1})
    for _ in range(MOST_TICKS - 3):
        assert served.world.run(pages[0].next())
    assert served.world.run(pages[0].next()) == b""
    for each in pages:
        each.close()
        each.close()
    assert served.world.run(pages[1].next()) == b""


def test_topics_come_with_the_broker_for_who_may_see_all_of_it(served: Served) -> None:
    board = TopicBoard(served.broker)
    served.watched_by(board)
    streamed = served.ask("GET", "/dashboard/events/topics", query={"broker": "true", "count": "1"}).streamed
    assert streamed is not None
    shown = read(served.world.run(streamed.next()))[1]
    streamed.close()
    assert (len(shown["topics"]), shown["total"], shown["broker"]["totals"]["topics"]) == (1, 4, 4)
    assert shown["broker"]["serviceUrl"] == board.service_url
    of_a_namespace = served.ask("GET", "/dashboard/events/topics/public/default", query={"broker": "true"})
    assert (of_a_namespace.status, of_a_namespace.streamed) == (400, None)


def test_who_comes_later_is_shown_nothing_old(served: Served) -> None:
    board = TopicBoard(served.broker)
    served.watched_by(board)

    def first() -> Any:
        streamed = served.ask("GET", "/dashboard/events/topics").streamed
        assert streamed is not None
        shown = read(served.world.run(streamed.next()))[1]
        streamed.close()
        return shown["total"]

    assert first() == 4
    served.world.wait(LINGER_SECONDS + 1)
    served.topic("persistent://public/default/new")
    assert first() == 5


def test_orders_are_bounded(board: TopicBoard) -> None:
    for number in range(MOST_WATCHERS * 2):
        board.page(Listed(words=(str(number),)), 0, 1)
    assert len(board._orders) == MOST_WATCHERS


def test_what_is_gone_is_told_of_and_ends_it(served: Served) -> None:
    path = "/dashboard/events/topic/persistent/public/default/eu-orders"
    with_board = TopicBoard(served.broker)
    served.watched_by(with_board)
    assert served.ask("GET", path.replace("eu-", "no-")).status == 404
    assert served.ask("GET", "/dashboard/events/topics", query={"order": "size"}).status == 400
    streamed = served.ask("GET", path).streamed
    assert streamed is not None
    kind, told = read(served.world.run(streamed.next()))
    assert (kind, told["stats"]["subscriptions"]) == ("shown", {})
    served.ask("DELETE", "/admin/v2/persistent/public/default/eu-orders")
    kind, told = read(served.world.run(streamed.next()))
    assert (kind, told["status"]) == ("gone", 404)
    assert served.world.run(streamed.next()) == b""
    streamed.close()


def test_without_a_board_there_is_nothing_to_watch(served: Served) -> None:
    assert served.ask("GET", "/dashboard/events/broker").status == 503
