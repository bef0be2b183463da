"""Who may do what: the one place that decides."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.security.operations import Operation, Resource
from magnetar.security.principal import Principal


def refusal(
    principal: Principal, operation: Operation, resource: Resource, names: Mapping[str, str]
) -> str | None:
    """Why somebody may not do something; None: they may.

    This release proves nobody's identity, so that everybody may do everything.

    :param names: of what it is asked of, by kind: ``tenant``, ``cluster``, ``namespace``, ``domain``,
        ``topic``, ``subscription``, as far as the kind of resource has them
    """
    return None
