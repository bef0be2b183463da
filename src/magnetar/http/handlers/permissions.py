"""Permissions on several topics at once."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from magnetar.errors import InvalidRequest, InvalidTopicName
from magnetar.http.engine.message import Request, Response, error_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import ACTIONS, choices, text
from magnetar.http.shapes.shown import shown
from magnetar.naming.errors import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.security.operations import Operation, TopicOperation
from magnetar.security.target import Target

_MOST = 1000
"""Topics of one request: each is authorized, and all are in one record."""

_actions = choices(*ACTIONS)


async def grant_all(application: Application, request: Request) -> Response:
    return await _change(application, request, TopicOperation.GRANT_PERMISSION)


async def revoke_all(application: Application, request: Request) -> Response:
    return await _change(application, request, TopicOperation.REVOKE_PERMISSION)


async def _change(application: Application, request: Request, operation: Operation) -> Response:
    changes = _changes(request.json(), grants=operation is TopicOperation.GRANT_PERMISSION)
    refused = await _refusal(application, request, operation, [topic for topic, _, _ in changes])
    if refused is not None:
        return error_response(HTTPStatus.UNAUTHORIZED, refused)
    await application.admin.topics.set_all_permissions(changes)
    return nothing()


def _changes(given: object, *, grants: bool) -> list[tuple[TopicName, str, Sequence[str] | None]]:
    """:raises InvalidRequest: the body is not a list of permissions"""
    if not isinstance(given, list) or not 0 < len(given) <= _MOST:
        raise InvalidRequest(f"must be a list of 1 to {_MOST} objects with topic and role")
    return [_one(f"options[{index}]", item, grants=grants) for index, item in enumerate(given)]


def _one(name: str, given: Any, *, grants: bool) -> tuple[TopicName, str, Sequence[str] | None]:
    if not isinstance(given, dict):
        raise InvalidRequest(f"{name} must be an object, not {shown(given)}")
    role = text(f"{name}.role", given.get("role"))
    actions = _actions(f"{name}.actions", given.get("actions")) if grants else None
    try:
        return TopicName.parse(text(f"{name}.topic", given.get("topic"))), role, actions
    except InvalidName as error:
        raise InvalidTopicName(str(error)) from error


async def _refusal(
    application: Application, request: Request, operation: Operation, topics: Sequence[TopicName]
) -> str | None:
    """Returns why the principal lacks permission for one of the topics; None: it has it for all."""
    authorizer = application.access.authorizer
    if not authorizer.asks:
        return None
    for topic in topics:
        reason = await authorizer.refusal(request.principal, operation, Target.of_topic(topic))
        if reason is not None:
            return reason
    return None
