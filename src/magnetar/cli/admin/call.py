"""A call of a command: the values of its options and operands, and its access to the broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from magnetar.admin_client.client import namespace_path, topic_path, topics_path
from magnetar.admin_client.http import JSON_TYPE, AdminHttp, Sent
from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.rendering import Rows
from magnetar.naming.topic_name import subscription_piece

SILENT = object()
"""A marker: given as a body, the request has no body; returned as an answer, nothing is printed."""

_OPERANDS = ("topicName", "namespaceName", "topic", "namespace")


class Call:
    def __init__(self, http: AdminHttp, values: dict[str, object]) -> None:
        self._http = http
        self.values = values

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def get(self, key: str) -> Any:
        """Returns the value of an option; None if the option was not given or does not exist."""
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
        """Sends a request to the broker and returns its answer.

        :param query: query parameters; parameters that are None or False are not sent
        :param body: sent as JSON; :data:`SILENT`: no body
        :raises AdminError: the broker refused the request, or did not answer
        """
        sent = {
            key: "true" if value is True else str(value)
            for key, value in (query or {}).items()
            if value not in (None, False)
        }
        text = None if body is SILENT else json.dumps(body)
        return self._http.ask(method, path, sent, text, content_type=content_type)

    def fetch(self, path: str, query: dict[str, str] | None = None) -> tuple[Mapping[str, str], bytes]:
        """Sends a GET request; returns the headers of the response, by name in lower case, and its body.

        :raises AdminError: the broker refused the request, or did not answer
        """
        return self._http.fetch(path, query)

    def upload(self, path: str, content_type: str, sent: Sent) -> object:
        """Sends a POST request whose body is too large for memory; returns the broker's answer.

        :raises AdminError: the broker refused the request, or did not answer
        """
        return self._http.ask("POST", path, None, sent, content_type=content_type)

    def download(self, path: str, take: Callable[[bytes], object]) -> Mapping[str, str]:
        """Sends a GET request, and passes the body of the response to ``take`` in pieces; returns the
        headers, by name in lower case.

        :raises AdminError: the broker refused or did not answer, or the body is incomplete
        """
        return self._http.download(path, take)

    def send(
        self, method: str, path: str, query: dict[str, object] | None = None, body: object = SILENT
    ) -> object:
        """Like :meth:`ask`, but returns :data:`SILENT`, so that the broker's answer is not printed."""
        self.ask(method, path, query, body)
        return SILENT

    def _operand(self) -> str:
        for key in _OPERANDS:
            if self.values.get(key):
                return str(self.values[key])
        raise UsageError(
            "an argument is an empty string; give the name of the tenant, namespace, topic or other resource"
        )

    @property
    def named(self) -> str:
        """The name of the object that the command refers to, as given."""
        return self._operand()

    @property
    def topic(self) -> str:
        """The path of the command's topic in the admin interface.

        :raises InvalidName: the topic name is not valid
        """
        return topic_path(self._operand())

    @property
    def namespace(self) -> str:
        """The path of the command's namespace in the admin interface.

        :raises InvalidName: the name is not valid
        """
        return namespace_path(self._operand())

    def topics_of_namespace(self, domain: str) -> str:
        """Returns the path at which the admin interface lists the namespace's topics.

        :param domain: ``persistent`` or ``non-persistent``
        :raises InvalidName: the namespace name is not valid
        """
        return topics_path(self._operand(), domain)

    @property
    def subscription(self) -> str:
        """The path of the command's subscription in the admin interface."""
        return f"{self.topic}/subscription/{subscription_piece(self['subscription'])}"

    def switched(self) -> bool:
        """Returns True for ``--enable``, and False for ``--disable``.

        :raises UsageError: both options are given, or neither of them
        """
        on, off = bool(self.get("enable")), bool(self.get("disable"))
        if on == off:
            raise UsageError("Need to specify either enable or disable")
        return on


Action = Callable[[Call], object]


def written(call: Call, value: object) -> Rows:
    """Formats an answer as JSON: on one line, or indented if ``--indent`` is given."""
    separators = None if call["indent"] else (",", ":")
    return Rows(
        [f"{json.dumps(value, indent=2 if call['indent'] else None, separators=separators)}\n"], value
    )


def piece(text: str) -> str:
    """Percent-encodes a string, as one segment of a path."""
    return quote(text, safe="")


def properties_of(values: list[str] | None) -> dict[str, str]:
    """Converts arguments of the form ``key=value`` to a dictionary.

    :raises UsageError: an item has no ``=``
    """
    found = {}
    for text in values or ():
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"{text!r} is not a property; use KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
