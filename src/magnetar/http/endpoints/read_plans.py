"""Endpoints of read plans: Magnetar's own, for readers of its files."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import read_plans as plans
from magnetar.http.routing import Endpoint

_PATH = "/admin/v2/magnetar/read-plans"

READ_PLANS: Sequence[Endpoint] = [
    Endpoint(
        "POST",
        _PATH + "/persistent/{tenant}/{namespace}/{topic}",
        plans.make,
        "which files hold entries of a topic; keeps them for a while",
    ),
    Endpoint("PUT", _PATH + "/{plan}", plans.prolong, "keep the files of a plan for longer"),
    Endpoint("DELETE", _PATH + "/{plan}", plans.release, "the files of a plan are not needed any more"),
]
