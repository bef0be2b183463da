"""Names of topics: ``persistent://tenant/namespace/local``, short forms, and a legacy form with a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.hashes import bundle_hash
from magnetar.naming.name_rules import MAX_NAME_BYTES, InvalidName, check_length, check_path_piece
from magnetar.naming.namespace_name import NamespaceName, heartbeat_of

PARTITION_SUFFIX = "-partition-"
SYSTEM = "pulsar/system"
"""The namespace with the topic whose partitions are the transaction coordinators."""
COORDINATORS = "transaction_coordinator_assign"
"""The partitioned topic in :data:`SYSTEM` whose partitions are the transaction coordinators; it stores no
messages.
"""
PENDING_ACK_SUFFIX = "__transaction_pending_ack"
"""The suffix of the names of managed ledgers with the pending acknowledgements of subscriptions."""
_SURELY_SHORT = MAX_NAME_BYTES // 8
"""A name with at most this many characters needs no exact check of its length."""
_DEFAULT_NAMESPACE = NamespaceName("public", None, "default")
MAX_PATTERN_LENGTH = 50
"""The maximum number of characters in a pattern; Pulsar's default of ``subscriptionPatternMaxLength``."""
_PARTITION = re.compile(r"-partition-\d+$")
Matches = Callable[[str], bool]
"""Returns whether a pattern matches the full name of a topic."""


class Domain(Enum):
    PERSISTENT = "persistent"
    NON_PERSISTENT = "non-persistent"


