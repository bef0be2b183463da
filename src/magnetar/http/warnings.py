"""Warnings about accepted settings that have no effect, in the ``Warning`` header of HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from magnetar.broker.policies.honoured import NAMESPACE, TOPIC, warnings
from magnetar.http.engine.message import Request, Response
from magnetar.http.routing import Endpoint
from magnetar.security.operations import NamespaceOperation, Resource


def without_effect(endpoint: Endpoint, request: Request, *, authorization: bool, filters: bool) -> list[str]:
    """Returns a sentence for each value that a request set and that has no effect in this release.

    :param authorization: whether authorization is enabled
    :param filters: whether entry filters of namespaces and topics have effect
    """
    if endpoint.operation is NamespaceOperation.CREATE_NAMESPACE:
        given = request.json() if request.has_value else None
        return warnings(
            NAMESPACE,
            _set(given) if isinstance(given, dict) else (),
            authorization=authorization,
            filters=filters,
        )
    table = NAMESPACE if endpoint.resource is Resource.NAMESPACE else TOPIC
    return warnings(table, (endpoint.sets,), authorization=authorization, filters=filters)


def _set(policies: dict[str, object]) -> Iterable[str]:
    return (name for name, value in policies.items() if value is not None)


def warned(response: Response, sentences: Iterable[str]) -> Response:
    """Returns the answer with a ``Warning`` header for each sentence."""
    added = [("Warning", f'299 magnetar "{sentence}"') for sentence in sentences]
    return replace(response, headers=[*response.headers, *added])
