"""Lets a web service name the cluster of a client, like ``ControlledClusterFailover`` of the Java client."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.failover import ClusterAddress
from magnetar.client.timing import Looking
from magnetar.io.interfaces import ClientIo
from magnetar.security.client_authentication.authentication import NoCredentials
from magnetar.security.client_authentication.plugins import authentication_of

log = logging.getLogger(__name__)
TIMEOUT_SECONDS = 30.0
_MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ControlledClusterFailover:
    """Uses the cluster that a web service names.

    The service answers GET with a JSON object: ``serviceUrl``, and optionally ``tlsTrustCertsFilePath``,
    ``authPluginClassName`` and ``authParamsString``; missing values remain unchanged. Redirects are not
    followed, because the headers may contain a secret.
    """

    default: ClusterAddress
    """The cluster to use until the web service names another cluster."""
    url_provider: str
    """The ``http`` or ``https`` address of the web service."""
    url_provider_header: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of the requests to the web service, such as credentials."""
    check_interval_ms: float = 30_000
    """Interval of the requests to the web service, in milliseconds."""

    def check(self) -> None:
        """Checks the policy.

        :raises InvalidConfiguration: the URL is not an HTTP URL, or the interval is not above 0
        """
        try:
            parts = urlsplit(self.url_provider)
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise InvalidConfiguration(
                f"url_provider must be an http or https URL, not {self.url_provider!r}"
            )
        if self.check_interval_ms <= 0:
            raise InvalidConfiguration(f"check_interval_ms must be above 0, not {self.check_interval_ms}")


class WrongAnswer(Exception):
    """The web service did not answer, or its answer names no cluster; the text says why, without secrets."""


def fetched(policy: ControlledClusterFailover) -> dict[str, object]:
    """Returns the answer of the web service; blocks the calling thread.

    :raises WrongAnswer: there is no usable answer
    """
    parts = urlsplit(policy.url_provider)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(
                "GET", target, headers={"Accept": "application/json", **policy.url_provider_header}
            )
            response = connection.getresponse()
            status, data = response.status, response.read(_MAX_ANSWER_BYTES + 1)
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError) as error:
        raise WrongAnswer(f"{parts.netloc} cannot be reached: {type(error).__name__}") from None
    if status != 200:
        raise WrongAnswer(f"{parts.netloc} answered {status}")
    try:
        found: object = json.loads(data) if len(data) <= _MAX_ANSWER_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.get("serviceUrl"):
        raise WrongAnswer(f"{parts.netloc} did not answer with a JSON object that has a serviceUrl")
    return found


def address_of(answer: Mapping[str, object], current: ClusterAddress) -> ClusterAddress:
    """Returns the cluster that an answer names.

    :param current: the cluster in use, from which missing values are taken
    :raises WrongAnswer: a value is not a string, the authentication method is unknown, or the credentials are
        malformed
    """
    names = ("serviceUrl", "tlsTrustCertsFilePath", "authPluginClassName", "authParamsString")
    values = [answer.get(name) or "" for name in names]
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise WrongAnswer(f"the values of {', '.join(names)} must be text")
    service_url, trust, plugin, parameters = texts
    named = replace(current, service_url=service_url)
    if trust:
        named = replace(named, tls_trust_certs_file_path=trust)
    if plugin and parameters:
        try:
            named = replace(named, authentication=authentication_of(plugin, parameters))
        except NoCredentials as error:
            raise WrongAnswer(str(error)) from None
    return named


Answer = dict[str, object]


class ControlledService:
    """Polls the web service of one client, and makes the client use the cluster that the service names."""

    def __init__(
        self,
        policy: ControlledClusterFailover,
        io: ClientIo,
        current: Callable[[], ClusterAddress],
        use: Callable[[ClusterAddress], None],
    ) -> None:
        """:param current: returns the cluster in use

        :param use: makes the client use a cluster from now on
        """
        self._policy = policy
        self._apart: Callable[[Callable[[], Answer]], Awaitable[Answer]] = io.apart
        self._current = current
        self._use = use
        self._last: dict[str, object] | None = None
        """The answer that named the cluster in use; None: no answer has named a cluster yet."""
        self._looking = Looking(io.loop, "failover", policy.check_interval_ms / 1000, self._look)

    def begin(self) -> None:
        """Starts polling; the first request follows after one interval."""
        self._looking.begin()

    def end(self) -> None:
        """Stops polling."""
        self._looking.end()

    async def _look(self) -> None:
        try:
            answer = await self._apart(partial(fetched, self._policy))
            if answer == self._last:
                return
            before = self._current()
            named = address_of(answer, before)
            log.warning(
                "changing from the cluster at %s to the cluster at %s", before.service_url, named.service_url
            )
            self._use(named)
        except (WrongAnswer, PulsarException) as error:
            log.warning("staying with the cluster at %s: %s", self._current().service_url, error)
            return
        self._last = answer
