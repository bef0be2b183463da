#!/usr/bin/env python3
"""Writes the reference of the client library from its signatures and docstrings.

    python tools/client_reference.py [--check]

``docs/client/reference.md`` has the blocking interface and what both interfaces share,
``docs/client/reference-asyncio.md`` the asyncio interface. With ``--check`` it writes nothing, and fails if a
page differs.
"""

from __future__ import annotations

import argparse
import ast
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from magnetar import client
from magnetar.client import aio, blocking, exceptions, schemas
from magnetar.client.consumer import Consumer as AsyncConsumer
from magnetar.client.encryption.key_readers import KeyReader
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.outgoing_message import MessageOptions
from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer
from magnetar.client.producer import Producer as AsyncProducer
from magnetar.client.schema import TopicSchema
from magnetar.client.table_view import TableView as AsyncTableView
from magnetar.io.tls import TlsFiles

PAGES = Path(__file__).resolve().parents[1] / "docs" / "client"
_WIDTH = 130
_SHORT = 4
"""A signature with more parameters than this is shown with a table of them."""
_ROLE = re.compile(r":(?:class|meth|attr|func|mod|exc):`~?(?:magnetar\.[\w.]*\.)?([^`]+)`")
_FIELD = re.compile(r"^:(param|raises|returns)( \S+)?: ?(.*?)(?=\n\s*\n|\n:|\Z)", re.MULTILINE | re.DOTALL)

INTERNAL: Mapping[type, frozenset[str]] = {
    AsyncProducer: frozenset(
        {
            *(
                "check_open",
                "closed_by_broker",
                "cluster_changed",
                "connection_lost",
                "forked",
                "migrated",
                "open",
            ),
            *("enqueue", "enqueue_or_wait", "enqueue_prepared", "message_options", "receipts"),
            *("send_batches", "send_content", "send_failed"),
        }
    ),
    AsyncConsumer: frozenset(
        {
            *(
                "check_open",
                "closed_by_broker",
                "cluster_changed",
                "connection_lost",
                "forked",
                "migrated",
                "open",
            ),
            *("active_changed", "end_of_topic", "has_receipts", "message", "messages", "on_arrival"),
            *("acknowledge_all", "acknowledge_soon", "end_listening", "listening", "seek_to_last"),
            *("take_back", "take_entry", "take_run", "widen_queue"),
        }
    ),
    aio.Client: frozenset({"partitions"}),
    aio.Reader: frozenset({"consumer", "open", "widen_queue"}),
    AsyncTableView: frozenset({"open"}),
    blocking.Reader: frozenset({"widen_queue"}),
    client.Message: frozenset({"value"}),
    client.RawEntry: frozenset(
        {"entry", "is_delivered", "messages", "plain_message", "sealed", "whole", "with_entry"}
    ),
    client.MessageId: frozenset({"from_wire", "to_wire"}),
    client.ProducerSchema: frozenset({"fill"}),
    client.ValueSchema: frozenset({"fill"}),
    schemas.AvroSchema: frozenset({"add_options", "encode_dict", "fill", "value_of"}),
    schemas.JsonSchema: frozenset({"add_options", "fill", "value_of"}),
    schemas.KeyValueSchema: frozenset({"add_options", "fill", "value_of"}),
    schemas.PrimitiveSchema: frozenset({"add_options", "fill", "value_of"}),
    schemas.ProtobufNativeSchema: frozenset({"add_options", "fill", "value_of"}),
    client.BatchReceivePolicy: frozenset({"check", "is_enough"}),
    client.DeadLetterPolicy: frozenset({"check"}),
    client.RedeliveryBackoff: frozenset({"check", "seconds"}),
    client.ClusterFailover: frozenset({"check"}),
    MessageOptions: frozenset(
        {"dispatch_key", "fill", "fill_keys", "fill_transaction", "must_be_alone", "single"}
    ),
    client.Transaction: frozenset({"begun"}),
    aio.Transaction: frozenset({"begun"}),
    client.TransactionId: frozenset({"count", "index"}),
    TlsFiles: frozenset({"paths", "showing"}),
    aio.ProducerOptions: frozenset({"check"}),
    aio.ConsumerOptions: frozenset({"check", "is_shared", "named", "with_queue"}),
}
"""Members that the parts of the client call themselves, and programs do not."""
MADE_BY_CLIENT = frozenset(
    {
        *(blocking.Producer, blocking.Consumer, blocking.Reader, blocking.TableView),
        *(AsyncProducer, AsyncConsumer, aio.Reader, AsyncTableView),
        *(client.Transaction, aio.Transaction, client.TransactionId),
        *(client.Message, client.RawEntry, TopicSchema, client.Authentication),
        *(client.ProducerInterceptor, client.ConsumerInterceptor, client.ReaderInterceptor),
        client.ConsumerEventListener,
    }
)
"""Programs do not call the constructors of these classes; interceptors are derived from theirs."""


