"""Carries out the commands ``produce``, ``consume``, ``read``, ``run`` and ``transaction``, in one or several
processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from magnetar.admin_client import AdminClient, AdminError, Conflict, NotFound
from magnetar.cli.cluster_access import AccessRefused, error_text
from magnetar.cli.perf.load import Load
from magnetar.cli.perf.pacing import SharedClock
from magnetar.cli.perf.report import Live, added_up, figures, findings, tell, tell_lines, write_histograms
from magnetar.cli.perf.transactions import lines_of, transaction_load
from magnetar.cli.perf.workload import (
    Share,
    check_is_checkable,
    consumers,
    new_admin,
    new_client,
    new_shared,
    plan,
    producers,
    readers,
    topic_names,
)
from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.exit_codes import FAILED, SUCCEEDED
from magnetar.io.real.loop_thread import run_until_done

_BACKLOG_SECONDS = 20.0
Found = dict[str, object]
_START_SECONDS = 3.0


def perform(parsed: argparse.Namespace, given: Sequence[str]) -> int:
    """Runs the command; returns the exit code: 0 success, 1 failure, 3 the measurement is not valid.

    :param given: the arguments from which ``parsed`` was made
    """
    for note in getattr(parsed, "notes", None) or []:
        sys.stderr.write(f"pulsar-perf: {note}\n")
    try:
        if parsed.command == "transaction":
            return tell_lines(run_until_done(_transaction(parsed)), parsed.json, lines_of)
        if parsed.share is None and parsed.processes > 1:
            found = added_up(spread(given, parsed.processes))
        else:
            found = run_until_done(_COMMANDS[parsed.command](parsed, Share.parse(parsed.share)))
    except (AccessRefused, PulsarException, AdminError, OSError) as error:
        named = "" if isinstance(error, PulsarException) else f"{type(error).__name__}: "
        sys.stderr.write(f"pulsar-perf: {named}{error_text(error)}\n")
        return FAILED
    if parsed.share is not None:
        sys.stdout.write(json.dumps(found) + "\n")
        return SUCCEEDED
    if parsed.histogram_file:
        write_histograms(found, parsed.histogram_file)
    return tell(figures(found, _about(parsed), parsed.server_pid), parsed.json)


def _about(parsed: argparse.Namespace) -> dict[str, object]:
    """Returns the values of the flags that describe the run, by name; the results include these values."""
    names = (
        "command",
        "raw",
        "num_topic",
        "num_producers",
        "num_subscriptions",
        "num_consumers",
        "subscription_type",
        "size",
        "rate",
        "max_outstanding",
        "max_behind",
        "disable_batching",
        "batch_max_messages",
        "receiver_queue_size",
        "ack",
        "processes",
        "warmup_time",
    )
    return {name: getattr(parsed, name) for name in names if hasattr(parsed, name)}


def _live(parsed: argparse.Namespace, share: Share) -> tuple[Live | None, float]:
    """Returns the object that prints lines with live rates, and the interval between two lines, in seconds.

    The object is None if several processes share the run, or if live rates were not requested and the output
    is no terminal.
    """
    if share.of > 1:
        return None, 1.0
    if parsed.stats_interval_seconds > 0:
        return Live(), parsed.stats_interval_seconds
    return (Live(), 1.0) if sys.stderr.isatty() else (None, 1.0)


async def _finish(load: Load, work: Awaitable[None]) -> None:
    """Runs a load to its end; Ctrl-C ends the load early, and the results cover the time until then."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, load.interrupt)
    await work


async def _produce(parsed: argparse.Namespace, share: Share) -> Found:
    topics = topic_names(parsed)
    if parsed.partitions:
        topics = _create_partitioned(parsed, topics)
    client, shared = new_client(parsed), new_shared()
    try:
        names = [name for topic in topics for name in await client.get_topic_partitions(topic)]
        senders = producers(parsed, client, shared, names[share.index :: share.of] or names)
        live, seconds = _live(parsed, share)
        wanted = plan(parsed, share, rate=parsed.rate, messages=parsed.num_messages)
        load = Load(wanted, shared, senders, [], 0, live, seconds)
        await _finish(load, load.run())
        await load.close()
        return findings(load, size=parsed.size, disorder_counts=False)
    finally:
        await client.close()


