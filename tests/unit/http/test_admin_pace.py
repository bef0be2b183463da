"""How fast one role may administer, and that others do not notice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from served import Served

from magnetar.http.admin_pace import AdminLimits, AdminPace, TooFast
from magnetar.http.engine.message import Request, Response
from magnetar.http.routing import Access
from magnetar.security.authentication import Authenticator, Claim, Principal
from magnetar.security.authorization import BrokerOperation, EverybodyMay, Operation, Target

STATS = "/admin/v2/persistent/public/default/t/stats"
LIMITS = AdminLimits(requests_per_second=10, at_once=2)


class Named(Authenticator):
    """Everybody is who the header says."""

    @property
    def asks(self) -> bool:
        return True

    async def authenticate(self, claim: Claim) -> Principal:
        return Principal(claim.original_role, "test")


class OneSuperuser(EverybodyMay):
    @property
    def asks(self) -> bool:
        return True

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        if operation is BrokerOperation.SHUT_DOWN and principal.role != "admin":
            return "no superuser"
        return None


@pytest.fixture
def served() -> Served:
    made = Served()
    made.http.admin_pace = AdminPace(made.http.io, LIMITS)
    return made


def start(
    served: Served, count: int, path: str = STATS, role: str = "", peer: str = "10.0.0.1:1"
) -> list[Any]:
    request = Request("GET", path, {}, {"x-original-principal": role}, peer=peer)
    loop = served.world.simulation.loop
    return [loop.create_task(served.http.answer(request)) for _ in range(count)]


def ended(served: Served, tasks: list[Any]) -> tuple[list[Response], float]:
    clock = served.world.simulation.io.clock
    began = clock.monotonic()
    return [served.world.run(task) for task in tasks], clock.monotonic() - began


def test_requests_of_an_address_wait_beyond_the_rate_and_are_refused_far_beyond_it(served: Served) -> None:
    answers, seconds = ended(served, start(served, 50))
    assert (seconds, {one.status for one in answers}) == (pytest.approx(0, abs=0.1), {200})
    tasks = start(served, 60)
    others, seconds = ended(served, start(served, 1, peer="10.0.0.2:1"))
    assert (seconds, others[0].status) == (pytest.approx(0, abs=0.1), 200)
    answers, seconds = ended(served, tasks)
    assert seconds == pytest.approx(5, abs=0.3)
    statuses = [one.status for one in answers]
    assert statuses[:50] == [200] * 50
    assert statuses[51:] == [429] * 9
    assert dict(answers[-1].headers)["Retry-After"] == "1"
    assert b"magnetarMaxAdminRequestsPerSecondPerRole" in answers[-1].body
    found = served.world.run(served.http._application.process.figures()).extra  # type: ignore[union-attr]
    assert found["magnetar_refused_admin_requests"] in (9, 10)
    assert found["magnetar_slowed_admin_requests"] in (50, 51)


def test_what_is_not_administration_does_not_wait(served: Served) -> None:
    _answers, seconds = ended(served, start(served, 200, "/metrics/"))
    assert seconds == pytest.approx(0, abs=0.1)


def test_superusers_do_not_wait_and_other_roles_do(served: Served) -> None:
    with served.access(Access(Named(), OneSuperuser())):
        _answers, seconds = ended(served, start(served, 200, role="admin"))
        assert seconds == pytest.approx(0, abs=0.1)
        answers, seconds = ended(served, start(served, 70, role="somebody"))
        assert seconds == pytest.approx(2, abs=0.3)
        assert {one.status for one in answers} == {200}


def test_requests_of_a_role_are_under_way_a_few_at_a_time_and_others_in_order() -> None:
    served = Served()
    loop = served.world.simulation.loop
    pace = AdminPace(served.http.io, replace(LIMITS, requests_per_second=0))
    ends = [loop.create_future() for _ in range(5)]
    began: list[int] = []

    async def one(number: int, role: str = "a") -> None:
        async with pace.turn(role):
            began.append(number)
            await ends[number]

    tasks = [loop.create_task(one(number)) for number in range(4)]
    other = loop.create_task(one(4, "b"))
    served.world.wait(1)
    assert began == [0, 1, 4]
    tasks[2].cancel()
    ends[1].set_result(None)
    served.world.wait(1)
    assert began == [0, 1, 4, 3]
    for end in ends:
        if not end.done():
            end.set_result(None)
    for task in (tasks[0], tasks[1], tasks[3], other):
        served.world.run(task)
    assert not pace._rows


def test_addresses_are_not_remembered_without_end() -> None:
    served = Served()
    pace = AdminPace(served.http.io, LIMITS)
    for number in range(10_050):
        served.world.run(pace.admit(f"10.0.{number >> 8}.{number & 255}"))
    assert len(pace._buckets) <= 10_000


def test_a_refusal_says_when_to_come_again() -> None:
    served = Served()
    pace = AdminPace(served.http.io, LIMITS)
    loop = served.world.simulation.loop
    waiting = [loop.create_task(pace.admit("x")) for _ in range(100)]
    served.world.wait(0.001)
    with pytest.raises(TooFast, match="x exceeds 10 admin requests per second"):
        served.world.run(pace.admit("x"))
    for task in waiting:
        served.world.run(task)
