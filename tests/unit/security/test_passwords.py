"""Passwords: the forms of htpasswd, what a comparison costs, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keys import ask
from passlib.hash import apr_md5_crypt, bcrypt, des_crypt, ldap_sha1, md5_crypt, sha256_crypt, sha512_crypt
from simulated_io import Simulation, simulated_io

from magnetar.errors import AuthenticationFailure, TooManyRequests
from magnetar.security.authentication import Authenticated, Credentials
from magnetar.security.key_material import UnusableKey
from magnetar.security.options import ProviderRefused, SecurityOptions
from magnetar.security.providers import passwords
from magnetar.security.providers.passwords import PasswordProvider, matches, parse_htpasswd

PASSWORD = b"correct horse"
FORMS: dict[str, Callable[[], str]] = {
    "apr1": lambda: apr_md5_crypt.hash(PASSWORD),
    "md5-crypt": lambda: md5_crypt.hash(PASSWORD),
    "des-crypt": lambda: des_crypt.hash(PASSWORD),
    "sha256-crypt": lambda: sha256_crypt.using(rounds=1000).hash(PASSWORD),
    "sha512-crypt": lambda: sha512_crypt.using(rounds=1000).hash(PASSWORD),
    "bcrypt": lambda: bcrypt.using(rounds=4).hash(PASSWORD),
    "bcrypt-2y": lambda: bcrypt.using(rounds=4, ident="2y").hash(PASSWORD),
    "sha": lambda: ldap_sha1.hash(PASSWORD),
}
ALICE = apr_md5_crypt.using(salt="saltsalt").hash(PASSWORD)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What passwords were compared with."""
    made: list[str] = []

    def counting(password: bytes, stored: str) -> bool:
        made.append(stored)
        return matches(password, stored)

    monkeypatch.setattr(passwords, "matches", counting)
    return made


def provider(world: Simulation, file: Path, text: str | bytes) -> PasswordProvider:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return PasswordProvider(
        world.io, world.io.start_worker("files"), SecurityOptions({"basicAuthConf": str(file)})
    )


@pytest.mark.parametrize("form", FORMS)
def test_each_form_takes_its_password_and_no_other(form: str) -> None:
    stored = FORMS[form]()
    assert parse_htpasswd(f"alice:{stored}\n".encode()) == {"alice": stored}
    assert matches(PASSWORD, stored)
    for wrong in (b"", b"correct hors\0", PASSWORD + b"\0", PASSWORD[::-1], b"x" * 4096, b"\xff"):
        assert not matches(wrong, stored)


@pytest.mark.parametrize("form", ["apr1", "bcrypt"])
def test_long_passwords(form: str) -> None:
    """Of those that are longer than bcrypt looks at htpasswd has hashed the beginning."""
    long = b"p" * 72
    stored = (apr_md5_crypt if form == "apr1" else bcrypt.using(rounds=4)).hash(long)
    assert matches(long, stored)
    assert not matches(b"p" * 71, stored)
    assert matches(long + b"tail", stored) == (form == "bcrypt")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("alice", "line 1"),
        (":x", "line 1"),
        ("alice:", "form"),
        ("alice:secret", "form"),
        ("alice:{SSHA}aaaa", "form"),
        ("alice:$2b$31$" + "a" * 53, "too long"),
        ("alice:$5$rounds=999999999$salt$" + "a" * 43, "too long"),
        ("alice:$apr1$", "malformed"),
        ("alice:$2b$04$short", "malformed|format"),
        (f"alice:{ALICE}\nalice:{ALICE}", "repeats the name"),
        ("\udcff", "UTF-8"),
    ],
)
def test_a_file_that_is_damaged_is_refused_with_the_line(line: str, why: str) -> None:
    with pytest.raises(UnusableKey, match=why):
        parse_htpasswd(line.encode("utf-8", "surrogateescape"))


def test_comments_and_empty_lines_are_nobody() -> None:
    assert parse_htpasswd(f"# alice:x\n\n  \r\nalice:{ALICE}\r\n".encode()) == {"alice": ALICE}
    assert parse_htpasswd(b"") == {}


