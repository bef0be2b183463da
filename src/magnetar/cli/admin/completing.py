"""Completes command lines of ``pulsar-admin`` for shells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from magnetar import left_out
from magnetar.admin_client.errors import AdminError
from magnetar.cli.admin.arguments import (
    NAMES,
    OUTPUT,
    WITH_VALUES,
    AdminCommand,
    Option,
    Root,
    UsageError,
    commands,
    leading_options,
    trailing_options,
)
from magnetar.cli.admin.call import piece
from magnetar.cli.admin.rendering import FORMS
from magnetar.cli.cluster_access import AccessRefused, cluster_access

_SECONDS = 0.5
"""Time-out of each request to the broker, in seconds."""
_TOPICS = ("topicName", "topic")
_NAMESPACES = ("namespaceName", "namespace", "namespaces")
_DOMAINS = ("persistent://", "non-persistent://")
_DEFAULT_NAMESPACE = "public/default"

Ask = Callable[[str], Sequence[str]]
"""Returns the names that the admin interface lists at a path."""


def candidates(words: Sequence[str], current: str) -> list[str]:
    """Returns the completions of the current word.

    :param words: the words before the current one, without the program's name
    :param current: the beginning of the current word, possibly empty
    """
    found = _candidates(list(words), current)
    return [each for each in found if each.startswith(current)]


def topics(current: str) -> list[str]:
    """Returns completions of a topic name, up to the next ``/``; asks the broker that the environment or
    ``client.conf`` names.
    """
    return [*_topics(current, lambda path: _asked(Root(), path))]


def _candidates(words: list[str], current: str) -> Iterable[str]:
    if words and words[-1] in OUTPUT:
        return FORMS
    if words and words[-1] in WITH_VALUES:
        return ()
    root = Root()
    try:
        rest = leading_options(root, words)
        group = rest[0] if rest else ""
        behind = leading_options(root, rest[1:])
        name = f"{group} {behind[0]}" if behind else ""
        command = commands().get(name)
        given = trailing_options(root, command, behind[1:]) if command is not None else []
    except UsageError:
        # The error appears when the command runs, not while it is typed.
        return ()
    if command is not None:
        return _of_command(command, given, current, lambda path: _asked(root, path))
    if current.startswith("-"):
        return sorted(NAMES)
    names = [*commands(), *left_out.commands()] if not group else list(commands())
    if not group:
        return sorted({each.partition(" ")[0] for each in names})
    return [each.partition(" ")[2] for each in names if each.startswith(f"{group} ")] if not behind else ()


def _of_command(command: AdminCommand, given: Sequence[str], current: str, ask: Ask) -> Iterable[str]:
    options = {name: option for option in command.options for name in option.names}
    last = options.get(given[-1]) if given else None
    if last is not None and last.arity:
        return _values(last, current, ask)
    if current.startswith("-"):
        return sorted({*options, *NAMES})
    operands, skip = 0, False
    for word in given:
        option = options.get(word)
        if not skip and option is None and not word.startswith("-"):
            operands += 1
        skip = not skip and option is not None and bool(option.arity)
    return _values(command.operands[operands], current, ask) if operands < len(command.operands) else ()


def _values(option: Option, current: str, ask: Ask) -> Iterable[str]:
    if option.type.startswith("enum"):
        return option.type.removeprefix("enum{").rstrip("}").split(",")
    if option.key in _TOPICS:
        return _topics(current, ask)
    if option.key in _NAMESPACES:
        return _namespaces(current, ask)
    if option.key == "tenant":
        return ask("/admin/v2/tenants")
    if option.key in ("cluster", "clusterName", "clusters"):
        return ask("/admin/v2/clusters")
    return ()


def _namespaces(current: str, ask: Ask) -> Iterable[str]:
    tenant, slash, _ = current.partition("/")
    if not slash:
        return [f"{each}/" for each in ask("/admin/v2/tenants")]
    return ask(f"/admin/v2/namespaces/{piece(tenant)}")


def _topics(current: str, ask: Ask) -> Iterable[str]:
    """Yields the completions of the next segment of a topic name: domain, tenant, namespace or topic, without
    partitions.
    """
    domain = next((each for each in _DOMAINS if current.startswith(each)), "")
    rest = current.removeprefix(domain)
    if not domain and "/" not in rest:
        # A bare name is a topic of the default namespace.
        bare = _DEFAULT_NAMESPACE if rest else ""
        short = [each.removeprefix(f"persistent://{bare}/") for each in _names("persistent", bare, ask)]
        return (*_DOMAINS, *_namespaces(rest, ask), *short)
    pieces = rest.split("/")
    if len(pieces) <= 2:
        return [f"{domain}{each.rstrip('/')}/" for each in _namespaces(rest, ask)]
    kind = domain.removesuffix("://") or "persistent"
    names = _names(kind, f"{pieces[0]}/{pieces[1]}", ask)
    return names if domain else [each.removeprefix(f"{kind}://") for each in names]


def _names(kind: str, namespace: str, ask: Ask) -> list[str]:
    """Returns the full names of a namespace's topics, without partitions; empty if the namespace does not
    exist.
    """
    if not namespace:
        return []
    tenant, _, local = namespace.partition("/")
    path = f"/admin/v2/{kind}/{piece(tenant)}/{piece(local)}"
    parted = set(ask(f"{path}/partitioned"))
    return sorted(parted | {each for each in ask(path) if each.rpartition("-partition-")[0] not in parted})


def _asked(root: Root, path: str) -> Sequence[str]:
    try:
        answer: object = cluster_access(root.flags).http(timeout_seconds=_SECONDS).ask("GET", path)
    except (AccessRefused, AdminError):
        # Offer nothing, because there is no place for an error while a line is typed.
        return ()
    return [each for each in answer if isinstance(each, str)] if isinstance(answer, list) else ()