async def _transaction(parsed: argparse.Namespace) -> Found:
    parsed.topics_c = parsed.topics_c or ["test-consume"]
    parsed.topics_p = parsed.topics_p or ["test-produce"]
    if parsed.partitions:
        _create_partitioned(parsed, [*parsed.topics_c, *parsed.topics_p])
    client = new_client(parsed)
    try:
        return await transaction_load(parsed, client)
    finally:
        await client.close()


def _create_partitioned(parsed: argparse.Namespace, topics: list[str]) -> list[str]:
    admin = new_admin(parsed)
    for topic in topics:
        try:
            have = admin.partitions(topic)
        except NotFound:
            have = 0
        if have == 0:
            have = _made(admin, topic, parsed.partitions)
        if have != parsed.partitions:
            raise InvalidConfiguration(
                f"{topic} has {have} partitions, not {parsed.partitions}; give another topic, or -np {have}"
            )
    return topics


def _made(admin: AdminClient, topic: str, partitions: int) -> int:
    """Creates a partitioned topic unless it exists; returns its number of partitions.

    :raises Conflict: the topic exists and is not partitioned
    """
    try:
        admin.create_partitioned_topic(topic, partitions)
    except Conflict:
        have = admin.partitions(topic)
        if have == 0:
            raise
        return have
    return partitions


async def _consume(parsed: argparse.Namespace, share: Share) -> Found:
    subscriptions = parsed.subscriptions or [parsed.subscriber_name or "sub"]
    if len(subscriptions) != parsed.num_subscriptions:
        if len(subscriptions) > 1:
            raise InvalidConfiguration(
                f"-ss names {len(subscriptions)} subscriptions, but -ns is "
                f"{parsed.num_subscriptions}; the numbers must be equal"
            )
        subscriptions = [f"{subscriptions[0]}-{index}" for index in range(parsed.num_subscriptions)]
    client, shared = new_client(parsed), new_shared()
    try:
        names = [name for topic in topic_names(parsed) for name in await client.get_topic_partitions(topic)]
        receivers = consumers(
            parsed,
            client,
            shared,
            names[share.index :: share.of] or names,
            subscriptions,
            earliest=parsed.subscription_position == "Earliest",
            numbered=0,
        )
        live, seconds = _live(parsed, share)
        messages = parsed.num_messages
        if parsed.txn_enable and parsed.number_txn:
            messages = parsed.number_txn * parsed.txn_messages
        wanted = plan(parsed, share, rate=0, messages=messages)
        load = Load(wanted, shared, [], receivers, 0, live, seconds)
        await _finish(load, load.run())
        await load.close()
        return findings(load, size=0, disorder_counts=False)
    finally:
        await client.close()


def _start_id(text: str) -> MessageId:
    ends = {"earliest": MessageId.earliest, "latest": MessageId.latest}
    if text in ends:
        return ends[text]
    ledger, _, entry = text.partition(":")
    if not (ledger.isdigit() and entry.isdigit()):
        raise InvalidConfiguration(f"-m {text} is not a start position; use earliest, latest or LEDGER:ENTRY")
    return MessageId(-1, int(ledger), int(entry))


async def _read(parsed: argparse.Namespace, share: Share) -> Found:
    if parsed.raw and parsed.rate:
        raise InvalidConfiguration("consume and read do not support --raw with -r; remove --raw or -r")
    start = _start_id(parsed.start_message_id)
    client, shared = new_client(parsed), new_shared()
    try:
        names = [
            name
            for topic in topic_names(parsed)
            for name in await client.get_topic_partitions(topic, create=False)
        ]
        mine = names[share.index :: share.of] or names
        receivers = readers(parsed, client, shared, mine, start)
        live, seconds = _live(parsed, share)
        wanted = plan(parsed, share, rate=0, messages=parsed.num_messages)
        load = Load(wanted, shared, [], receivers, 0, live, seconds)
        await _finish(load, load.run())
        await load.close()
        return findings(load, size=0, disorder_counts=False)
    finally:
        await client.close()


