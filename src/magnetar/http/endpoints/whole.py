"""All endpoints: those of the table, those that are left out, and public ones."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.endpoints.left_out import LEFT_OUT
from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.handlers.rotation import rotation
from magnetar.http.routing import Endpoint
from magnetar.security.operations import BrokerOperation

WHOLE: Sequence[Endpoint] = (
    *ENDPOINTS,
    *LEFT_OUT,
    Endpoint(
        "GET",
        "/status.html",
        rotation,
        "whether load balancers may send clients here",
        BrokerOperation.READY_CHECK,
        refusals={404: "the file of statusFilePath does not exist, or clients are not served"},
        # Load balancers have no credentials; Pulsar does not authenticate them either.
        public=True,
    ),
)
