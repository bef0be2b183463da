"""One command being carried out: its values, and the broker it asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from magnetar.admin_client.client import topic_path
from magnetar.admin_client.http import JSON_TYPE, AdminHttp, Sent
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.rendering import Rows
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import subscription_piece

SILENT = object()
"""Nothing is printed."""

_OPERANDS = ("topicName", "namespaceName", "topic", "namespace")


class Call:
    def __init__(self, http: AdminHttp, values: dict[str, Any]) -> None:
        self._http = http
        self.values = values

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str) -> Any:
        """None where the command has no such option, or it was not given."""
        return self.values.get(key)

    def ask(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = SILENT,
        *,
        content_type: str = JSON_TYPE,
    ) -> Any:
        """:param query: None and False values are left out

        :param body: sent as JSON; :data:`SILENT` for none
        :raises AdminError: the broker refused, or cannot be asked
        """
        sent = {
            key: "true" if value is True else str(value)
            for key, value in (query or {}).items()
            if value not in (None, False)
        }
        text = None if body is SILENT else json.dumps(body)
        return self._http.ask(method, path, sent, text, content_type=content_type)

    def fetch(self, path: str, query: dict[str, str] | None = None) -> tuple[Mapping[str, str], bytes]:
        """Headers, by name in lower case, and bytes.

        :raises AdminError: the broker refused, or cannot be asked
        """
        return self._http.fetch(path, query)

    def upload(self, path: str, content_type: str, sent: Sent) -> Any:
        """Sends what is too large to be in memory. :raises AdminError: the broker refused, or is not there"""
        return self._http.ask("POST", path, None, sent, content_type=content_type)

    def download(self, path: str, take: Callable[[bytes], object]) -> Mapping[str, str]:
        """Headers, by name in lower case; ``take`` gets the bytes, piece by piece.

        :raises AdminError: the broker refused, cannot be asked, or not all of it came
        """
        return self._http.download(path, take)

    def send(self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = SILENT) -> Any:
        """Like :meth:`ask`; whatever comes back is not printed."""
        self.ask(method, path, query, body)
        return SILENT

    def _operand(self) -> str:
        for key in _OPERANDS:
            if self.values.get(key):
                return str(self.values[key])
        raise UsageError("a name is missing")

    @property
    def named(self) -> str:
        """What the command is about, as it was given."""
        return self._operand()

    @property
    def topic(self) -> str:
        """Where the topic is in the admin interface. :raises InvalidName: it is no topic's name"""
        return topic_path(self._operand())

    @property
    def namespace(self) -> str:
        """Where the namespace is in the admin interface. :raises InvalidName: it is no namespace's name"""
        name = NamespaceName.parse(self._operand())
        return f"{'/admin' if name.legacy else '/admin/v2'}/namespaces/{name}"

    def topics_of_namespace(self, domain: str) -> str:
        """Where the namespace's topics are. :raises InvalidName: it is no namespace's name"""
        name = NamespaceName.parse(self._operand())
        return f"{'/admin' if name.legacy else '/admin/v2'}/{domain}/{name}"

    @property
    def subscription(self) -> str:
        """Where the subscription is, below its topic."""
        return f"{self.topic}/subscription/{subscription_piece(self['subscription'])}"

    def switched(self) -> bool:
        """``--enable`` or ``--disable``. :raises UsageError: both, or neither"""
        on, off = bool(self.get("enable")), bool(self.get("disable"))
        if on == off:
            raise UsageError("Need to specify either enable or disable")
        return on


Action = Callable[[Call], Any]


def written(call: Call, value: Any) -> Rows:
    """On one line unless ``--indent`` is given, as Pulsar's tool writes what is long."""
    separators = None if call["indent"] else (",", ":")
    return Rows(
        [f"{json.dumps(value, indent=2 if call['indent'] else None, separators=separators)}\n"], value
    )


def piece(text: str) -> str:
    """A text as a piece of a path."""
    return quote(text, safe="")


def properties_of(values: list[str] | None) -> dict[str, str]:
    """``k=v`` texts as a map. :raises UsageError: one has no ``=``"""
    found = {}
    for text in values or ():
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"{text!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
