"""Several providers, nobody in particular, proxies, and failures that are told later and later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from simulated_io import Simulation, simulated_io

from magnetar.errors import AuthenticationFailure, AuthorizationFailure, TooManyRequests
from magnetar.security.authentication import Authenticated, Claim, Credentials, Principal
from magnetar.security.chain import FailedAttempts, ProviderChain, renewed
from magnetar.security.options import ProviderRefused


class Words:
    """Takes ``role/word``."""

    def __init__(self, method: str, word: str, expires: float | None = None) -> None:
        self.method = method
        self.expires = expires
        self.asked = 0
        self.closed = False
        self.changed: Callable[[], None] = lambda: None
        self._word = word

    async def authenticate(self, credentials: Credentials) -> Authenticated:
        self.asked += 1
        role, _, word = credentials.data.decode().partition("/")
        if word == "busy":
            raise TooManyRequests("later")
        if word != self._word:
            raise AuthenticationFailure(f"not {self._word[:1]}")
        return Authenticated(role, self.expires)

    def listen(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    async def close(self) -> None:
        self.closed = True


def chain(world: Simulation, providers: Sequence[Words], **options: object) -> ProviderChain:
    return ProviderChain(world.io, providers, **options)  # type: ignore[arg-type]


def shown(method: str, data: str, peer: str = "1.2.3.4:5") -> Credentials:
    return Credentials(method, data.encode(), peer)


def ask(world: Simulation, asked: ProviderChain, *offered: Credentials, **rest: object) -> Principal:
    return world.loop.run_until(asked.authenticate(Claim(offered, **rest)))  # type: ignore[arg-type]


def test_of_several_providers_of_a_method_the_first_that_is_content_counts() -> None:
    world = simulated_io(1)
    first, second, other = Words("word", "x"), Words("word", "y"), Words("other", "y")
    asked = chain(world, [first, second, other])
    assert asked.methods == {"word", "other"}
    assert ask(world, asked, shown("word", "a/x")) == Principal("a", "word")
    assert second.asked == 0
    assert ask(world, asked, shown("word", "a/y")) == Principal("a", "word")
    assert other.asked == 0
    with pytest.raises(AuthenticationFailure, match="not x"):
        ask(world, asked, shown("word", "a/z"))


def test_of_several_offers_the_first_that_proves_something_counts() -> None:
    world = simulated_io(1)
    asked = chain(world, [Words("word", "x"), Words("other", "y")])
    assert ask(world, asked, shown("word", "a/-"), shown("other", "b/y")) == Principal("b", "other")


def test_who_proves_nothing_gets_in_only_where_there_is_an_anonymous_role() -> None:
    world = simulated_io(1)
    strict = chain(world, [Words("word", "x")])
    for method in ("", "none"):
        with pytest.raises(AuthenticationFailure, match="required"):
            ask(world, strict, shown(method, ""))
    with pytest.raises(AuthenticationFailure, match="does not know") as refusal:
        ask(world, strict, shown("m" * 100_000, ""))
    assert len(str(refusal.value)) < 300
    open_ = chain(world, [Words("word", "x")], anonymous_role="guest")
    for method in ("", "none", "unheard-of"):
        assert ask(world, open_, shown(method, "")) == Principal("guest", "")
    # A wrong proof is none, and not nobody's.
    with pytest.raises(AuthenticationFailure):
        ask(world, open_, shown("word", "a/wrong"))


def test_a_provider_that_has_no_time_says_so() -> None:
    world = simulated_io(1)
    with pytest.raises(TooManyRequests):
        ask(world, chain(world, [Words("word", "x")], anonymous_role="guest"), shown("word", "a/busy"))


def proxied(world: Simulation, role: str, original: str, **options: object) -> Principal:
    options = {"proxy_roles": lambda: frozenset({"proxy", "proxy2"}), **options}
    asked = chain(world, [Words("word", "x")], **options)
    return ask(world, asked, shown("word", f"{role}/x"), original_role=original)


def test_only_proxies_speak_for_others_and_only_for_others() -> None:
    world = simulated_io(1)
    assert proxied(world, "proxy", "alice") == Principal("proxy", "word", "alice")
    assert proxied(world, "alice", "alice") == Principal("alice", "word")
    for role, original in (("mallory", "alice"), ("mallory", "proxy"), ("proxy", ""), ("proxy", "proxy2")):
        with pytest.raises(AuthorizationFailure):
            proxied(world, role, original)
    with pytest.raises(AuthorizationFailure):
        proxied(world, "proxy", "proxy")


def test_anonymous_clients_speak_for_nobody() -> None:
    world = simulated_io(1)
    asked = chain(world, [Words("word", "x")], anonymous_role="guest")
    with pytest.raises(AuthorizationFailure):
        ask(world, asked, shown("", ""), original_role="admin")


def test_where_the_original_has_to_prove_itself_its_word_is_not_enough() -> None:
    world = simulated_io(1)
    with pytest.raises(AuthenticationFailure):
        proxied(world, "proxy", "alice", authenticate_original=True)
    asked = chain(
        world,
        [Words("word", "x", 100.0), Words("other", "y", 50.0)],
        proxy_roles=lambda: frozenset({"proxy"}),
        authenticate_original=True,
    )
    by, wrong = shown("other", "alice/y"), shown("other", "alice/z")
    found = ask(world, asked, shown("word", "proxy/x"), original_role="admin", original=by)
    assert found == Principal("proxy", "word", "alice", 50.0), "what is proven counts, not what is said"
    with pytest.raises(AuthenticationFailure):
        ask(world, asked, shown("word", "proxy/x"), original_role="alice", original=wrong)
    # Without being asked for, what proxies pass on is their business.
    lax = chain(world, [Words("word", "x")], proxy_roles=lambda: frozenset({"proxy"}))
    found = ask(world, lax, shown("word", "proxy/x"), original_role="alice", original=wrong)
    assert found.original_role == "alice"


def test_failures_of_one_address_are_told_later_and_later_and_of_others_at_once() -> None:
    world = simulated_io(1)
    asked = chain(world, [Words("word", "x")])
    took = []
    for _ in range(15):
        before = world.loop.time()
        with pytest.raises(AuthenticationFailure):
            ask(world, asked, shown("word", "a/wrong"))
        took.append(world.loop.time() - before)
    assert took[:5] == [0.0] * 5
    assert took[5:] == sorted(took[5:])
    assert took[5] > 0
    assert took[-1] == pytest.approx(5.0)
    for credentials in (shown("word", "a/wrong", "9.9.9.9:1"), shown("word", "a/x")):
        before = world.loop.time()
        try:
            ask(world, asked, credentials)
        except AuthenticationFailure:
            assert credentials.host == "9.9.9.9"
        assert world.loop.time() == before
    world.loop.run_for(61)
    before = world.loop.time()
    with pytest.raises(AuthenticationFailure):
        ask(world, asked, shown("word", "a/wrong"))
    assert world.loop.time() == before, "after a minute it is forgotten"


def test_who_is_asked_again_has_not_tried_anything_and_hears_at_once() -> None:
    world = simulated_io(1)
    asked = chain(world, [Words("word", "x")])
    for _ in range(20):
        with pytest.raises(AuthenticationFailure):
            ask(world, asked, replace(shown("word", "a/wrong"), again=True))
    assert world.loop.time() == 0
    assert len(asked._attempts) == 0


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind() -> None:
    world = simulated_io(1)
    asked = chain(world, [Words("word", "x")])
    for _ in range(10):
        work = asked.authenticate(Claim([shown("word", "a/wrong")]))
        task = world.loop.create_task(work)
        world.loop.run_for(0)
        task.cancel()
    world.loop.run_for(10)
    assert world.loop.pending_tasks() == []


def test_ten_thousand_addresses_are_remembered_and_no_more() -> None:
    world = simulated_io(1)
    attempts = FailedAttempts(world.io)
    for number in range(25_000):
        attempts.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(attempts) == 10_000


def test_what_changed_is_told_by_method() -> None:
    world = simulated_io(1)
    providers = [Words("word", "x"), Words("other", "y")]
    asked = chain(world, providers)
    told: list[frozenset[str] | None] = []
    asked.listen(told.append)
    providers[1].changed()
    providers[0].changed()
    assert told == [frozenset({"other"}), frozenset({"word"})]
    world.loop.run_until(asked.close())
    assert [one.closed for one in providers] == [True, True]


def test_who_proves_itself_again_stays_who_it_is() -> None:
    before = Principal("proxy", "word", "alice", 5.0)
    assert renewed(before, Principal("proxy", "word", "alice", 9.0)).expires == 9.0
    for other in (
        Principal("proxy", "word", "bob"),
        Principal("x", "word", "alice"),
        Principal("proxy", "word"),
    ):
        with pytest.raises(AuthenticationFailure):
            renewed(before, other)


def test_proofs_are_counted_by_provider() -> None:
    world = simulated_io(1)
    first, second = Words("word", "x"), Words("word", "y")
    asked = chain(world, [first, second], names=["First", "Second"])
    ask(world, asked, shown("word", "a/x"))
    ask(world, asked, shown("word", "a/y"))
    with pytest.raises(AuthenticationFailure):
        ask(world, asked, shown("word", "a/z"))
    counted = [(one.provider, one.method, one.succeeded, one.failed) for one in asked.authentication_counts]
    assert counted == [("First", "word", 1, 2), ("Second", "word", 1, 1)]


@pytest.mark.parametrize("method", ["", "none", "internal"])
def test_no_provider_speaks_for_the_broker_or_for_nobody(method: str) -> None:
    with pytest.raises(ProviderRefused, match="cannot be the authentication method"):
        chain(simulated_io(1), [Words(method, "x")])