@pytest.mark.parametrize("text", ["file:/nowhere", "/nowhere/htpasswd", ""])
def test_a_file_that_is_not_there_is_named_at_the_start(text: str) -> None:
    world = simulated_io(1)
    with pytest.raises(ProviderRefused, match="basicAuthConf"):
        PasswordProvider(world.io, world.io.start_worker("files"), SecurityOptions({"basicAuthConf": text}))


@pytest.mark.parametrize("data", [b"", b":", b":x", b"alice", b"\xff:x", b"alice:" + b"x" * 5000])
def test_what_is_no_name_and_password_costs_no_comparison(
    tmp_path: Path, compared: list[str], data: bytes
) -> None:
    world = simulated_io(1)
    found = provider(world, tmp_path / "f", f"alice:{ALICE}\n")
    with pytest.raises(AuthenticationFailure):
        ask(world, found, data)
    assert compared == []


def test_a_password_may_hold_colons(tmp_path: Path) -> None:
    world = simulated_io(1)
    found = provider(world, tmp_path / "f", f"alice:{apr_md5_crypt.hash('a:b:')}\n")
    assert ask(world, found, b"alice:a:b:") == Authenticated("alice")


def test_an_unknown_name_costs_the_same_comparison_and_is_told_the_same(
    tmp_path: Path, compared: list[str]
) -> None:
    world = simulated_io(1)
    found = provider(world, tmp_path / "f", f"alice:{ALICE}\n")
    told = set()
    for name in (b"alice", b"nobody"):
        with pytest.raises(AuthenticationFailure) as refusal:
            ask(world, found, name + b":wrong")
        told.add(str(refusal.value))
    assert compared == [ALICE, ALICE]
    assert len(told) == 1
    # Not even with the password of the one it is compared with.
    with pytest.raises(AuthenticationFailure):
        ask(world, found, b"nobody:" + PASSWORD)


def test_where_forms_cost_differently_unknown_names_cost_differently_too(
    tmp_path: Path, compared: list[str]
) -> None:
    """With one form for all unknown names, the names of the others would be known by their time."""
    world = simulated_io(1)
    cheap = "".join(f"c{n}:{ldap_sha1.hash(PASSWORD)}\n" for n in range(2))
    found = provider(world, tmp_path / "f", f"{cheap}alice:{ALICE}\nbob:{ALICE}\n")
    for number in range(60):
        with pytest.raises(AuthenticationFailure):
            ask(world, found, b"nobody%d:x" % number)
    assert {stored[:5] for stored in compared} == {"{SHA}", "$apr1"}
    compared.clear()
    for _ in range(5):
        with pytest.raises(AuthenticationFailure):
            ask(world, found, b"nobody:x")
    assert len(set(compared)) == 1, "the same name costs the same each time"


def test_success_is_remembered_for_a_minute_and_failure_never(tmp_path: Path, compared: list[str]) -> None:
    world = simulated_io(1)
    found = provider(world, tmp_path / "f", f"alice:{ALICE}\n")
    for _ in range(3):
        assert ask(world, found, b"alice:" + PASSWORD) == Authenticated("alice")
    assert len(compared) == 1
    for _ in range(3):
        with pytest.raises(AuthenticationFailure):
            ask(world, found, b"alice:wrong")
    assert len(compared) == 4
    world.loop.run_for(61)
    ask(world, found, b"alice:" + PASSWORD)
    assert len(compared) == 5


def test_what_is_remembered_tells_nothing_of_passwords_and_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "_REMEMBERED", 3)
    world, again = simulated_io(1), simulated_io(2)
    text = "".join(f"u{n}:{ALICE}\n" for n in range(5))
    found, other = provider(world, tmp_path / "f", text), provider(again, tmp_path / "g", text)
    for number in range(5):
        ask(world, found, b"u%d:%b" % (number, PASSWORD))
        ask(again, other, b"u%d:%b" % (number, PASSWORD))
    assert len(found._proven) == 3
    assert not set(found._proven) & set(other._proven), "the key is of one process"
    assert PASSWORD not in repr(vars(found)).encode()


