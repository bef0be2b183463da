"""The flags of ``pulsar-perf``: Pulsar's, and a few of our own. Imports nothing but the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from magnetar.cli.numbers import count, number, positive

_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
_CODECS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
_MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
DEFAULT_OUTSTANDING = 1000

# (names, takes a value): Pulsar's flags for things that this client does not do.
_REFUSED_BY_ALL = (
    (("--ssl-factory-plugin",), True),
    (("--ssl-factory-plugin-params",), True),
    (("--proxy-url",), True),
    (("--proxy-protocol",), True),
)
_REFUSED_BY_PRODUCE = (
    (("--encryption-key-name", "-k"), True),
    (("--encryption-key-value-file", "-v"), True),
    (("--format-payload", "-fp"), False),
    (("--format-class", "-fc"), True),
    (("--txn-enable", "-txn"), False),
    (("--txn-timeout", "-tto"), True),
    (("--numMessage-perTransaction", "-nmt"), True),
    (("-abort",), False),
    (("--delay-range", "-dr"), True),
)
_REFUSED_BY_CONSUME = (
    (("--auto-scaled-receiver-queue-size", "-aq"), False),
    (("--encryption-key-value-file", "-v"), True),
    (("--txn-enable", "-txn"), False),
    (("--txn-timeout", "-tto"), True),
    (("--numMessage-perTransaction", "-nmt"), True),
    (("-ntxn",), True),
    (("-abort",), False),
)
# Flags that steer threads and buffers of the Java client; they change nothing here, and that is said.
_WITHOUT_EFFECT = (
    (("--num-io-threads", "-ioThreads"), True),
    (("--num-listener-threads", "-lt"), True),
    (("--busy-wait", "-bw"), False),
    (("--max-lookup-request", "-mlr"), True),
    (("--memory-limit", "-ml"), True),
)
COMMANDS_OF_LATER = ("transaction", "managed-ledger", "websocket-producer", "monitor-brokers", "gen-doc")


class _Refuse(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None
    ) -> NoReturn:
        parser.error(f"{option} is not supported by this pulsar-perf")


class _Note(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None
    ) -> None:
        namespace.notes = [*(getattr(namespace, "notes", None) or []), f"{option} changes nothing here"]


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="pulsar-perf", description="Puts load on a broker and measures it.", allow_abbrev=False
    )
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    produce = _command(commands, "produce", "send messages", _REFUSED_BY_PRODUCE)
    _produce(produce, rate=100.0)
    text = "send what is larger than an entry in several, and no batches"
    produce.add_argument("--chunking", "-ch", action="store_true", help=text)
    _own(produce)
    consume = _command(commands, "consume", "receive messages", _REFUSED_BY_CONSUME)
    _consume(consume)
    _own(consume)
    _own_acks(consume)
    read = _command(commands, "read", "read messages", ())
    _read(read)
    _own(read)
    run = _command(commands, "run", "publish, deliver and acknowledge at once, and check every message", ())
    _produce(run, rate=0.0)
    _run(run)
    _own(run)
    _own_acks(run)
    for name in COMMANDS_OF_LATER:
        commands.add_parser(name, help="not supported yet", add_help=False)
    return root


def _command(
    commands: Any, name: str, text: str, refused: Sequence[tuple[tuple[str, ...], bool]]
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    made.add_argument("topics", nargs="+", metavar="TOPIC", help="with -t above 1 one name is a prefix")
    add = made.add_argument
    add("--service-url", "-u", metavar="URL", help="(pulsar://localhost:6650)")
    add("--auth-plugin", "--auth_plugin", metavar="CLASS", help="how to prove who asks; or token, basic, tls")
    add("--auth-params", metavar="TEXT", help="what proves it")
    add("--trust-cert-file", metavar="FILE", help="who may have issued brokers' certificates")
    add("--tls-allow-insecure", action="store_true", help="take any certificate")
    add("--tls-enable-hostname-verification", action="store_true", help="on unless client.conf says no")
    add("--max-connections", "-c", type=positive, default=1, metavar="N", help="connections to a broker (1)")
    add("--stats-interval-seconds", "-i", type=number, default=0, metavar="S", help="print rates every S s")
    add("--listener-name", metavar="NAME", help="which of the advertised listeners to use")
    add("--num-topic", "--num-topics", "-t", type=positive, default=1, metavar="N", help="topics (1)")
    add("--test-duration", "-time", type=number, default=0, metavar="S", help="seconds; 0: no end (0)")
    add("--histogram-file", metavar="FILE", help="write an HdrHistogram log")
    for names, value in (*_REFUSED_BY_ALL, *refused):
        add(*names, action=_Refuse, nargs=None if value else 0, help=argparse.SUPPRESS)
    for names, value in _WITHOUT_EFFECT:
        add(*names, action=_Note, nargs=None if value else 0, help=argparse.SUPPRESS)
    return made


def _produce(made: argparse.ArgumentParser, rate: float) -> None:
    add = made.add_argument
    text = "messages a second over all topics; 0: as many as receipts allow (%(default)s)"
    add("--rate", "-r", type=number, default=rate, metavar="R", help=text)
    add("--size", "-s", type=count, default=1024, metavar="BYTES", help="of a content (1024)")
    add("--num-producers", "-n", type=positive, default=1, metavar="N", help="for each topic (1)")
    add("--num-messages", "-m", type=count, default=0, metavar="N", help="then it ends; 0: no end (0)")
    add("--max-outstanding", "-o", type=count, default=0, metavar="N", help="without a receipt (0: 1000)")
    add("--max-outstanding-across-partitions", "-p", type=count, default=0, metavar="N", help="(0: no bound)")
    add("--compression", "-z", choices=_CODECS, default="NONE", type=str.upper, help="(NONE)")
    add("--payload-file", "-f", metavar="FILE", help="contents, separated by -e")
    add("--payload-delimiter", "-e", default="\\n", metavar="TEXT", help="(\\n)")
    add("--batch-time-window", "-b", type=number, default=1.0, metavar="MS", help="(1)")
    add("--disable-batching", "-db", action="store_true", help="each message is an entry")
    add("--batch-max-messages", "-bm", type=positive, default=1000, metavar="N", help="(1000)")
    add("--batch-max-bytes", "-bb", type=positive, default=4 * 1024 * 1024, metavar="BYTES", help="(4 MiB)")
    add("--warmup-time", type=number, default=1.0, metavar="S", help="seconds that are not measured (1)")
    add("--access-mode", "-am", choices=_MODES, default="Shared", help="(Shared)")
    add("--producer-name", "-pn", metavar="NAME", help="prefix of the producers' names")
    add("--send-timeout", type=number, default=0, metavar="S", help="0: none (0)")
    add("--separator", default="-", metavar="TEXT", help="between a topic's name and its number (-)")
    add("--admin-url", "-au", metavar="URL", help="(http://localhost:8080)")
    add("--partitions", "-np", type=positive, metavar="N", help="create topics with so many partitions")
    add("--delay", "-d", type=number, default=0, metavar="S", help="deliver so much later (0)")
    add("--set-event-time", "-set", action="store_true", help="stamp each message with an event time")
    add("--exit-on-failure", "-ef", action=_Note, nargs=0, help="it always stops at the first error")
    add("--message-key-generation-mode", "-mk", choices=("autoIncrement", "random"), help="give keys")
    text = "threads of the Java client; here take --processes"
    add("--num-test-threads", "-threads", action=_Note, help=text)


def _receive(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--subscription-type", "-st", choices=_TYPES, default="Exclusive", help="(Exclusive)")
    add("--receiver-queue-size", "-q", type=positive, default=1000, metavar="N", help="messages (1000)")
    text = "ms that acknowledgements gather; 0: none (100)"
    add("--acks-delay-millis", type=number, default=100, metavar="MS", help=text)
    add("--num-subscriptions", "-ns", type=positive, default=1, metavar="N", help="for each topic (1)")


def _consume(made: argparse.ArgumentParser) -> None:
    _receive(made)
    add = made.add_argument
    add("--num-consumers", "-n", type=positive, default=1, metavar="N", help="for each subscription (1)")
    add("--subscriptions", "-ss", type=_names, default=[], metavar="NAMES", help="(sub)")
    add("--subscriber-name", "-s", metavar="NAME", help=argparse.SUPPRESS)
    add("--subscription-position", "-sp", choices=("Latest", "Earliest"), default="Latest", help="(Latest)")
    add(
        "--rate", "-r", type=number, default=0, metavar="R", help="messages a second at most; 0: no bound (0)"
    )
    text = "over all partitions (50000)"
    add("--receiver-queue-size-across-partitions", "-p", type=positive, default=50000, help=text)
    add("--replicated", "-rs", action="store_true", help="replicate the subscription's state")
    add("--num-messages", "-m", type=count, default=0, metavar="N", help="then it ends; 0: no end (0)")
    add("--batch-index-ack", action="store_true", help="acknowledge single messages of a batch")
    add("--pool-messages", "-pm", action=_Note, help=argparse.SUPPRESS)
    _chunks(add)


def _chunks(add: Callable[..., Any]) -> None:
    text = "messages of which some chunks are waited for; 0: 10 (0)"
    add("--max_chunked_msg", "-mc", type=count, default=0, metavar="N", help=text)
    text = "acknowledge the oldest when there are more"
    add("--auto_ack_chunk_q_full", "-ac", action="store_true", help=text)
    text = "ms that a message's chunks may take to come; 0: 60000 (0)"
    add("--expire_time_incomplete_chunked_messages", "-e", type=count, default=0, metavar="MS", help=text)


def _read(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add(
        "--rate", "-r", type=number, default=0, metavar="R", help="messages a second at most; 0: no bound (0)"
    )
    add("--start-message-id", "-m", default="earliest", metavar="ID", help="earliest, latest or LEDGER:ENTRY")
    add("--receiver-queue-size", "-q", type=positive, default=1000, metavar="N", help="messages (1000)")
    add("--num-messages", "-n", type=count, default=0, metavar="N", help="then it ends; 0: no end (0)")
    add("--use-tls", action=_Refuse, nargs=0, help=argparse.SUPPRESS)


def _run(made: argparse.ArgumentParser) -> None:
    _receive(made)
    made.add_argument(
        "--num-consumers", type=positive, default=1, metavar="N", help="for each subscription (1)"
    )
    text = "in a closed loop: messages sent and not yet received, over all topics; 0: no bound (100000)"
    made.add_argument("--max-behind", type=count, default=100_000, metavar="N", help=text)
    made.add_argument("--keep", action="store_true", help="leave topics and subscriptions when it is over")
    made.add_argument("--batch-index-ack", action="store_true", help="acknowledge single messages of a batch")


def _own(made: argparse.ArgumentParser) -> None:
    own = made.add_argument_group("Magnetar's own")
    add = own.add_argument
    add("--raw", action="store_true", help="frames from templates, no object for each message: the fastest")
    add("--json", metavar="FILE", help="write the figures there; - is standard output")
    add("--server-pid", type=_pids, default=[], metavar="PID,...", help="measure these processes, too")
    add("--processes", type=positive, default=1, metavar="N", help="share the work among N processes (1)")
    add("--share", help=argparse.SUPPRESS)
    if not any("--warmup-time" in action.option_strings for action in made._actions):
        text = "seconds that are not measured (0)"
        add("--warmup-time", type=number, default=0.0, metavar="S", help=text)


def _own_acks(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--ack", choices=("individual", "cumulative"), default="individual", help="(individual)")
    add("--ack-group", type=positive, default=1000, metavar="N", help="ids in one ACK, at most (1000)")


def _names(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _pids(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]
