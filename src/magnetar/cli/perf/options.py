"""The flags of ``pulsar-perf``: those of Pulsar, and some that only Magnetar has. Imports only
:mod:`argparse` and its types.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from magnetar.cli.command_lines import add_proxy_flags, count, number, positive

_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
_CODECS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
_MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
DEFAULT_OUTSTANDING = 1000

# (names, takes a value): Pulsar's flags that this client does not support.
_REFUSED_BY_ALL = (
    (("--ssl-factory-plugin",), True),
    (("--ssl-factory-plugin-params",), True),
)
_REFUSED_BY_PRODUCE = (
    (("--encryption-key-name", "-k"), True),
    (("--encryption-key-value-file", "-v"), True),
    (("--format-payload", "-fp"), False),
    (("--format-class", "-fc"), True),
    (("--delay-range", "-dr"), True),
)
_REFUSED_BY_CONSUME = (
    (("--auto-scaled-receiver-queue-size", "-aq"), False),
    (("--encryption-key-value-file", "-v"), True),
)
# Flags for threads and buffers of the Java client; they have no effect here, and a note says so.
_WITHOUT_EFFECT = (
    (("--num-io-threads", "-ioThreads"), True),
    (("--num-listener-threads", "-lt"), True),
    (("--busy-wait", "-bw"), False),
    (("--max-lookup-request", "-mlr"), True),
    (("--memory-limit", "-ml"), True),
)
COMMANDS_OF_LATER = ("managed-ledger", "websocket-producer", "monitor-brokers", "gen-doc")


class _Refuse(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option: str | None = None
    ) -> NoReturn:
        parser.error(f"{option} is not supported by this pulsar-perf")


class _Note(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None
    ) -> None:
        namespace.notes = [*(getattr(namespace, "notes", None) or []), f"{option} has no effect"]


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line."""
    root = argparse.ArgumentParser(
        prog="pulsar-perf",
        description="Puts load on a broker and measures throughput and latency.",
        allow_abbrev=False,
    )
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    produce = _command(commands, "produce", "send messages", _REFUSED_BY_PRODUCE)
    _produce(produce, rate=100.0)
    _transactions(produce, "number of messages in a transaction")
    text = "send a message in chunks if it exceeds the maximum entry size; disables batching"
    produce.add_argument("--chunking", "-ch", action="store_true", help=text)
    _own(produce)
    consume = _command(commands, "consume", "receive messages", _REFUSED_BY_CONSUME)
    _consume(consume)
    _transactions(consume, "number of acknowledgements in a transaction")
    text = "with -txn: stop after N transactions; 0: no limit (0)"
    consume.add_argument("-ntxn", dest="number_txn", type=count, default=0, metavar="N", help=text)
    _own(consume)
    _own_acks(consume)
    read = _command(commands, "read", "read messages", ())
    _read(read)
    _own(read)
    run = _command(commands, "run", "publish, receive and acknowledge together, and check every message", ())
    _produce(run, rate=0.0)
    _run(run)
    _own(run)
    _own_acks(run)
    text = "receive, acknowledge and publish in transactions"
    _transaction(_command(commands, "transaction", text, (), takes_topics=False))
    for name in COMMANDS_OF_LATER:
        commands.add_parser(name, help="not supported yet", add_help=False)
    return root


