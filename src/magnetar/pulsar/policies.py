"""Cluster addresses, policies and encryption keys that programs pass to a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.client import failover
from magnetar.client.encryption import key_readers
from magnetar.pulsar.authentication import PulsarAuthentication
from magnetar.pulsar.boundary import check_type, check_type_or_none
from magnetar.pulsar.enums import (
    BatchLimits,
    DeadLetterPolicyBuilder,
    DeadLetterSettings,
    KeySharing,
    KeySharingPolicy,
)
from magnetar.security.client_authentication.authentication import Authentication

__all__ = [
    "AutoClusterFailover",
    "ConsumerBatchReceivePolicy",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "PemKeyReader",
    "ServiceInfo",
    "ServiceInfoProvider",
]


class ServiceInfo:
    """The address of a cluster, and its credentials."""

    def __init__(
        self,
        service_url: str,
        authentication: PulsarAuthentication | None = None,
        tls_trust_certs_file_path: str | None = None,
    ) -> None:
        """:raises ValueError: an argument has the wrong type"""
        self._service_url = check_type(str, service_url, "service_url")
        self._authentication = check_type_or_none(PulsarAuthentication, authentication, "authentication")
        self._tls_trust_certs_file_path = check_type_or_none(
            str, tls_trust_certs_file_path, "tls_trust_certs_file_path"
        )

    @classmethod
    def of(cls, used: failover.ClusterAddress) -> ServiceInfo:
        """Converts an address of ``magnetar.client``; as in the official client, the result does not contain
        the credentials.
        """
        return cls(used.service_url, None, used.tls_trust_certs_file_path)

    def used(self) -> failover.ClusterAddress:
        """Returns the address in the form of ``magnetar.client``."""
        return failover.ClusterAddress(
            self._service_url, self._authentication, self._tls_trust_certs_file_path
        )

    @property
    def service_url(self) -> str:
        return self._service_url

    @property
    def tls_trust_certs_file_path(self) -> str | None:
        return self._tls_trust_certs_file_path

    @property
    def use_tls(self) -> bool:
        return self.service_url.startswith("pulsar+ssl://")

    def __repr__(self) -> str:
        return (
            f"ServiceInfo(service_url={self.service_url!r}, use_tls={self.use_tls!r}, "
            f"tls_trust_certs_file_path={self.tls_trust_certs_file_path!r})"
        )


class ServiceInfoProvider:
    """Base class for programs that decide themselves which cluster a client uses."""

    def initial_service_info(self) -> ServiceInfo:
        """Returns the cluster that the client uses first."""
        raise NotImplementedError

    def initialize(self, on_service_info_update: Callable[[ServiceInfo], None]) -> None:
        """Called once with a callback, with which the program can change the client's cluster later.

        :param on_service_info_update: makes the client use another cluster; can be called in any thread
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called when the client is closed."""


class AutoClusterFailover:
    """Several clusters: the client uses the primary if it answers, otherwise the first secondary that
    answers.
    """

    def __init__(
        self,
        primary: ServiceInfo,
        secondary: list[ServiceInfo],
        check_interval_ms: int = 5000,
        failover_threshold: int = 1,
        switch_back_threshold: int = 1,
    ) -> None:
        """:param check_interval_ms: interval of the probes, in milliseconds
        :param failover_threshold: number of consecutive failed probes of the cluster in use before another
            cluster is used
        :param switch_back_threshold: number of consecutive successful probes of the primary before it is used
            again
        :raises ValueError: an argument has the wrong type, there is no secondary, or a number is not above 0
        """
        self.primary = check_type(ServiceInfo, primary, "primary")
        self.secondary = list(check_type(list, secondary, "secondary"))
        self.check_interval_ms = check_type(int, check_interval_ms, "check_interval_ms")
        self.failover_threshold = check_type(int, failover_threshold, "failover_threshold")
        self.switch_back_threshold = check_type(int, switch_back_threshold, "switch_back_threshold")
        if not self.secondary:
            raise ValueError("Argument secondary is expected to contain at least one ServiceInfo")
        for index, info in enumerate(self.secondary):
            check_type(ServiceInfo, info, f"secondary[{index}]")
        for name in ("check_interval_ms", "failover_threshold", "switch_back_threshold"):
            if getattr(self, name) <= 0:
                raise ValueError(f"Argument {name} is expected to be greater than 0")

    def policy(self) -> failover.ClusterFailover:
        """Returns these clusters in the form of ``magnetar.client``."""
        return failover.ClusterFailover(
            self.primary.used(),
            [each.used() for each in self.secondary],
            self.check_interval_ms,
            self.failover_threshold,
            self.switch_back_threshold,
        )

    def __repr__(self) -> str:
        return (
            f"AutoClusterFailover(primary={self.primary!r}, secondary={self.secondary!r}, "
            f"check_interval_ms={self.check_interval_ms!r}, failover_threshold={self.failover_threshold!r}, "
            f"switch_back_threshold={self.switch_back_threshold!r})"
        )


def used_info(info: object) -> failover.ClusterAddress:
    """Converts the address that a program's provider returned to the form of ``magnetar.client``.

    :raises ValueError: the provider did not return a ServiceInfo
    """
    if not isinstance(info, ServiceInfo):
        raise ValueError("Expected a pulsar.ServiceInfo or _pulsar.ServiceInfo instance")
    return info.used()


def clusters_of(
    service_url: object, authentication: PulsarAuthentication | None, trusted: str | None
) -> tuple[str | failover.ClusterFailover, Authentication | None, str | None]:
    """Returns the cluster or the clusters of a client in the form of ``magnetar.client``, the credentials,
    and the path of the trusted CA certificates.

    :param trusted: the path of a PEM file with trusted CA certificates; None: the system's CAs
    :raises ValueError: an argument has the wrong type, or contradicts another
    """
    if isinstance(service_url, str):
        return service_url, authentication, trusted
    if not isinstance(service_url, AutoClusterFailover | ServiceInfoProvider):
        raise ValueError(
            "Argument service_url is expected to be of type 'str', 'AutoClusterFailover' or "
            "'ServiceInfoProvider'"
        )
    for name, given in (("authentication", authentication), ("tls_trust_certs_file_path", trusted)):
        if given is not None:
            raise ValueError(
                f"Argument {name} is not supported when service_url is an AutoClusterFailover or "
                f"ServiceInfoProvider; set {name} on each ServiceInfo instead"
            )
    if isinstance(service_url, AutoClusterFailover):
        return service_url.policy(), None, None
    first = used_info(service_url.initial_service_info())
    return first.service_url, first.authentication, first.tls_trust_certs_file_path


class ConsumerDeadLetterPolicy:
    """The rules by which messages go to a dead letter topic."""

    def __init__(
        self,
        max_redeliver_count: int,
        dead_letter_topic: str | None = None,
        initial_subscription_name: str | None = None,
    ) -> None:
        """:param dead_letter_topic: the name of the topic; None: ``<topic>-<subscription>-DLQ``

        :param initial_subscription_name: a subscription that is created together with the dead letter topic,
            so that the topic keeps its messages; None: no subscription
        :raises ValueError: ``max_redeliver_count`` is below 1
        """
        if max_redeliver_count is None or max_redeliver_count < 1:
            raise ValueError(f"max_redeliver_count must be greater than 0, not {max_redeliver_count}")
        builder = DeadLetterPolicyBuilder().maxRedeliverCount(max_redeliver_count)
        if dead_letter_topic is not None:
            builder.deadLetterTopic(dead_letter_topic)
        if initial_subscription_name is not None:
            builder.initialSubscriptionName(initial_subscription_name)
        self._policy = builder.build()

    @property
    def dead_letter_topic(self) -> str:
        return self._policy.getDeadLetterTopic()

    @property
    def max_redeliver_count(self) -> int:
        return self._policy.getMaxRedeliverCount()

    @property
    def initial_subscription_name(self) -> str:
        return self._policy.getInitialSubscriptionName()

    def policy(self) -> DeadLetterSettings:
        return self._policy


class ConsumerBatchReceivePolicy:
    """The limits at which ``batch_receive`` returns; a value of 0 or less means no limit."""

    def __init__(self, max_num_message: int, max_num_bytes: int, timeout_ms: int) -> None:
        """:param max_num_message: maximum number of messages
        :param max_num_bytes: maximum size of the messages, in bytes
        :param timeout_ms: maximum time to wait, in milliseconds
        :raises ValueError: there is no limit
        """
        self._policy = BatchLimits(max_num_message, max_num_bytes, timeout_ms)

    def policy(self) -> BatchLimits:
        return self._policy


class ConsumerKeySharedPolicy:
    """The mode and the hash ranges by which a KeyShared subscription assigns keys to consumers."""

    def __init__(
        self,
        key_shared_mode: KeySharing = KeySharing.AutoSplit,
        allow_out_of_order_delivery: bool = False,
        sticky_ranges: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """:param sticky_ranges: the hash ranges of this consumer: pairs of first and last hash, from 0 to
            65535

        :raises ValueError: the mode is Sticky and there are no ranges, or ranges are outside of 0 to 65535 or
            overlap
        """
        if key_shared_mode == KeySharing.Sticky and sticky_ranges is None:
            raise ValueError(
                "When using key_shared_mode = KeySharedMode.Sticky you must also provide sticky_ranges"
            )
        self._policy = KeySharingPolicy().set_key_shared_mode(key_shared_mode)
        self._policy.set_allow_out_of_order_delivery(allow_out_of_order_delivery)
        if sticky_ranges is not None:
            self._policy.set_sticky_ranges(sticky_ranges)

    @property
    def key_shared_mode(self) -> KeySharing:
        return self._policy.get_key_shared_mode()

    @property
    def allow_out_of_order_delivery(self) -> bool:
        return self._policy.is_allow_out_of_order_delivery()

    @property
    def sticky_ranges(self) -> list[tuple[int, int]]:
        return self._policy.get_sticky_ranges()

    def policy(self) -> KeySharingPolicy:
        return self._policy


class PemKeyReader(key_readers.CryptoKeyReader):
    """Encryption keys in PEM files."""

    def __init__(self, public_key_path: str, private_key_path: str) -> None:
        """:param public_key_path: PEM file with the public key, with which producers encrypt
        :param private_key_path: PEM file with the private key, with which consumers decrypt
        :raises ValueError: an argument is not a string
        """
        check_type(str, public_key_path, "public_key_path")
        check_type(str, private_key_path, "private_key_path")
        super().__init__(public_key_path, private_key_path)