async def _run(parsed: argparse.Namespace, share: Share) -> Found:
    check_is_checkable(parsed)
    if parsed.test_duration <= 0 and not parsed.num_messages:
        raise InvalidConfiguration("run requires -time or -m; otherwise it would never end")
    everything = topic_names(parsed)
    if len(everything) < share.of:
        raise InvalidConfiguration(
            f"{share.of} processes require at least {share.of} topics; raise -t or lower --processes"
        )
    topics = everything[share.index :: share.of]
    # The admin interface is needed at the end: check before the run that it is reachable.
    new_admin(parsed).clusters()
    client, shared = new_client(parsed), new_shared()
    subscriptions = [f"sub-{index}" for index in range(parsed.num_subscriptions)]
    try:
        senders = producers(parsed, client, shared, topics)
        receivers = consumers(
            parsed, client, shared, topics, subscriptions, earliest=True, numbered=len(senders)
        )
        live, seconds = _live(parsed, share)
        lossy = all(topic.startswith("non-persistent://") for topic in topics)
        wanted = plan(parsed, share, rate=parsed.rate, messages=parsed.num_messages, lossy=lossy)
        load = Load(wanted, shared, senders, receivers, len(subscriptions), live, seconds)
        await _finish(load, load.run())
        if any(receiver.foreign for receiver in receivers):
            shared.failed(
                f"{sum(receiver.foreign for receiver in receivers)} received messages were sent by "
                "another program"
            )
        if not shared.failures:
            await _check_backlog(new_admin(parsed), topics, shared.failed)
        await load.close()
        kept_order = parsed.num_consumers == 1 or parsed.subscription_type in ("Exclusive", "Failover")
        return findings(load, size=parsed.size, disorder_counts=kept_order)
    finally:
        await client.close()
        if not parsed.keep:
            _delete(new_admin(parsed), topics)


async def _check_backlog(admin: AdminClient, topics: list[str], failed: Callable[[str], object]) -> None:
    """Waits until the broker reports that no subscription of ``topics`` has a backlog; if a topic still has a
    backlog after a time limit, calls ``failed`` once, with a text that contains the topic and its numbers of
    unacknowledged messages.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + _BACKLOG_SECONDS
    for topic in topics:
        while True:
            stats = await asyncio.to_thread(admin.topic_stats, topic, precise_backlog=True)
            left = {
                name: subscription["msgBacklog"]
                for name, subscription in stats["subscriptions"].items()
                if subscription["msgBacklog"]
            }
            if not left:
                break
            if loop.time() > end:
                failed(f"{topic}: {left} messages remain in the backlog")
                return
            await asyncio.sleep(0.1)


def _delete(admin: AdminClient, topics: list[str]) -> None:
    for topic in topics:
        try:
            admin.delete_topic(topic, force=True)
        except NotFound:
            continue


_COMMANDS: dict[str, Callable[[argparse.Namespace, Share], Any]] = {
    "produce": _produce,
    "consume": _consume,
    "read": _read,
    "run": _run,
}


def spread(given: Sequence[str], processes: int) -> list[dict[str, object]]:
    """Runs the command in several processes; returns the raw results of each process.

    :param given: the arguments of the command
    :raises InvalidConfiguration: a process failed; it has printed the reason
    """
    begin_at = SharedClock().now() + round(_START_SECONDS * 1e9)
    command = [sys.executable, "-m", "magnetar.cli.pulsar_perf", *given]
    running = [
        subprocess.Popen(
            [*command, "--share", f"{index}/{processes}/{begin_at}"], stdout=subprocess.PIPE, text=True
        )
        for index in range(processes)
    ]
    outputs = [process.communicate()[0] for process in running]
    codes = [process.returncode for process in running]
    if any(codes):
        raise InvalidConfiguration(
            f"load processes failed with the exit codes {codes}; their messages above give the reasons"
        )
    return [json.loads(output) for output in outputs]
