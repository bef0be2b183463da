"""Lookups at brokers' web services, for clients with an ``http://`` or ``https://`` service URL. Only the
first broker is looked up over HTTP; all later lookups go to this broker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import quote, urlencode, urlsplit

from magnetar.client.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectError,
    ErrorGettingAuthenticationData,
    InvalidConfiguration,
    LookupError,
    PulsarException,
    ServiceUnitNotReady,
    TopicNotFound,
)
from magnetar.client.security import BrokerUrls, FindBroker, connect_failure
from magnetar.io.interfaces import ClientIo
from magnetar.io.tls import ClientContext, ClientTls, TlsRefused
from magnetar.naming.topic_name import TopicName
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials

__all__ = ["finder"]
_MAX_ANSWER_BYTES = 1 << 20
_MAX_REDIRECTS = 20
_REDIRECTS = (302, 307, 308)
_ERRORS: Mapping[int, type[PulsarException]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    404: TopicNotFound,
    500: ServiceUnitNotReady,
    503: ServiceUnitNotReady,
}


def finder(
    io: ClientIo,
    service_url: str,
    authentication: Authentication | None,
    tls: ClientTls,
    *,
    timeout: float,
    listener_name: str,
) -> FindBroker:
    """Returns a function that looks up a topic's broker at the web services of a URL. The function tries the
    web services in turn, beginning with the web service that answered last.

    :param service_url: ``http://host[:port][,host[:port]...]`` or ``https://``
    :param timeout: maximum time for each answer, in seconds
    :param listener_name: the advertised listener to request; empty: the default listener
    """
    scheme, _, hosts = service_url.partition("://")
    bases = [f"{scheme}://{host}" for host in hosts.rstrip("/").split(",")]
    query = f"?{urlencode({'listenerName': listener_name})}" if listener_name else ""
    asked = partial(_followed, authentication=authentication, context=ClientContext(tls), timeout=timeout)

    async def find(topic: str) -> BrokerUrls:
        name = TopicName.parse(topic)
        path = (
            f"/lookup/v2/topic/{name.domain.value}/{name.namespace_name}/{quote(name.local, safe='')}{query}"
        )
        left = len(bases)
        while True:
            left -= 1
            try:
                found: BrokerUrls = await io.apart(partial(asked, bases[0] + path))
                return found
            except ConnectError:
                bases.append(bases.pop(0))
                if not left:
                    raise

    return find


def _followed(
    url: str, *, authentication: Authentication | None, context: ClientContext, timeout: float
) -> BrokerUrls:
    """Sends a lookup to a web service, and follows redirects; blocks the calling thread."""
    secured = url.startswith("https://")
    for _ in range(_MAX_REDIRECTS):
        status, location, data = _asked(url, authentication, context, timeout)
        where = urlsplit(url).netloc
        if status not in _REDIRECTS:
            if status != 200:
                raise _ERRORS.get(status, LookupError)(f"{where} answered {status}: {_reason(data)}")
            return _urls(where, data)
        if not location.startswith("https://" if secured else ("http://", "https://")):
            raise LookupError(f"{where} redirects to {location[:200]!r}, which is not a usable address")
        url = location
    raise LookupError(
        f"the lookup was redirected more than {_MAX_REDIRECTS} times, the last time to {url[:200]}"
    )


def _asked(
    url: str, authentication: Authentication | None, context: ClientContext, timeout: float
) -> tuple[int, str, bytes]:
    """Sends one GET request; returns the status, the ``Location`` header and the body of the response."""
    parts = urlsplit(url)
    try:
        headers = dict(authentication.headers()) if authentication is not None else {}
        connection = (
            HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout, context=context())
            if parts.scheme == "https"
            else HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        )
        try:
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", target, headers={"Accept": "application/json", **headers})
            response = connection.getresponse()
            return response.status, response.headers.get("Location", ""), response.read(_MAX_ANSWER_BYTES)
        finally:
            connection.close()
    except TlsRefused as error:
        raise InvalidConfiguration(str(error)) from error
    except NoCredentials as error:
        raise ErrorGettingAuthenticationData(str(error)) from None
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, OSError):
            raise connect_failure(parts.netloc, error) from error
        raise ConnectError(f"{parts.netloc} did not send a valid HTTP response: {error}") from error


def _reason(data: bytes) -> str:
    """Returns why the web service refused: the field ``reason`` if the body is a JSON object, otherwise the
    body as text.
    """
    text = data.decode(errors="replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        return text[:200]
    return str(found["reason"])[:200] if isinstance(found, dict) and "reason" in found else text[:200]


def _urls(where: str, data: bytes) -> BrokerUrls:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not (found.get("brokerUrl") or found.get("brokerUrlTls")):
        raise LookupError(
            f"the answer of {where} contains no broker; check that the service URL is the "
            "web service of a Pulsar broker"
        )
    return BrokerUrls(str(found.get("brokerUrl") or ""), str(found.get("brokerUrlTls") or ""))
