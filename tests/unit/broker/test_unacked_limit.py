"""The bound on what is outstanding on all shared subscriptions together."""

from __future__ import annotations

from magnetar.broker.flow.limits import UnackedLimit


class Dispatcher:
    def __init__(self, limit: UnackedLimit) -> None:
        self.limit = limit
        self.unacked = 0
        self.held = False

    def now_has(self, unacked: int) -> None:
        self.unacked = unacked
        self.limit.changed(self)

    def hold(self) -> None:
        self.held = True

    def let_go_on(self) -> None:
        self.held = False


def dispatchers(limit: UnackedLimit, *unacked: int) -> list[Dispatcher]:
    made = [Dispatcher(limit) for _ in unacked]
    for dispatcher, count in zip(made, unacked, strict=True):
        dispatcher.now_has(count)
    return made


def test_below_the_bound_nobody_is_held() -> None:
    limit = UnackedLimit(100, 0.1)
    assert not any(d.held for d in dispatchers(limit, 50, 49))
    assert limit.total == 99


def test_at_the_bound_those_beyond_their_share_are_held() -> None:
    small, large, last = dispatchers(UnackedLimit(100, 0.1), 10, 60, 30)
    assert [d.held for d in (small, large, last)] == [False, True, True]
    small.now_has(11)
    assert small.held


def test_below_half_of_the_bound_all_go_on() -> None:
    first, second = dispatchers(UnackedLimit(100, 0.1), 70, 30)
    first.now_has(20)
    assert [first.held, second.held] == [True, True]
    first.now_has(19)
    assert [first.held, second.held] == [False, False]


def test_below_half_of_its_share_one_goes_on_alone() -> None:
    first, second = dispatchers(UnackedLimit(100, 0.1), 90, 15)
    second.now_has(5)
    assert second.held
    second.now_has(4)
    assert [first.held, second.held] == [True, False]


def test_nothing_is_kept_of_who_has_nothing() -> None:
    limit = UnackedLimit(10, 0.0)
    first, second = dispatchers(limit, 6, 6)
    assert [first.held, second.held] == [True, True]
    first.now_has(0)
    assert not first.held
    second.now_has(0)
    assert (limit.total, limit.reached, limit._counted, limit._held) == (0, False, {}, {})
