"""Creates a load from flags: topics, producers and consumers, and the plan of the run."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magnetar.admin_client import AdminClient
from magnetar.cli.cluster_access import ClusterAccess, cluster_access
from magnetar.cli.perf.api_ends import ApiConsumer, ApiProducer
from magnetar.cli.perf.ends import PerfSender, Receiver, ReceiveSettings, SendSettings, Shared
from magnetar.cli.perf.hot_raw import HEADER_SIZE, OrderCheck, Window
from magnetar.cli.perf.load import LoadPlan
from magnetar.cli.perf.options import DEFAULT_OUTSTANDING
from magnetar.cli.perf.pacing import SharedClock
from magnetar.cli.perf.raw_ends import RawConsumer, RawProducer
from magnetar.cli.perf.transactions import (
    TransactionalConsumer,
    TransactionalProducer,
    TransactionUse,
)
from magnetar.client.client import Client
from magnetar.client.enums import ConsumerType, ProducerAccessMode
from magnetar.client.exceptions import InvalidConfiguration
from magnetar.client.message_id import MessageId
from magnetar.io.real import running_client_io

_BATCH_BYTES = 128 * 1024
_CODECS = {"NONE": 0, "LZ4": 1, "ZLIB": 2, "ZSTD": 3, "SNAPPY": 4}
_TYPES = {"Exclusive": 0, "Shared": 1, "Failover": 2, "Key_Shared": 3}


@dataclass(frozen=True)
class Share:
    """The part of the work that this process does, if several processes share a run."""

    index: int = 0
    of: int = 1
    begin_at: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Share:
        if text is None:
            return cls()
        index, of, begin_at = (int(part) for part in text.split("/"))
        return cls(index, of, begin_at)


def topic_names(parsed: argparse.Namespace) -> list[str]:
    """Returns the names of all topics of the run.

    :raises InvalidConfiguration: the number of given names is neither 1 nor the value of ``-t``
    """
    names: list[str] = parsed.topics
    count = parsed.num_topic
    if len(names) == count and count > 0:
        return names
    if len(names) != 1:
        raise InvalidConfiguration(
            f"{len(names)} topics are named, but -t is {count}; name one topic or {count}"
        )
    separator = getattr(parsed, "separator", "-")
    return [f"{names[0]}{separator}{index}" for index in range(count)]


def access_of(parsed: argparse.Namespace) -> ClusterAccess:
    """Returns the addresses and credentials of a run.

    :raises AccessRefused: a setting cannot be used
    """
    return cluster_access(
        {
            "brokerServiceUrl": parsed.service_url,
            "webServiceUrl": getattr(parsed, "admin_url", None),
            "authPlugin": parsed.auth_plugin,
            "authParams": parsed.auth_params,
            "tlsTrustCertsFilePath": parsed.trust_cert_file,
            "tlsAllowInsecureConnection": parsed.tls_allow_insecure,
            "tlsEnableHostnameVerification": parsed.tls_enable_hostname_verification,
            "proxyServiceUrl": parsed.proxy_url,
            "proxyProtocol": parsed.proxy_protocol,
        }
    )


def new_client(parsed: argparse.Namespace) -> Client:
    access = access_of(parsed)
    return Client(
        access.service_url,
        io=running_client_io(),
        connections_per_broker=parsed.max_connections,
        listener_name=parsed.listener_name,
        stats_interval_seconds=0,
        **access.client_options(),
    )


def new_admin(parsed: argparse.Namespace) -> AdminClient:
    access = access_of(parsed)
    return AdminClient(access.admin_url, authentication=access.authentication, tls=access.tls)


def new_shared() -> Shared:
    return Shared(SharedClock(), Window())


def send_settings(parsed: argparse.Namespace, producers: int) -> SendSettings:
    """Returns the settings of the producers of a process.

    :param producers: the number of producers of this process
    :raises InvalidConfiguration: ``--raw`` does not support one of the flags
    """
    contents = _contents(parsed)
    chunking = getattr(parsed, "chunking", False)
    if parsed.raw:
        _check_is_plain(parsed, contents)
    outstanding = parsed.max_outstanding or DEFAULT_OUTSTANDING
    if parsed.max_outstanding_across_partitions:
        outstanding = max(1, min(outstanding, parsed.max_outstanding_across_partitions // producers))
    return SendSettings(
        size=len(contents[0]),
        batch=1 if parsed.disable_batching or chunking else parsed.batch_max_messages,
        batch_bytes=min(parsed.batch_max_bytes, _BATCH_BYTES) if parsed.raw else parsed.batch_max_bytes,
        batch_delay_ms=parsed.batch_time_window,
        max_outstanding=outstanding,
        contents=contents,
        compression=_CODECS[parsed.compression],
        access_mode=ProducerAccessMode[parsed.access_mode],
        producer_name=parsed.producer_name or "",
        send_timeout_millis=round(parsed.send_timeout * 1000),
        chunking=chunking,
    )


def _check_is_plain(parsed: argparse.Namespace, contents: tuple[bytes, ...]) -> None:
    refused = {
        "-z": parsed.compression != "NONE",
        "-d": parsed.delay,
        "-set": parsed.set_event_time,
        "-mk": parsed.message_key_generation_mode,
        "-f with several contents": len(contents) > 1,
        "-ch": getattr(parsed, "chunking", False),
    }
    _check_raw(refused)


def _check_raw(refused: Mapping[str, object]) -> None:
    """Checks that ``--raw`` supports all given flags.

    :param refused: values of the flags that ``--raw`` does not support, by flag
    :raises InvalidConfiguration: one of these flags is set
    """
    for flag, given in refused.items():
        if given:
            raise InvalidConfiguration(f"--raw does not support {flag}; remove --raw or {flag}")


def _chunks(parsed: argparse.Namespace) -> Mapping[str, Any]:
    """Returns the consumer options for chunked messages; for a flag that is 0, the client's default applies.

    :raises InvalidConfiguration: a flag for chunked messages is given with ``--raw``, which counts each chunk
        as a message
    """
    if parsed.command != "consume":
        return {}
    flags = {
        "-mc": ("max_pending_chunked_message", parsed.max_chunked_msg),
        "-ac": ("auto_ack_oldest_chunked_message_on_queue_full", parsed.auto_ack_chunk_q_full),
        "-e": (
            "expire_time_of_incomplete_chunked_message_ms",
            parsed.expire_time_incomplete_chunked_messages,
        ),
    }
    if parsed.raw:
        _check_raw({flag: given for flag, (_, given) in flags.items()})
    return {name: given for name, given in flags.values() if given}


def _contents(parsed: argparse.Namespace) -> tuple[bytes, ...]:
    if not parsed.payload_file:
        return (os.urandom(parsed.size),)
    delimiter = parsed.payload_delimiter.encode().decode("unicode_escape").encode()
    found = tuple(part for part in Path(parsed.payload_file).read_bytes().split(delimiter) if part)
    if not found:
        raise InvalidConfiguration(
            f"{parsed.payload_file} contains no message content; check the separator (-e)"
        )
    return found


def receive_settings(
    parsed: argparse.Namespace, subscription: str, earliest: bool, consumers: int
) -> ReceiveSettings:
    """Returns the settings of the consumers of a process.

    :param consumers: the number of consumers of this process
    :raises InvalidConfiguration: ``--raw`` is given together with a rate limit
    """
    queue = parsed.receiver_queue_size
    total = getattr(parsed, "receiver_queue_size_across_partitions", 0)
    rate = parsed.rate if parsed.command == "consume" else 0.0
    if parsed.raw and rate:
        raise InvalidConfiguration("consume and read do not support --raw with -r; remove --raw or -r")
    return ReceiveSettings(
        subscription=subscription,
        consumer_type=_TYPES[parsed.subscription_type],
        queue=max(1, min(queue, total // consumers)) if total else queue,
        earliest=earliest,
        cumulative=parsed.ack == "cumulative",
        ack_delay_millis=parsed.acks_delay_millis,
        ack_group=parsed.ack_group,
        batch_index_ack=parsed.batch_index_ack,
        replicated=getattr(parsed, "replicated", False),
        rate=rate / consumers,
        chunks=_chunks(parsed),
    )


def producers(
    parsed: argparse.Namespace, client: Client, shared: Shared, topics: Sequence[str]
) -> list[PerfSender]:
    """Returns the producers on ``topics``, numbered from 0."""
    settings = send_settings(parsed, len(topics) * parsed.num_producers)
    transactions = TransactionUse.of(parsed)
    made: list[PerfSender] = []
    for topic in topics:
        for _ in range(parsed.num_producers):
            if parsed.raw:
                made.append(RawProducer(client.services, topic, len(made), settings, shared))
            elif transactions is not None:
                extras, number = _extras(parsed), len(made)
                made.append(
                    TransactionalProducer(client, topic, number, settings, shared, extras, transactions)
                )
            else:
                made.append(ApiProducer(client, topic, len(made), settings, shared, _extras(parsed)))
    return made


def _extras(parsed: argparse.Namespace) -> dict[str, object]:
    return {
        "delay": parsed.delay,
        "event_time": parsed.set_event_time,
        "keys": parsed.message_key_generation_mode,
    }


def consumers(
    parsed: argparse.Namespace,
    client: Client,
    shared: Shared,
    topics: Sequence[str],
    subscriptions: Sequence[str],
    *,
    earliest: bool,
    numbered: int,
) -> list[Receiver]:
    """Returns the consumers on ``topics``.

    :param earliest: whether new subscriptions begin at the earliest message; otherwise, at the end of the
        topic
    :param numbered: number of producers whose messages are checked for loss and order; 0: no messages are
        checked
    """
    transactions = TransactionUse.of(parsed)
    made: list[Receiver] = []
    ends = len(topics) * len(subscriptions) * parsed.num_consumers
    orders = {name: OrderCheck(numbered) for name in subscriptions} if numbered else {}
    for topic in topics:
        for name in subscriptions:
            settings = receive_settings(parsed, name, earliest, ends)
            for _ in range(parsed.num_consumers):
                order = orders.get(name)
                if parsed.raw:
                    made.append(RawConsumer(client.services, topic, settings, shared, order))
                elif transactions is not None:
                    made.append(TransactionalConsumer(client, topic, settings, shared, order, transactions))
                else:
                    made.append(ApiConsumer(client, topic, settings, shared, order))
    return made


def readers(
    parsed: argparse.Namespace, client: Client, shared: Shared, topics: Sequence[str], start: MessageId
) -> list[Receiver]:
    settings = ReceiveSettings(
        subscription="pulsar-perf-reader",
        consumer_type=ConsumerType.Exclusive,
        queue=parsed.receiver_queue_size,
        earliest=True,
        cumulative=False,
        ack_delay_millis=0,
        ack_group=1,
        batch_index_ack=False,
        replicated=False,
        rate=parsed.rate / len(topics),
    )
    if parsed.raw:
        return [RawConsumer(client.services, topic, settings, shared, None, start) for topic in topics]
    return [ApiConsumer(client, topic, settings, shared, None, start) for topic in topics]


def plan(
    parsed: argparse.Namespace, share: Share, *, rate: float, messages: int, lossy: bool = False
) -> LoadPlan:
    """Returns the load that one process of a run carries.

    :param rate: the rate of all processes together, in messages per second
    :param messages: number of messages of all processes together; 0: no limit
    :param lossy: whether messages may be lost
    :raises InvalidConfiguration: there are fewer messages than processes
    """
    if 0 < messages < share.of:
        # The last processes would get 0 messages, which means no limit.
        raise InvalidConfiguration(
            f"{share.of} processes require at least {share.of} messages; raise -m or lower --processes"
        )
    behind = getattr(parsed, "max_behind", 0)
    return LoadPlan(
        warmup=parsed.warmup_time,
        seconds=max(0.0, parsed.test_duration),
        messages=messages // share.of + (1 if share.index < messages % share.of else 0),
        rate=rate / share.of,
        server_pids=parsed.server_pid,
        max_behind=max(1, behind // share.of) if behind else 0,
        lossy=lossy,
        begin_at=share.begin_at,
    )


def check_is_checkable(parsed: argparse.Namespace) -> None:
    """Checks that messages are large enough for the header that ``--check`` needs.

    :raises InvalidConfiguration: payloads are too small for the header
    """
    if parsed.size < HEADER_SIZE:
        raise InvalidConfiguration(
            f"-s {parsed.size} is too small: checks require messages of at least {HEADER_SIZE} bytes"
        )
