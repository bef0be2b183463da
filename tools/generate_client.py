"""Writes the methods of the client's two interfaces that take options, each option as a keyword argument.

    python tools/generate_client.py [--check]

The options are declared once: by the classes of ``client/options.py`` and by the constructors that take
further ones. This command writes ``client/opening.py`` (asyncio) and ``client/blocking_opening.py``, so that
editors and ``help()`` show names, types, defaults and meanings. With ``--check`` it writes nothing, and fails
if a file differs.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "magnetar" / "client"
FILES = ("opening.py", "blocking_opening.py")
_WIDTH = 110
_CONSTANT = re.compile(r"^[A-Z_]+(\s|$)")
_INSTEAD: Mapping[str, tuple[str, str]] = {
    "field(default_factory=dict)": ("None", "{{}} if {name} is None else {name}"),
    "()": ("()", "{name}"),
}
"""What a signature has instead of a default, and what is passed on instead of the argument."""


class Option(NamedTuple):
    """One keyword argument."""

    name: str
    kind: str
    default: str
    meaning: str

    def parameter(self) -> str:
        """Returns the argument as a signature has it."""
        default, _ = _INSTEAD.get(self.default, (self.default, ""))
        optional = " | None" if default == "None" and "None" not in self.kind else ""
        return f"{self.name}: {self.kind}{optional} = {default}"

    def passed(self) -> str:
        """Returns the argument as it is passed on."""
        _, value = _INSTEAD.get(self.default, ("", "{name}"))
        return f"{self.name}={value.format(name=self.name)}"


class Method(NamedTuple):
    """One method of both interfaces."""

    name: str
    first: Sequence[tuple[str, str, str]]
    """Positional arguments: name, type, meaning."""
    summary: str
    returns: str
    """What the asyncio interface returns."""
    blocking: str
    """What the blocking interface returns."""
    sources: Sequence[tuple[str, str]]
    """The classes that declare its options: module and name."""
    dictionary: str = ""
    """The name of the type of its options together; empty: none."""
    more: str = ""
    """Further lines for ``:raises``."""


_TOPIC = ("topic", "str", "the name of a topic; a short name is in the namespace ``public/default``")
_SUBSCRIPTION = ("subscription_name", "str", "the name of the subscription")
_START = (
    "start_message_id",
    "MessageId | timedelta",
    "the start position: ``MessageId.earliest`` or ``MessageId.latest``; or the id of a message, after which "
    "reading starts (with ``start_message_id_inclusive``, this message is also read); or the maximum age of "
    "the first message, a timedelta in whole seconds",
)
_TOPICS = ("topics", "Sequence[str]", "the names of the topics")
_CONSUMER = ("options", "ConsumerOptions")
METHODS = (
    Method(
        "create_producer",
        (_TOPIC,),
        "Creates a producer.",
        "Producer | PartitionedProducer",
        "Producer",
        (("options", "ProducerOptions"), ("partitioned", "PartitionedProducer")),
        "ProducerArguments",
    ),
    Method(
        "subscribe",
        (_TOPIC, _SUBSCRIPTION),
        "Creates a consumer of a topic.",
        "Consumer | PartitionedConsumer | TopicsConsumer",
        "Consumer",
        (_CONSUMER, ("partitioned", "PartitionedConsumer")),
        "ConsumerArguments",
    ),
    Method(
        "subscribe_to_topics",
        (_TOPICS, _SUBSCRIPTION),
        "Creates a consumer of several topics.",
        "TopicsConsumer",
        "Consumer",
        (_CONSUMER,),
        "TopicsArguments",
    ),
    Method(
        "subscribe_to_pattern",
        (
            (
                "pattern",
                "str",
                "``[persistent://]tenant/namespace/expression``, a regular expression (RE2 syntax) for whole "
                "topic names",
            ),
            _SUBSCRIPTION,
        ),
        "Creates a consumer of all matching topics of a namespace, including topics that are created later.",
        "TopicsConsumer",
        "Consumer",
        (("options", "PatternOptions"), _CONSUMER),
        "PatternArguments",
        ":raises InvalidConfiguration: the expression is not supported",
    ),
    Method(
        "create_reader",
        (_TOPIC, _START),
        "Creates a reader on a topic, on all its partitions, or on one partition.",
        "Reader",
        "Reader",
        (("reader", "Reader"),),
        "ReaderArguments",
    ),
    Method(
        "create_reader_of_topics",
        (_TOPICS, _START),
        "Creates a reader of several topics.",
        "Reader",
        "Reader",
        (("reader", "Reader"),),
        "TopicsReaderArguments",
    ),
    Method(
        "create_table_view",
        (_TOPIC,),
        "Creates a table view: maps each key to its newest payload or value. Reads all present messages.",
        "TableView",
        "TableView",
        (("reader", "Reader"),),
        "TableViewArguments",
    ),
)
_CLIENT = Method(
    "start",
    (
        (
            "service_url",
            "str | ClusterFailover | ControlledClusterFailover",
            "``pulsar://host[:port][,host[:port]...]``, or ``pulsar+ssl://`` for TLS, with hosts that are "
            "used in turn; or ``http://`` or ``https://`` URLs of brokers' web services, which look up "
            "brokers; or several clusters, one of which is used at a time",
        ),
    ),
    "",
    "None",
    "None",
    (("client", "Client"),),
    "ClientArguments",
)
_LEFT_OUT = {
    "create_table_view": {
        "interceptors",
        "is_read_compacted",
        "key_hash_ranges",
        "message_listener",
        "start_message_id_inclusive",
    }
}
"""Options of a source that a method does not take."""
_NOT_OPTIONS = {"io", "partitions", "find"}


def options_of(module: str, name: str) -> list[Option]:
    """Returns the options that a class declares: its fields, or the keyword arguments of its constructor."""
    tree = ast.parse((SOURCE / f"{module}.py").read_text())
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    made = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    if not made:
        return list(_fields(found))
    values = inspect.signature(getattr(import_module(f"magnetar.client.{module}"), name)).parameters
    # A constant stands for a number, which a reader of the signature wants to see.
    return [
        each._replace(default=repr(values[each.name].default)) if _CONSTANT.search(each.default) else each
        for each in _arguments(made[0])
    ]


def _fields(found: ast.ClassDef) -> Iterator[Option]:
    for node, after in zip(found.body, found.body[1:], strict=False):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            continue
        meaning = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meaning = str(after.value.value)
        yield Option(
            node.target.id, ast.unparse(node.annotation), ast.unparse(node.value), _one_line(meaning)
        )


def _arguments(made: ast.FunctionDef) -> Iterator[Option]:
    meanings = dict(
        re.findall(r":param (\w+): (.*?)(?=\n\s*\n|\n\s*:|\Z)", ast.get_docstring(made) or "", re.S)
    )
    for argument, default in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True):
        if argument.arg not in _NOT_OPTIONS and argument.annotation is not None and default is not None:
            kind = ast.unparse(argument.annotation)
            yield Option(argument.arg, kind, ast.unparse(default), _one_line(meanings.get(argument.arg, "")))


def _one_line(text: str) -> str:
    line = " ".join(text.split()).removesuffix(".")
    # A name or an acronym at the beginning keeps its capitals.
    return (
        line if line[1:2].isupper() or line.startswith(("`", ":", "None:")) else line[:1].lower() + line[1:]
    )


def options_for(method: Method) -> list[Option]:
    """Returns the options of a method in the order of its signature.

    :raises SystemExit: an option has no description
    """
    known = {each.name: each for each in options_of(*_CONSUMER)}
    found: dict[str, Option] = {}
    for source in method.sources:
        for each in options_of(*source):
            if each.name not in _LEFT_OUT.get(method.name, ()):
                described = (
                    each if each.meaning else each._replace(meaning=known.get(each.name, each).meaning)
                )
                found.setdefault(each.name, described)
    missing = [each.name for each in found.values() if not each.meaning]
    if missing:
        raise SystemExit(f"{method.name}: these options have no description: {', '.join(missing)}")
    return list(found.values())


def _docstring(summary: str, rows: Sequence[tuple[str, str]], raises: str) -> list[str]:
    lines = [f'"""{summary}', ""]
    for name, meaning in rows:
        lines += textwrap.wrap(
            f":param {name}: {meaning}", _WIDTH - 8, subsequent_indent="    ", break_on_hyphens=False
        )
    return [*lines, *raises.splitlines(), '"""']