def encode_path_piece(name: str) -> str:
    """Encodes the local name of a topic, or a cursor's name, for metadata paths and URLs, like Java's
    URLEncoder in UTF-8."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_path_piece(piece: str) -> str:
    """Decodes a piece that :func:`encode_path_piece` encoded."""
    return unquote_plus(piece)


def subscription_piece(name: str) -> str:
    """Encodes a subscription's name twice for paths of the admin interface, as Pulsar's clients do."""
    return quote(encode_path_piece(name), safe="")


def decode_subscription_piece(piece: str) -> str:
    """Decodes a piece that :func:`subscription_piece` encoded; a name without % and + may be encoded once."""
    return decode_path_piece(unquote(piece))


def _partition_index(local: str) -> int:
    _, suffix, digits = local.rpartition(PARTITION_SUFFIX)
    if not suffix or not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        return -1
    index = int(digits)
    return index if str(index) == digits and index < 1 << 31 else -1


def _check_topic_length(text: str) -> None:
    """Checks the length without the partition index, so that a valid topic has partitions with valid names.

    :raises InvalidName: the name is too long
    """
    if len(text) * 4 > MAX_NAME_BYTES:
        whole = text.rpartition(PARTITION_SUFFIX)[0] if _partition_index(text) >= 0 else text
        check_length("topic", whole)


@dataclass(frozen=True, slots=True)
class TopicName:
    domain: Domain
    namespace_name: NamespaceName
    local: str
    """The local name as clients write it, not encoded. In legacy names it may contain slashes."""

    def __post_init__(self) -> None:
        namespace = self.namespace_name
        if len(self.local) + len(namespace.tenant) + len(namespace.local) > _SURELY_SHORT:
            _check_topic_length(str(self))
        if not self.local or self.local.isspace():
            raise InvalidName(f"invalid topic name '{self}': the local name is empty")
        if self.local.startswith(PARTITION_SUFFIX) and _partition_index(self.local) >= 0:
            raise InvalidName(f"invalid topic name '{self}': it is a partition of a topic with an empty name")
        check_path_piece("topic", self.local)
        if "/" in self.local and not self.namespace_name.legacy:
            raise InvalidName(f"invalid topic name '{self}': the local name must not contain a slash")

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parses a full, short or legacy name.

        :raises InvalidName: the number of parts, the domain or a part is wrong
        """
        _check_topic_length(text)
        domain_text, separator, rest = text.partition("://")
        if not separator:
            return cls._parse_short(text)
        try:
            domain = Domain(domain_text)
        except ValueError:
            raise InvalidName(
                f"invalid topic name {text!r}: {domain_text!r} is neither persistent nor non-persistent"
            ) from None
        parts = rest.split("/", 3)
        if len(parts) == 3:
            return cls(domain, NamespaceName(parts[0], None, parts[1]), parts[2])
        if len(parts) == 4:
            return cls(domain, NamespaceName(parts[0], parts[1], parts[2]), parts[3])
        raise InvalidName(f"invalid topic name {text!r}: it must be domain://tenant/namespace/topic")

    @classmethod
    def _parse_short(cls, text: str) -> TopicName:
        parts = text.split("/")
        if len(parts) == 1:
            return cls(Domain.PERSISTENT, _DEFAULT_NAMESPACE, text)
        if len(parts) == 3:
            return cls(Domain.PERSISTENT, NamespaceName(parts[0], None, parts[1]), parts[2])
        raise InvalidName(f"invalid short topic name {text!r}: it must be topic or tenant/namespace/topic")

    @property
    def tenant(self) -> str:
        return self.namespace_name.tenant

    @property
    def cluster(self) -> str | None:
        """The cluster in a legacy name; None in other names."""
        return self.namespace_name.cluster

    @property
    def namespace(self) -> str:
        """The local name of the namespace."""
        return self.namespace_name.local

    @property
    def legacy(self) -> bool:
        return self.namespace_name.legacy

    @property
    def persistent(self) -> bool:
        return self.domain is Domain.PERSISTENT

    @property
    def encoded_local(self) -> str:
        return encode_path_piece(self.local)

    @property
    def path(self) -> str:
        """Returns ``tenant/[cluster/]namespace/domain/topic``, encoded, for paths such as those below
        ``/managed-ledgers/``."""
        return f"{self.namespace_name}/{self.domain.value}/{self.encoded_local}"

    @classmethod
    def from_path(cls, path: str) -> TopicName:
        """Returns the topic with a path in the form of :attr:`path`.

        :raises InvalidName: the path has another form
        """
        parts = path.split("/")
        if len(parts) not in (4, 5) or parts[-2] not in (domain.value for domain in Domain):
            raise InvalidName(f"invalid topic path {path!r}: it must be tenant/namespace/domain/topic")
        namespace = NamespaceName.parse("/".join(parts[:-2]))
        return cls(Domain(parts[-2]), namespace, decode_path_piece(parts[-1]))

    @property
    def schema_path(self) -> str:
        """Returns ``tenant/namespace/topic`` of the partitioned topic, encoded and without a cluster, for
        paths below ``/schemas/``."""
        return f"{self.tenant}/{self.namespace}/{self.base.encoded_local}"

    @property
    def partition_index(self) -> int:
        """Returns N of ``…-partition-N``; -1 for any other name (also for N with a sign or a leading
        zero)."""
        return _partition_index(self.local)

    @property
    def base(self) -> TopicName:
        """Returns the partitioned topic of a partition; the name itself for any other topic."""
        if self.partition_index < 0:
            return self
        return TopicName(self.domain, self.namespace_name, self.local.rpartition(PARTITION_SUFFIX)[0])

    def partition(self, index: int) -> TopicName:
        """Returns the name of partition ``index`` (0, 1, …); this name itself if ``index`` is -1, or if this
        name is already the name of that partition.
        """
        if index < 0 or self.local.endswith(f"{PARTITION_SUFFIX}{index}"):
            return self
        return TopicName(self.domain, self.namespace_name, f"{self.local}{PARTITION_SUFFIX}{index}")

    @property
    def reserved(self) -> bool:
        """Whether the topic is a system topic."""
        return self.local.startswith("__") or self.local.endswith(PENDING_ACK_SUFFIX)

    @property
    def is_transaction_log(self) -> bool:
        """Whether a managed ledger with this name is a transaction log of a coordinator or a subscription."""
        return self.local.endswith(PENDING_ACK_SUFFIX) or (
            str(self.namespace_name) == SYSTEM and self.local.startswith(("__transaction_log_", COORDINATORS))
        )

    @property
    def has_transactions(self) -> bool:
        """Whether messages of transactions may be published to the topic; false for system and health-check
        topics."""
        namespace = self.namespace_name
        return not (self.reserved or heartbeat_of(namespace) is not None or str(namespace) == SYSTEM)

    @property
    def bundle_hash(self) -> int:
        """Returns the hash of the topic's full name, 0 … 0xffffffff, which determines its bundle."""
        return bundle_hash(str(self))

    @property
    def admin_path(self) -> str:
        """Returns the topic's path in the HTTP admin interface."""
        root = "/admin" if self.namespace_name.legacy else "/admin/v2"
        return f"{root}/{self.domain.value}/{self.namespace_name}/{quote(self.local, '')}"

    def __str__(self) -> str:
        return f"{self.domain.value}://{self.namespace_name}/{self.local}"


def compile_pattern(pattern: str) -> Matches | None:
    """Returns a function that matches the whole name of a topic, without domain and partition.

    Returns None if the pattern cannot be matched in linear time (https://github.com/google/re2); the client
    must then filter the names. Python's own expressions would support all patterns, but some of them can take
    exponential time, with which a client could stop the whole broker.
    """
    # Imported for the first pattern: most brokers never get one.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern.split("://", 1)[-1], options)
    except re2.error:
        return None
    fullmatch, cut = compiled.fullmatch, _PARTITION.sub
    return lambda name: fullmatch(cut("", name).split("://", 1)[1]) is not None
