"""Endpoints of Pulsar that are left out: each answers 501 with the reason, without authentication."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.errors import NotSupported
from magnetar.http.engine.message import Request, Response
from magnetar.http.routing import Application, Endpoint, Handler
from magnetar.left_out import Row, Subject, subjects
from magnetar.security.operations import BrokerOperation


def _refusing(reason: str) -> Handler:
    async def refuse(_application: Application, _request: Request) -> Response:
        raise NotSupported(reason)

    return refuse


def _endpoint(subject: Subject, row: Row) -> Endpoint:
    return Endpoint(
        row.method,
        row.path,
        _refusing(subject.reason),
        f"refused: {row.what}",
        BrokerOperation.GET_VERSION,
        aliases=row.older,
        success=501,
        refusals={501: subject.reason},
        # The answer describes this release, not the broker, so it needs no permission.
        public=True,
        asks=True,
        anywhere=True,
    )


LEFT_OUT: Sequence[Endpoint] = [
    _endpoint(subject, row) for subject in subjects().values() for row in subject.rows
]
