"""The clusters of a client. The client uses one cluster at a time, and changes to another cluster on request
or automatically.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from magnetar.client.exceptions import InvalidConfiguration
from magnetar.client.timing import Looking
from magnetar.io.interfaces import Loop
from magnetar.security.client_authentication.authentication import Authentication

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The address of a cluster, and its credentials."""

    service_url: str
    """``pulsar://host[:port][,host[:port]...]``, or ``pulsar+ssl://`` for TLS; also ``http://`` or
    ``https://``, except in a :class:`ClusterFailover`, which probes brokers.
    """
    authentication: Authentication | None = None
    """The credentials for this cluster. None: no credentials."""
    tls_trust_certs_file_path: str | None = None
    """PEM file with the CA certificates that sign brokers' certificates. None: the system's CA
    certificates.
    """


@dataclass(frozen=True, slots=True)
class ClusterFailover:
    """Uses the first of several clusters that answers, with a preference for the primary (PIP-121).

    Topics and subscriptions should be replicated between the clusters.
    """

    primary: ClusterAddress
    """The preferred cluster, which is used whenever it answers."""
    secondary: Sequence[ClusterAddress]
    """The other clusters in order of preference; at least one."""
    check_interval_ms: float = 5000
    """Interval of the probes, in milliseconds."""
    failover_threshold: int = 1
    """Number of consecutive failed probes of the cluster in use before another cluster is used."""
    switch_back_threshold: int = 1
    """Number of consecutive successful probes of the primary before the primary is used again."""

    def check(self) -> None:
        """Checks the policy.

        :raises InvalidConfiguration: there is no secondary cluster, or a number is not above 0
        """
        if not self.secondary:
            raise InvalidConfiguration("secondary is empty; give at least one cluster")
        for name in ("check_interval_ms", "failover_threshold", "switch_back_threshold"):
            if getattr(self, name) <= 0:
                raise InvalidConfiguration(f"{name} must be above 0, not {getattr(self, name)}")


class FailoverProbes:
    """Probes the clusters of one client, and makes the client change if the cluster in use does not
    answer.
    """

    def __init__(
        self,
        policy: ClusterFailover,
        loop: Loop,
        answers: Callable[[ClusterAddress], Awaitable[bool]],
        use: Callable[[ClusterAddress], None],
    ) -> None:
        """:param answers: returns whether a cluster answers

        :param use: makes the client use a cluster from now on
        """
        self._policy = policy
        self._clusters = (policy.primary, *policy.secondary)
        self._answers = answers
        self._use = use
        self._current = 0
        self._failures = 0
        """Number of consecutive failed probes of the cluster in use."""
        self._successes = 0
        """Number of consecutive successful probes of the primary while another cluster is in use."""
        self._looking = Looking(loop, "failover", policy.check_interval_ms / 1000, self._look)

    def begin(self) -> None:
        """Starts probing; the first probe follows after one interval."""
        self._looking.begin()

    def end(self) -> None:
        """Stops probing."""
        self._looking.end()

    async def _look(self) -> None:
        if await self._answers(self._clusters[self._current]):
            self._failures = 0
        else:
            self._failures += 1
            log.info("%s does not answer", self._clusters[self._current].service_url)
            if self._failures >= self._policy.failover_threshold and await self._change():
                return
        if self._current:
            self._successes = self._successes + 1 if await self._answers(self._policy.primary) else 0
            if self._successes >= self._policy.switch_back_threshold:
                self._turn_to(0)

    async def _change(self) -> bool:
        """Changes to the first of the other clusters that answers, in order of preference; returns False if
        none answers.
        """
        for index, each in enumerate(self._clusters):
            if index != self._current and await self._answers(each):
                self._turn_to(index)
                return True
        log.warning("no cluster answers; staying with %s", self._clusters[self._current].service_url)
        return False

    def _turn_to(self, index: int) -> None:
        before, now = self._clusters[self._current], self._clusters[index]
        log.warning(
            "changing from the cluster at %s to the cluster at %s", before.service_url, now.service_url
        )
        self._current = index
        self._failures = self._successes = 0
        self._use(now)