def _command(
    commands: Any,
    name: str,
    text: str,
    refused: Sequence[tuple[tuple[str, ...], bool]],
    *,
    takes_topics: bool = True,
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    add = made.add_argument
    if takes_topics:
        text = "names of the topics; with -t above 1, a single name is the prefix of all names"
        add("topics", nargs="+", metavar="TOPIC", help=text)
        text = "number of topics (1)"
        add("--num-topic", "--num-topics", "-t", type=positive, default=1, metavar="N", help=text)
        add(
            "--histogram-file",
            metavar="FILE",
            help="file to which the latencies are written as an HdrHistogram log",
        )
    add("--service-url", "-u", metavar="URL", help="service URL of the brokers (pulsar://localhost:6650)")
    add(
        "--auth-plugin",
        "--auth_plugin",
        metavar="CLASS",
        help="authentication plugin: a Pulsar class name, or token, basic or tls",
    )
    add("--auth-params", metavar="TEXT", help="credentials for the authentication plugin")
    add("--trust-cert-file", metavar="FILE", help="PEM file with the trusted certificate authorities")
    add("--tls-allow-insecure", action="store_true", help="accept any certificate")
    add(
        "--tls-enable-hostname-verification",
        action="store_true",
        help="verify the host names in certificates (on, unless client.conf disables it)",
    )
    add(
        "--max-connections",
        "-c",
        type=positive,
        default=1,
        metavar="N",
        help="number of connections to each broker (1)",
    )
    add(
        "--stats-interval-seconds",
        "-i",
        type=number,
        default=0,
        metavar="S",
        help="print rates every S seconds; 0, the default: every second on a terminal, otherwise never",
    )
    add("--listener-name", metavar="NAME", help="advertised listener to use")
    add_proxy_flags(made)
    add(
        "--test-duration",
        "-time",
        type=number,
        default=0,
        metavar="S",
        help="duration in seconds; 0: no limit (0)",
    )
    for names, value in (*_REFUSED_BY_ALL, *refused):
        add(*names, action=_Refuse, nargs=None if value else 0, help=argparse.SUPPRESS)
    for names, value in _WITHOUT_EFFECT:
        add(*names, action=_Note, nargs=None if value else 0, help=argparse.SUPPRESS)
    return made


def _produce(made: argparse.ArgumentParser, rate: float) -> None:
    add = made.add_argument
    text = "messages per second over all topics (%(default)s); 0: as many as --max-outstanding permits"
    add("--rate", "-r", type=number, default=rate, metavar="R", help=text)
    add("--size", "-s", type=count, default=1024, metavar="BYTES", help="size of a message (1024)")
    add("--num-producers", "-n", type=positive, default=1, metavar="N", help="producers per topic (1)")
    add(
        "--num-messages",
        "-m",
        type=count,
        default=0,
        metavar="N",
        help="stop after N messages; 0: no limit (0)",
    )
    add(
        "--max-outstanding",
        "-o",
        type=count,
        default=0,
        metavar="N",
        help="maximum number of messages without a receipt, per producer; 0, the default, means 1000",
    )
    add(
        "--max-outstanding-across-partitions",
        "-p",
        type=count,
        default=0,
        metavar="N",
        help="maximum number of messages without a receipt, over all partitions; 0: no limit (0)",
    )
    add(
        "--compression",
        "-z",
        choices=_CODECS,
        default="NONE",
        type=str.upper,
        help="compression of messages (NONE)",
    )
    add(
        "--payload-file",
        "-f",
        metavar="FILE",
        help="file with message contents, separated by the delimiter of -e",
    )
    add(
        "--payload-delimiter",
        "-e",
        default="\\n",
        metavar="TEXT",
        help="separator between the contents in the file of -f (\\n)",
    )
    add(
        "--batch-time-window",
        "-b",
        type=number,
        default=1.0,
        metavar="MS",
        help="maximum time in ms for which a batch waits for more messages (1)",
    )
    add("--disable-batching", "-db", action="store_true", help="send each message as a separate entry")
    add(
        "--batch-max-messages",
        "-bm",
        type=positive,
        default=1000,
        metavar="N",
        help="maximum number of messages in a batch (1000)",
    )
    add(
        "--batch-max-bytes",
        "-bb",
        type=positive,
        default=4 * 1024 * 1024,
        metavar="BYTES",
        help="maximum size of a batch in bytes (4 MiB)",
    )
    add(
        "--warmup-time",
        type=number,
        default=1.0,
        metavar="S",
        help="duration of the warm-up before the measurement, in seconds (1)",
    )
    add(
        "--access-mode", "-am", choices=_MODES, default="Shared", help="access mode of the producers (Shared)"
    )
    add("--producer-name", "-pn", metavar="NAME", help="prefix of producer names")
    add(
        "--send-timeout",
        type=number,
        default=0,
        metavar="S",
        help="maximum time to wait for a receipt, in seconds; 0: no limit (0)",
    )
    add(
        "--separator",
        default="-",
        metavar="TEXT",
        help="separator between the prefix and the number in topic names (-)",
    )
    add("--admin-url", "-au", metavar="URL", help="HTTP address of a broker (http://localhost:8080)")
    add("--partitions", "-np", type=positive, metavar="N", help="create missing topics with N partitions")
    add("--delay", "-d", type=number, default=0, metavar="S", help="delivery delay in seconds (0)")
    add(
        "--set-event-time",
        "-set",
        action="store_true",
        help="set the event time of each message to the current time",
    )
    add(
        "--exit-on-failure",
        "-ef",
        action=_Note,
        nargs=0,
        help="no effect: the command always stops at the first error",
    )
    add(
        "--message-key-generation-mode",
        "-mk",
        choices=("autoIncrement", "random"),
        help="set the key of each message to a sequence number or a random number (default: no keys)",
    )
    text = "no effect: sets the threads of the Java client; use --processes instead"
    add("--num-test-threads", "-threads", action=_Note, help=text)


def _transactions(made: argparse.ArgumentParser, messages: str) -> None:
    add = made.add_argument
    add("--txn-enable", "-txn", action="store_true", help="send or acknowledge in transactions")
    text = "with -txn: timeout of a transaction in seconds (10)"
    add("--txn-timeout", "-tto", type=positive, default=10, metavar="S", help=text)
    text = f"with -txn: {messages} (50)"
    add(
        "--numMessage-perTransaction",
        "-nmt",
        dest="txn_messages",
        type=positive,
        default=50,
        metavar="N",
        help=text,
    )
    text = "with -txn: abort transactions instead of committing them"
    add("-abort", dest="abort", action="store_true", help=text)


def _transaction(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    text = "topic to receive from; repeatable (test-consume)"
    add("--topics-c", action="append", default=None, metavar="TOPIC", help=text)
    text = "topic to publish to; repeatable (test-produce)"
    add("--topics-p", action="append", default=None, metavar="TOPIC", help=text)
    text = "number of messages that a transaction acknowledges on each subscription (1)"
    add(
        "--numMessage-perTransaction-consume",
        "-nmc",
        dest="messages_consumed",
        type=count,
        default=1,
        metavar="N",
        help=text,
    )
    text = "number of messages that a transaction publishes to each topic (1)"
    add(
        "--numMessage-perTransaction-produce",
        "-nmp",
        dest="messages_produced",
        type=count,
        default=1,
        metavar="N",
        help=text,
    )
    text = "stop after N transactions; 0: no limit (0)"
    add("--number-txn", "-ntxn", type=count, default=0, metavar="N", help=text)
    text = "timeout of a transaction in seconds (5)"
    add("--txn-timeout", "-tto", type=positive, default=5, metavar="S", help=text)
    text = "maximum number of transactions to begin per second; 0: no limit (0)"
    add("-txnRate", dest="txn_rate", type=number, default=0, metavar="R", help=text)
    add("--txn-disable", action="store_true", help="receive, acknowledge and publish without transactions")
    text = "abort transactions instead of committing them"
    add("-abort", dest="abort", action="store_true", help=text)
    text = "number of concurrent transactions (1)"
    add("--num-test-threads", "-threads", type=positive, default=1, metavar="N", help=text)
    text = "type of the subscriptions (Shared)"
    add("--subscription-type", "-st", choices=_TYPES, default="Shared", help=text)
    text = "start position of a new subscription (Earliest)"
    choices = ("Latest", "Earliest")
    add("--subscription-position", "-sp", choices=choices, default="Earliest", help=text)
    text = "names of the subscriptions, separated by commas (sub)"
    add("--subscriptions", "-ss", type=_names, default=["sub"], metavar="NAMES", help=text)
    text = "subscriptions per topic (1)"
    add("--num-subscriptions", "-ns", type=positive, default=1, metavar="N", help=text)
    text = "size of the receiver queue in messages (1000)"
    add("--receiver-queue-size", "-q", type=positive, default=1000, metavar="N", help=text)
    add("--replicated", "-rs", action="store_true", help="replicate the subscriptions' state")
    add("--admin-url", "-au", metavar="URL", help="HTTP address of a broker (http://localhost:8080)")
    add("--partitions", "-np", type=positive, metavar="N", help="create topics with N partitions")
    own = made.add_argument_group("Magnetar's own").add_argument
    own("--json", metavar="FILE", help="file for the results as JSON; -: standard output")
    own(
        "--server-pid",
        type=_pids,
        default=[],
        metavar="PID,...",
        help="ids of processes whose processor time and memory are also measured",
    )
    text = "duration of the warm-up before the measurement, in seconds (0)"
    own("--warmup-time", type=number, default=0.0, metavar="S", help=text)


def _receive(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add(
        "--subscription-type",
        "-st",
        choices=_TYPES,
        default="Exclusive",
        help="type of the subscriptions (Exclusive)",
    )
    add(
        "--receiver-queue-size",
        "-q",
        type=positive,
        default=1000,
        metavar="N",
        help="size of the receiver queue in messages (1000)",
    )
    text = "time in ms for which acknowledgements are grouped (100); 0: not grouped"
    add("--acks-delay-millis", type=number, default=100, metavar="MS", help=text)
    add(
        "--num-subscriptions",
        "-ns",
        type=positive,
        default=1,
        metavar="N",
        help="number of subscriptions per topic (1)",
    )


def _consume(made: argparse.ArgumentParser) -> None:
    _receive(made)
    add = made.add_argument
    add(
        "--num-consumers",
        "-n",
        type=positive,
        default=1,
        metavar="N",
        help="number of consumers per subscription (1)",
    )
    add(
        "--subscriptions",
        "-ss",
        type=_names,
        default=[],
        metavar="NAMES",
        help="names of the subscriptions, separated by commas (sub)",
    )
    add("--subscriber-name", "-s", metavar="NAME", help=argparse.SUPPRESS)
    add(
        "--subscription-position",
        "-sp",
        choices=("Latest", "Earliest"),
        default="Latest",
        help="start position of a new subscription (Latest)",
    )
    add(
        "--rate",
        "-r",
        type=number,
        default=0,
        metavar="R",
        help="maximum number of messages per second; 0: no limit (0)",
    )
    text = "total size of the receiver queues of all partitions, in messages (50000)"
    add("--receiver-queue-size-across-partitions", "-p", type=positive, default=50000, help=text)
    add("--replicated", "-rs", action="store_true", help="replicate the subscription's state")
    add(
        "--num-messages",
        "-m",
        type=count,
        default=0,
        metavar="N",
        help="stop after N messages; 0: no limit (0)",
    )
    add("--batch-index-ack", action="store_true", help="acknowledge the messages of a batch individually")
    add("--pool-messages", "-pm", action=_Note, help=argparse.SUPPRESS)
    _chunks(add)


def _chunks(add: Callable[..., object]) -> None:
    text = "maximum number of incomplete chunked messages to keep; 0, the default, means 10"
    add("--max_chunked_msg", "-mc", type=count, default=0, metavar="N", help=text)
    text = "acknowledge the oldest incomplete chunked message when --max_chunked_msg is exceeded"
    add("--auto_ack_chunk_q_full", "-ac", action="store_true", help=text)
    text = "maximum time in ms to wait for all chunks of a message; 0, the default, means 60000"
    add("--expire_time_incomplete_chunked_messages", "-e", type=count, default=0, metavar="MS", help=text)


def _read(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add(
        "--rate",
        "-r",
        type=number,
        default=0,
        metavar="R",
        help="maximum number of messages per second; 0: no limit (0)",
    )
    add(
        "--start-message-id",
        "-m",
        default="earliest",
        metavar="ID",
        help="start position: earliest, latest or LEDGER:ENTRY (earliest)",
    )
    add(
        "--receiver-queue-size",
        "-q",
        type=positive,
        default=1000,
        metavar="N",
        help="size of the receiver queue in messages (1000)",
    )
    add(
        "--num-messages",
        "-n",
        type=count,
        default=0,
        metavar="N",
        help="stop after N messages; 0: no limit (0)",
    )
    add("--use-tls", action=_Refuse, nargs=0, help=argparse.SUPPRESS)


def _run(made: argparse.ArgumentParser) -> None:
    _receive(made)
    made.add_argument(
        "--num-consumers",
        type=positive,
        default=1,
        metavar="N",
        help="number of consumers per subscription (1)",
    )
    text = "with --rate 0: maximum number of messages sent but not yet received (100000); 0: no limit"
    made.add_argument("--max-behind", type=count, default=100_000, metavar="N", help=text)
    made.add_argument(
        "--keep", action="store_true", help="do not delete the topics and subscriptions at the end"
    )
    made.add_argument(
        "--batch-index-ack", action="store_true", help="acknowledge the messages of a batch individually"
    )


def _own(made: argparse.ArgumentParser) -> None:
    own = made.add_argument_group("Magnetar's own")
    add = own.add_argument
    add(
        "--raw",
        action="store_true",
        help="build frames from templates, without an object per message: the fastest mode",
    )
    add("--json", metavar="FILE", help="file for the results as JSON; -: standard output")
    add(
        "--server-pid",
        type=_pids,
        default=[],
        metavar="PID,...",
        help="ids of processes whose processor time and memory are also measured",
    )
    add("--processes", type=positive, default=1, metavar="N", help="divide the work among N processes (1)")
    add("--share", help=argparse.SUPPRESS)
    if not any("--warmup-time" in action.option_strings for action in made._actions):
        text = "duration of the warm-up before the measurement, in seconds (0)"
        add("--warmup-time", type=number, default=0.0, metavar="S", help=text)


def _own_acks(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add(
        "--ack",
        choices=("individual", "cumulative"),
        default="individual",
        help="type of acknowledgement (individual)",
    )
    add(
        "--ack-group",
        type=positive,
        default=1000,
        metavar="N",
        help="maximum number of message ids in one ACK (1000)",
    )


def _names(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _pids(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]