def test_a_file_that_changes_counts_at_once_and_a_damaged_one_lets_nobody_in(tmp_path: Path) -> None:
    world = simulated_io(1)
    file = tmp_path / "f"
    found = provider(world, file, f"alice:{ALICE}\nbob:{ALICE}\n")
    told: list[int] = []
    found.listen(lambda: told.append(1))
    for name in (b"alice:", b"bob:"):
        ask(world, found, name + PASSWORD)
    file.write_text(f"alice:{ALICE}\n")
    world.loop.run_for(5)
    assert len(told) == 1
    ask(world, found, b"alice:" + PASSWORD)
    with pytest.raises(AuthenticationFailure):
        ask(world, found, b"bob:" + PASSWORD)
    for damaged in ("alice:nothing\n", None):
        if damaged is None:
            file.unlink()
        else:
            file.write_text(damaged)
        world.loop.run_for(5)
        with pytest.raises(AuthenticationFailure):
            ask(world, found, b"alice:" + PASSWORD)
    assert len(told) == 3


class Asked:
    """Many clients at once."""

    def __init__(self, world: Simulation, found: PasswordProvider) -> None:
        self._world = world
        self._found = found
        self.tasks: list[Any] = []

    def by(self, peer: str, data: bytes) -> Any:
        work = self._found.authenticate(Credentials("basic", data, peer))
        self.tasks.append(self._world.loop.create_task(work))
        return self.tasks[-1]

    def outcomes(self) -> list[str]:
        self._world.loop.run_for(10)
        return [type(task.exception()).__name__ if task.exception() else "in" for task in self.tasks]


def test_one_address_does_not_keep_others_from_being_compared(tmp_path: Path) -> None:
    world = simulated_io(1)
    asked = Asked(world, provider(world, tmp_path / "f", f"alice:{ALICE}\n"))
    for number in range(50):
        asked.by(f"6.6.6.6:{number}", b"alice:%d" % number)
    asked.by("1.1.1.1:1", b"alice:" + PASSWORD)
    outcomes = asked.outcomes()
    assert outcomes.count(TooManyRequests.__name__) == 46
    assert outcomes.count(AuthenticationFailure.__name__) == 4
    assert outcomes[-1] == "in"
    assert asked._found._waiting == {}


def test_many_addresses_together_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_WAITING", 10)
    world = simulated_io(1)
    asked = Asked(world, provider(world, tmp_path / "f", f"alice:{ALICE}\n"))
    for number in range(30):
        asked.by(f"6.6.6.{number}:1", b"alice:%d" % number)
    assert asked.outcomes().count(TooManyRequests.__name__) == 20


def test_clients_with_the_same_proof_wait_for_one_comparison(tmp_path: Path, compared: list[str]) -> None:
    """An application that comes with all its connections at once is let in, all of it."""
    world = simulated_io(1)
    asked = Asked(world, provider(world, tmp_path / "f", f"alice:{ALICE}\n"))
    for number in range(50):
        asked.by(f"1.1.1.1:{number}", b"alice:" + PASSWORD)
    world.loop.run_for(0)
    asked.tasks[0].cancel()
    world.loop.run_for(10)
    assert [task.exception() for task in asked.tasks[1:]] == [None] * 49
    assert len(compared) == 1


def test_all_who_were_let_in_are_compared_again_and_who_is_gone_is_not_even_compared(
    tmp_path: Path, compared: list[str]
) -> None:
    world = simulated_io(1)
    text = "".join(f"u{n}:{ALICE}\n" for n in range(30))
    found = provider(world, tmp_path / "f", text)
    peer = "1.1.1.1:1"
    asked = [Credentials("basic", b"u%d:%b" % (n, PASSWORD), peer, again=True) for n in range(31)]
    tasks = [world.loop.create_task(found.authenticate(one)) for one in asked]
    world.loop.run_for(10)
    assert [task.exception() for task in tasks[:30]] == [None] * 30
    assert isinstance(tasks[30].exception(), AuthenticationFailure)
    assert len(compared) == 30


def test_a_client_that_goes_still_counts_until_its_comparison_is_done(tmp_path: Path) -> None:
    world = simulated_io(1)
    asked = Asked(world, provider(world, tmp_path / "f", f"alice:{ALICE}\n"))
    for number in range(4):
        asked.by("6.6.6.6:1", b"alice:%d" % number)
    world.loop.run_for(0)
    for task in asked.tasks:
        task.cancel()
    late = asked.by("6.6.6.6:1", b"alice:late")
    world.loop.run_for(10)
    assert isinstance(late.exception(), TooManyRequests)
    assert asked._found._waiting == {}