def _method(method: Method, *, blocking: bool) -> str:
    options = options_for(method)
    if blocking and method.name == "create_producer":
        options = [
            each._replace(default="False") if each.name == "batching_enabled" else each for each in options
        ]
    elif method.name == "create_producer":
        # A coroutine that waits holds up nothing else.
        options = [
            each._replace(default="True") if each.name == "block_if_queue_full" else each for each in options
        ]
    begin, wait = ("def", "") if blocking else ("async def", "await ")
    returns = method.blocking if blocking else method.returns
    first = [f"{name}: {kind}" for name, kind, _ in method.first]
    summary = method.summary
    if method.name == "create_producer":
        summary += (
            " Batching is off by default, as in the official client."
            if blocking
            else " Batching is on by default, as in the official client's asyncio interface."
        )
    raises = ":raises PulsarException: the broker refused, or did not answer within the operation time-out"
    raises += f"\n{method.more}"
    rows = [(name, meaning) for name, _, meaning in method.first]
    text = _docstring(summary, rows + [(each.name, each.meaning) for each in options], raises)
    signature = ", ".join(["self", *first, "*", *(each.parameter() for each in options)])
    passed = ", ".join([*(name for name, _, _ in method.first), *(each.passed() for each in options)])
    hook = ", ".join(["self", *first, f"**options: Unpack[{method.dictionary}]"])
    return "\n".join(
        [
            f"    {begin} {method.name}({signature},) -> {returns}:",
            *(f"        {line}" if line else "" for line in text),
            f"        return {wait}self._{method.name}({passed},)",
            "",
            "    @abstractmethod",
            f"    {begin} _{method.name}({hook}) -> {returns}: ...",
            "",
        ]
    )


