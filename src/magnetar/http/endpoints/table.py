"""The table of all endpoints. It includes Pulsar's endpoints that are not supported, which answer 501 with
the reason, and public endpoints. Paths of version 1 of Pulsar's interface are aliases.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.errors import NotSupported
from magnetar.http.endpoints.brokers import BROKERS, STATUS
from magnetar.http.endpoints.clusters import CLUSTERS, RESOURCE_GROUPS, TENANTS
from magnetar.http.endpoints.messages import BROWSING
from magnetar.http.endpoints.namespaces import NAMESPACES
from magnetar.http.endpoints.packages import PACKAGES
from magnetar.http.endpoints.placement import BOOKIES, LOAD
from magnetar.http.endpoints.publishing import PUBLISHING, SCHEMAS
from magnetar.http.endpoints.storage import READ_PLANS, SNAPSHOTS, STORAGE
from magnetar.http.endpoints.topic_policies import TOPIC_POLICIES
from magnetar.http.endpoints.topics import TOPICS
from magnetar.http.endpoints.transactions import TRANSACTIONS
from magnetar.http.endpoints.websocket import WEBSOCKET
from magnetar.http.engine.message import Request, Response
from magnetar.http.routing import Application, Endpoint, Handler
from magnetar.left_out import Row, Subject, subjects
from magnetar.security.authorization import BrokerOperation

ENDPOINTS: Sequence[Endpoint] = (
    *CLUSTERS,
    *BROKERS,
    *TENANTS,
    *NAMESPACES,
    *TOPICS,
    *TOPIC_POLICIES,
    *SCHEMAS,
    *RESOURCE_GROUPS,
    *BOOKIES,
    *LOAD,
    *PACKAGES,
    *PUBLISHING,
    *BROWSING,
    *READ_PLANS,
    *SNAPSHOTS,
    *STORAGE,
    *TRANSACTIONS,
    *WEBSOCKET,
)


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
WHOLE: Sequence[Endpoint] = (*ENDPOINTS, *LEFT_OUT, STATUS)
