"""``magnetar top`` at a real terminal, beside an official client and a broker that goes and comes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from server import Server
from terminal import Terminal

pulsar = pytest.importorskip("pulsar")


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Iterator[Server]:
    """With a topic nobody serves, one that is read as it is written, and forty that are quiet."""
    started = start_server(brokerDeleteInactiveTopicsEnabled="false")
    client = pulsar.Client(started.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe("payments", "ledger").close()
    producer = client.create_producer("payments")
    for _ in range(7):
        producer.send(b"a message")
    for number in range(40):
        client.create_producer(f"quiet-{number:02}").close()
    yield started
    client.close()


def environment(server: Server) -> dict[str, str]:
    found = {**os.environ, "PULSAR_ADMIN_URL": server.http_url}
    found.pop("PULSAR_CLIENT_CONF", None)
    return found


def at_terminal(server: Server, *arguments: str, columns: int = 120, lines: int = 30) -> Terminal:
    return Terminal(
        "magnetar", "top", *arguments, environment=environment(server), columns=columns, lines=lines
    )


def piped(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "magnetar", "top", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(server),
        stdin=subprocess.DEVNULL,
    )


def topics(screen: list[str]) -> list[str]:
    """Names, as they stand below each other."""
    return re.findall(r"public/default/(\S+)", "\n".join(screen))


def test_what_waits_is_seen_with_the_reason_and_keys_order_filter_and_scroll(server: Server) -> None:
    with at_terminal(server, "--order", "waiting") as terminal:
        screen = terminal.sees("ledger: no_consumer", "behind", "stuck 1", "topics 41", "q end")
        assert topics(screen)[0] == "payments"
        assert len(screen) == 30
        terminal.type("n")
        screen = terminal.until(lambda seen: topics(seen)[:2] == ["payments", "quiet-00"])
        assert topics(screen)[-1] == "quiet-24"
        # The marked line goes down to the last of the screen, and then the list scrolls.
        terminal.type("\x1b[B" * 25)
        terminal.marks("public/default/quiet-24")
        terminal.type("\x1b[B")
        assert topics(terminal.sees("from 2 on"))[0] == "quiet-00"
        terminal.type("\x1bOF")
        assert topics(terminal.sees("from 16 on"))[-1] == "quiet-39"
        terminal.type("/QUIET-1")
        terminal.sees("/QUIET-1_", "quiet-39")
        terminal.type("x\x7f\r")
        screen = terminal.sees("10 topics with QUIET-1", without="quiet-20")
        assert topics(screen) == [f"quiet-{number}" for number in range(10, 20)]
        terminal.type("\x1b")
        terminal.sees("payments")
        terminal.type("?")
        terminal.sees("Keys and columns", "magnetar explain TOPIC", "Enter", without="quiet-00")
        terminal.type("q")
        terminal.sees("quiet-00", "q end", without="Keys and columns")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.given_back()


def test_enter_explains_the_marked_topic_and_escape_leads_back(server: Server) -> None:
    with at_terminal(server, "--order", "name", lines=12) as terminal:
        terminal.sees("payments", "quiet-00", "q end")
        terminal.type("\r")
        terminal.sees("magnetar explain persistent://public/default/payments", "served by", without="q end")
        terminal.sees("producers:", "nothing", "back to the topics")
        # The rest is below, and on a wider screen it fits.
        terminal.type("\x1b[F")
        terminal.sees("subscription ledger: no_consumer", without="served by")
        terminal.type("\x1b[H")
        terminal.sees("served by", "producers:")
        terminal.resize(120, 40)
        terminal.sees("served by", "subscription ledger: no_consumer")
        terminal.resize(40, 40)
        # Nothing of the text is cut; a frame that is drawn while the size changes may be.
        terminal.until(lambda seen: max(map(len, seen)) <= 40 and "…" not in "".join(seen[3:-1]))
        # It goes on while it is shown.
        client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.subscribe("payments", "another").close()
        terminal.sees("subscription another")
        consumer = client.subscribe("payments", "another")
        consumer.unsubscribe()
        client.close()
        terminal.type("\x1b")
        terminal.resize(120, 12)
        terminal.sees("payments", "quiet-00", "q end", without="magnetar explain")
        terminal.type("\x1b[B\r")
        terminal.sees("magnetar explain persistent://public/default/quiet-00")
        terminal.type("q")
        terminal.sees("quiet-00", "q end")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.given_back()


def test_figures_come_by_themselves_and_it_goes_with_the_size_of_the_terminal(server: Server) -> None:
    with at_terminal(server, "--order", "backlog", columns=100, lines=12) as terminal:
        screen = terminal.sees("ledger: no_consumer")
        assert (len(screen), len(topics(screen))) == (12, 8)
        client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        client.create_producer("payments").send(b"one more")
        terminal.sees("  8  ", without="  7  ")
        client.close()
        terminal.resize(60, 20)
        screen = terminal.until(lambda seen: len(seen) == 20)
        assert max(map(len, screen)) <= 60
        assert "prod" not in "\n".join(screen)
        terminal.resize(20, 2)
        assert len(terminal.until(lambda seen: len(seen) == 2)) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_terminal_is_given_back_when_it_is_ended(server: Server, number: int, code: int) -> None:
    with at_terminal(server, "-n", "3") as terminal:
        assert len(topics(terminal.sees("q end"))) == 3
        if number == signal.SIGINT:
            terminal.type("\x03")
        else:
            terminal.process.send_signal(number)
        assert terminal.ends() == code
        assert terminal.given_back()


def test_it_is_stopped_and_goes_on(server: Server) -> None:
    with at_terminal(server) as terminal:
        terminal.sees("q end")
        terminal.type("\x1a")
        terminal.stopped()
        assert terminal.given_back()
        terminal.process.send_signal(signal.SIGCONT)
        terminal.type("w")
        terminal.sees("by waiting")
        terminal.type("q")
        assert terminal.ends() == 0
        assert terminal.given_back()


def test_it_ends_with_its_terminal(server: Server) -> None:
    with at_terminal(server) as terminal:
        terminal.sees("q end")
        terminal.hang_up()
        assert terminal.ends() == 128 + signal.SIGHUP


def test_a_broker_that_is_gone_is_told_of_and_seen_again(start_server: Callable[..., Server]) -> None:
    server = start_server()
    with at_terminal(server) as terminal:
        terminal.sees("0 topics")
        server.kill()
        terminal.sees("Outdated: cannot reach", "retrying")
        server.start()
        terminal.sees("by in: 0 topics", without="retrying")
        terminal.type("q")
        assert terminal.ends() == 0


def test_one_table_where_nobody_looks(server: Server) -> None:
    ended = piped(server, "--order", "waiting", "-n", "2")
    assert (ended.returncode, ended.stderr) == (0, "")
    head, blank, titles, first, second, more = ended.stdout.splitlines()
    assert ("stuck 1" in head, blank) == (True, "")
    assert titles.split() == ["in/s", "out/s", "backlog", "prod", "cons", "subs", "topic", "waits"]
    assert re.search(r" 1 +public/default/payments +ledger: no_consumer for .+, [78] behind$", first), first
    assert topics([second]) == ["quiet-00"]
    assert more == "and 39 more"
    assert "\x1b" not in ended.stdout


def test_an_object_for_programs(server: Server) -> None:
    told: dict[str, Any] = json.loads(piped(server, "-o", "json", "--order", "backlog", "-n", "1").stdout)
    assert (told["total"], told["broker"]["totals"]["waiting"]) == (41, 1)
    assert [each["waiting"]["reason"] for each in told["topics"]] == ["no_consumer"]
    told = json.loads(piped(server, "-o", "json", "--namespace", "public/default").stdout)
    assert ("broker" in told, told["total"]) == (False, 41)
    ended = piped(server, "--once", "--namespace", "public/default", "-n", "1")
    assert ended.stdout.splitlines()[0] == "public/default   topics 41"


def test_what_cannot_be_seen_is_said(server: Server, start_server: Callable[..., Server]) -> None:
    ended = piped(server, "--namespace", "public")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "public" in ended.stderr
    assert piped(server, "-n", "101").returncode == 2
    without = start_server(magnetarDashboardEnabled="false")
    ended = piped(without)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "magnetarDashboardEnabled=true" in ended.stderr
    without.stop()
    ended = piped(without)
    assert ended.returncode == 1
    assert "cannot reach" in ended.stderr