class Section(NamedTuple):
    """A heading with the classes and functions below it."""

    title: str
    text: str
    members: Sequence[type | Callable[..., object]]


def enumerations() -> list[type]:
    found = [getattr(client, name) for name in sorted(client.__all__)]
    return [each for each in found if isinstance(each, enum.EnumMeta) and each is not exceptions.Result]


def errors() -> list[type]:
    return [getattr(exceptions, name) for name in exceptions.__all__ if name != "Result"]


BLOCKING = (
    Section(
        "Client and what it creates",
        "`from magnetar.client import ...`. All methods may be called from any thread.",
        (
            blocking.Client,
            blocking.Producer,
            blocking.Consumer,
            blocking.Reader,
            blocking.TableView,
            client.Transaction,
            client.TransactionId,
        ),
    ),
    Section(
        "Messages",
        "",
        (client.Message, MessageOptions, client.MessageId, client.RawEntry),
    ),
    Section(
        "Policies and addresses",
        "",
        (
            client.BatchReceivePolicy,
            client.DeadLetterPolicy,
            client.RedeliveryBackoff,
            client.ClusterAddress,
            client.ClusterFailover,
            client.ControlledClusterFailover,
        ),
    ),
    Section(
        "Interceptors",
        "The client calls interceptors, and listeners for the events of consumers, in its loop, which they "
        "must not block. An exception in one of them is logged and does not affect the message.",
        (
            client.ProducerInterceptor,
            client.ConsumerInterceptor,
            client.ConsumerEventListener,
            client.ReaderInterceptor,
            client.OutgoingMessage,
        ),
    ),
    Section(
        "Schemas",
        "",
        (client.ProducerSchema, client.key_value_schema, TopicSchema),
    ),
    Section(
        "Schemas with values",
        "`from magnetar.client.schemas import ...`, with `Record` and its fields ([schemas](schemas.md)).",
        (
            schemas.AvroSchema,
            schemas.JsonSchema,
            schemas.ProtobufNativeSchema,
            schemas.PrimitiveSchema,
            schemas.KeyValueSchema,
            schemas.KeyValue,
            schemas.ValueSchema,
        ),
    ),
    Section(
        "Security",
        "",
        (
            client.Authentication,
            client.AuthenticationToken,
            client.AuthenticationBasic,
            client.AuthenticationTLS,
            client.AuthenticationOauth2,
            TlsFiles,
            client.CryptoKeyReader,
            KeyReader,
        ),
    ),
)
ASYNCIO = (
    Section(
        "Client and what it creates",
        "`from magnetar.client.aio import ...`. All methods must be called in the client's loop.",
        (aio.Client, AsyncProducer, AsyncConsumer, aio.Reader, AsyncTableView, aio.Transaction),
    ),
    Section(
        "Options",
        "Keyword arguments of `create_producer` and `subscribe`, as the client keeps them.",
        (aio.ProducerOptions, aio.ConsumerOptions),
    ),
)
_ALIKE: Mapping[type, Sequence[type]] = {
    AsyncProducer: (PartitionedProducer,),
    AsyncConsumer: (PartitionedConsumer, TopicsConsumer),
}
"""Classes that are used like another one, and have the same public methods."""


class Described(NamedTuple):
    """A docstring in its parts."""

    text: str
    parameters: Mapping[str, str]
    returns: str
    raises: Sequence[tuple[str, str]]


def described(docstring: str) -> Described:
    """Splits a docstring into text, parameters, result and errors, in Markdown."""
    docstring = inspect.cleandoc(docstring)
    parameters: dict[str, str] = {}
    raises: list[tuple[str, str]] = []
    returns = ""
    for kind, name, meaning in _FIELD.findall(docstring):
        line = markdown(" ".join(meaning.split()))
        if kind == "param":
            parameters[name.strip()] = line
        elif kind == "raises":
            raises.append((name.strip(), line))
        else:
            returns = line
    text = markdown(_FIELD.sub("", docstring).strip())
    return Described(text if text != "None" else "", parameters, returns, raises)