def _dictionary(method: Method) -> str:
    if not method.dictionary:
        return ""
    lines = [f"    {each.name}: {each.kind}" for each in options_for(method)]
    what = f":meth:`Opening.{method.name}`" if method is not _CLIENT else "a client"
    text = f'    """The options of {what}."""'
    return "\n".join(["", f"class {method.dictionary}(TypedDict, total=False):", text, "", *lines])


def _constructor() -> str:
    options = options_for(_CLIENT)
    rows = [(name, meaning) for name, _, meaning in _CLIENT.first]
    raises = ":raises InvalidUrl: the service URL is malformed\n"
    raises += ":raises InvalidConfiguration: an option is out of range, or contradicts others"
    text = _docstring(
        "Starts the client's loop.", rows + [(each.name, each.meaning) for each in options], raises
    )
    signature = ", ".join(
        [
            "self",
            "service_url: str | ClusterFailover | ControlledClusterFailover",
            "*",
            *(each.parameter() for each in options),
        ]
    )
    passed = ", ".join(["service_url", *(each.passed() for each in options)])
    return "\n".join(
        [
            f"    def __init__({signature},) -> None:",
            *(f"        {line}" if line else "" for line in text),
            f"        self._start({passed},)",
            "",
            "    @abstractmethod",
            "    def _start(",
            "        self,",
            "        service_url: str | ClusterFailover | ControlledClusterFailover,",
            "        **options: Unpack[ClientArguments],",
            "    ) -> None: ...",
            "",
            "",
        ]
    )


def _text(*, blocking: bool) -> str:
    kind, other = ("blocking", "blocking") if blocking else ("asyncio", "asyncio")
    name = "BlockingOpening" if blocking else "Opening"
    types = (
        "from magnetar.client.blocking import Consumer, Producer, Reader, TableView\n"
        if blocking
        else "from magnetar.client.consumer import Consumer\n"
        "    from magnetar.client.gathered import TopicsConsumer\n"
        "    from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer\n"
        "    from magnetar.client.producer import Producer\n"
        "    from magnetar.client.reader import Reader\n"
        "    from magnetar.client.table_view import TableView\n"
    )
    head = f'''"""Opening producers, consumers and readers: the {kind} interface, with all options.

``python tools/generate_client.py`` writes this module from the declarations of the options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

from magnetar.client.enums import (
    BatchingType, CompressionType, ConsumerType, CryptoFailureAction, HashingScheme, InitialPosition,
    PartitionsRoutingMode, ProducerAccessMode, ProxyProtocol, RegexSubscriptionMode,
)

if TYPE_CHECKING:
    {types}
    from magnetar.client.controlled_failover import ControlledClusterFailover
    from magnetar.client.dead_letters import DeadLetterPolicy
    from magnetar.client.encryption.key_readers import KeyReader
    from magnetar.client.failover import ClusterFailover
    from magnetar.client.interceptors import (
        ConsumerEventListener, ConsumerInterceptor, ProducerInterceptor, ReaderInterceptor,
    )
    from magnetar.client.listening import MessageListener
    from magnetar.client.message_id import MessageId
    from magnetar.client.open_telemetry import OpenTelemetry
    from magnetar.client.partitioned import Router
    from magnetar.client.schema import ProducerSchema, ValueSchema
    from magnetar.client.timing import RedeliveryBackoff
    from magnetar.client.unpacking import Unpacking
    from magnetar.io.tls import TlsFiles
    from magnetar.security.client_authentication.authentication import Authentication

    from magnetar.client.opening import (
        ClientArguments, ConsumerArguments, PatternArguments,
        ProducerArguments, ReaderArguments, TableViewArguments, TopicsArguments, TopicsReaderArguments,
    )

'''
    made = f'''

class {name}(ABC):
    """The methods of the {other} client that take options."""

'''
    dictionaries = "" if blocking else "\n\n".join(map(_dictionary, (*METHODS, _CLIENT)))
    if not blocking:
        head = head.rpartition("    from magnetar.client.opening")[0]
    made += _constructor() if blocking else ""
    return head + dictionaries + made + "\n".join(_method(each, blocking=blocking) for each in METHODS)


def texts() -> dict[str, str]:
    """Returns the text of each file."""
    return {name: _formatted(_text(blocking=name == FILES[1])) for name in FILES}


def _formatted(text: str) -> str:
    for command in (["format", "-"], ["check", "--fix", "--quiet", "--exit-zero", "-"], ["format", "-"]):
        tool = [
            sys.executable,
            "-m",
            "ruff",
            command[0],
            "--stdin-filename",
            str(SOURCE / FILES[0]),
            *command[1:],
        ]
        text = subprocess.run(tool, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    """Returns 0 if the files were written, or are as they should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    check = parser.parse_args().check
    different = [
        name
        for name, text in texts().items()
        if not (SOURCE / name).exists() or (SOURCE / name).read_text() != text
    ]
    if check:
        for name in different:
            sys.stderr.write(f"{SOURCE / name} differs; run python tools/generate_client.py\n")
        return 1 if different else 0
    for name, text in texts().items():
        (SOURCE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