def markdown(text: str) -> str:
    """Returns the text of a docstring as Markdown."""
    return re.sub(r"``([^`]+)``", r"`\1`", _ROLE.sub(r"`\1`", text))


def members_of(kind: type) -> Iterator[tuple[str, object]]:
    """Yields the public members of a class that programs use, in the order of the source."""
    seen: set[str] = set()
    left_out = INTERNAL.get(kind, frozenset())
    if issubclass(kind, client.Authentication) and kind is not client.Authentication:
        # Programs only construct credentials.
        return
    # The class itself comes first, then those that it is derived from.
    for each in kind.__mro__:
        if not each.__module__.startswith("magnetar."):
            continue
        for name, value in vars(each).items():
            if name.startswith("_") or name in seen or name in left_out:
                continue
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if inspect.isfunction(value) or isinstance(value, property):
                seen.add(name)
                yield name, value


def docstring_of(kind: type, name: str, value: object) -> str:
    """Returns the docstring of a member, or that of the method that it overrides."""
    for each in kind.__mro__:
        found = getattr(vars(each).get(name), "__doc__", None)
        if found:
            return str(found)
    return str(getattr(value, "__doc__", None) or "")


def parameters_of(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Returns the parameters of a function without ``self``."""
    return [each for each in inspect.signature(function).parameters.values() if each.name != "self"]


def shown_default(value: object) -> str:
    """Returns a default as programs write it."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return repr(value)


def _shown_type(annotation: object) -> str:
    return "" if annotation is inspect.Parameter.empty else str(annotation)


def _shown(parameter: inspect.Parameter) -> str:
    text = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(
        parameter.kind, ""
    ) + parameter.name
    if parameter.default is not parameter.empty:
        text += f"={shown_default(parameter.default)}"
    return text


def signature_of(name: str, function: Callable[..., object], *, returns: bool = True) -> str:
    """Returns a signature with names and defaults; of many parameters only those without a default."""
    parameters = parameters_of(function)
    shown: list[str] = []
    has_options = len(parameters) > _SHORT
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        if has_options and each.default is not each.empty:
            shown.append("...")
            break
        shown.append(_shown(each))
    result = inspect.signature(function).return_annotation
    arrow = "" if not returns or result in ("None", inspect.Signature.empty) else f" → {result}"
    begin = "await " if inspect.iscoroutinefunction(function) else ""
    return f"{begin}{name}({', '.join(shown)}){arrow}"


@cache
def meanings_of(kind: type) -> Mapping[str, str]:
    """Returns the texts behind the fields of a class, or behind the members of an enumeration."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    texts: dict[str, str] = {}
    for node, after in zip(found.body, found.body[1:], strict=False):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if (
            isinstance(target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            texts[target.id] = markdown(" ".join(str(after.value.value).split()))
    return texts


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return [
        *lines,
        *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows),
        "",
    ]


def _parameter_rows(parameters: Sequence[inspect.Parameter], known: Described) -> list[list[str]]:
    return [
        [
            f"`{each.name}`",
            f"`{_shown_type(each.annotation)}`",
            "" if each.default is each.empty else f"`{shown_default(each.default)}`",
            known.parameters.get(each.name, ""),
        ]
        for each in parameters
    ]


def _wrapped(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.strip():
            yield from textwrap.wrap(
                " ".join(paragraph.split()), _WIDTH, break_on_hyphens=False, break_long_words=False
            )
            yield ""


def _callable_lines(function: Callable[..., object], docstring: str) -> Iterator[str]:
    known = described(docstring)
    yield from _wrapped(known.text)
    if known.returns:
        yield from _wrapped(f"Returns {known.returns}.")
    parameters = parameters_of(function)
    if len(parameters) > _SHORT:
        yield from _table(("parameter", "type", "default", "meaning"), _parameter_rows(parameters, known))
    else:
        for name, meaning in known.parameters.items():
            yield from _item(f"`{name}`: {meaning}")
    for name, meaning in known.raises:
        yield from _item(f"raises `{name}`: {meaning}")
    if known.raises or (known.parameters and len(parameters) <= _SHORT):
        yield ""


def _item(text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        f"- {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )


def _class_lines(kind: type) -> Iterator[str]:
    yield f"### {kind.__name__}"
    yield ""
    yield from _wrapped(described(kind.__doc__ or "").text)
    alike = [f"`{each.__name__}`" for each in _ALIKE.get(kind, ())]
    if alike:
        yield from _wrapped(
            f"{' and '.join(alike)}, for several partitions or topics, "
            f"{'has' if len(alike) == 1 else 'have'} the same methods."
        )
    if is_dataclass(kind):
        yield from _field_lines(kind)
    elif kind not in MADE_BY_CLIENT and not getattr(kind, "_is_protocol", False):
        yield f"`{signature_of(kind.__name__, kind.__init__, returns=False)}`"
        yield ""
        yield from _callable_lines(kind.__init__, kind.__init__.__doc__ or "")
    for name, value in members_of(kind):
        docstring = docstring_of(kind, name, value)
        if isinstance(value, property):
            yield f"#### {kind.__name__}.{name}"
            yield ""
            result = getattr(value.fget, "__annotations__", {}).get("return", "")
            yield f"Property, `{result}`."
            yield ""
            yield from _callable_lines(lambda: None, docstring)
        else:
            assert callable(value)
            yield f"#### {kind.__name__}.{name}"
            yield ""
            yield f"`{signature_of(name, value)}`"
            yield ""
            yield from _callable_lines(value, docstring)


def _field_lines(kind: type) -> Iterator[str]:
    meanings = meanings_of(kind)
    parameters = inspect.signature(kind).parameters
    rows = []
    for each in fields(kind):
        default = parameters[each.name].default
        # A default that is made for each object has no useful form.
        plain = default is not inspect.Parameter.empty and "factory" not in repr(default)
        shown = (
            f"`{shown_default(default)}`" if plain else "" if default is inspect.Parameter.empty else "empty"
        )
        rows.append([f"`{each.name}`", f"`{each.type}`", shown, meanings.get(each.name, "")])
    yield from _table(("field", "type", "default", "meaning"), rows)


def _section_lines(section: Section) -> Iterator[str]:
    yield f"## {section.title}"
    yield ""
    yield from _wrapped(section.text)
    for member in section.members:
        if isinstance(member, type):
            yield from _class_lines(member)
        else:
            name = getattr(member, "__name__", "")
            yield f"### {name}"
            yield ""
            yield f"`{signature_of(name, member)}`"
            yield ""
            yield from _callable_lines(member, member.__doc__ or "")


def _enumeration_lines() -> Iterator[str]:
    yield "## Enumerations"
    yield ""
    for kind in enumerations():
        yield f"### {kind.__name__}"
        yield ""
        yield from _wrapped(markdown(inspect.cleandoc(kind.__doc__ or "")))
        meanings = meanings_of(kind)
        rows = [
            [f"`{name}`", repr(member.value), meanings.get(name, "")]
            for name, member in kind.__members__.items()
        ]
        yield from _table(("member", "number", "meaning"), rows)


def _error_lines() -> Iterator[str]:
    yield "## Errors"
    yield ""
    yield from _wrapped(
        "[Errors](errors.md) says what to do. The number is that of `Result`, whose members have the names "
        "of the errors; `Result.Ok` is 0."
    )
    rows = []
    for kind in errors():
        text = " ".join(described(kind.__doc__ or "").text.split())
        rows.append([f"`{kind.__name__}`", str(int(kind.result)), text])
    yield from _table(("error", "number", "meaning"), rows)


def texts() -> dict[str, str]:
    """Returns the text of each page."""
    note = "`tools/client_reference.py` writes this page from the signatures and docstrings of the source."
    head = ["# Reference of the client library", ""]
    head += _wrapped(
        "The blocking interface, and the classes that both interfaces share; "
        f"[reference-asyncio.md](reference-asyncio.md) has the asyncio interface. {note}"
    )
    first = [line for section in BLOCKING for line in _section_lines(section)]
    blocks = [*head, *first, *_enumeration_lines(), *_error_lines()]
    other = ["# Reference of the asyncio interface", ""]
    other += _wrapped(
        "[reference.md](reference.md) has messages, policies, enumerations and errors, which both interfaces "
        f"share. {note}"
    )
    other += [line for section in ASYNCIO for line in _section_lines(section)]
    return {
        "reference.md": "\n".join(blocks).rstrip() + "\n",
        "reference-asyncio.md": "\n".join(other).rstrip() + "\n",
    }


def main() -> int:
    """Returns 0 if the pages were written, or are as they should be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    check = parser.parse_args().check
    result = 0
    for name, text in texts().items():
        page = PAGES / name
        if not check:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            sys.stderr.write(f"{page} differs; run python tools/client_reference.py\n")
            result = 1
    return result


if __name__ == "__main__":
    sys.exit(main())
