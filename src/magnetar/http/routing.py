"""Endpoints, and the router that finds the endpoint of a path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar
from urllib.parse import unquote

from magnetar.broker.admin.all import Admin
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.broker.stats.topic_board import TopicBoard
from magnetar.http.engine.message import Request, Response
from magnetar.http.metrics.rendering import MetricsOptions
from magnetar.http.metrics.shared import Scrapes
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.topic_name import decode_path_piece, decode_subscription_piece
from magnetar.security.authentication import Authenticator, NobodyIsAsked
from magnetar.security.authorization import (
    Authorizer,
    BrokerOperation,
    ClusterOperation,
    EverybodyMay,
    NamespaceOperation,
    Operation,
    PolicyName,
    PolicyOperation,
    Resource,
    TenantOperation,
    TopicOperation,
)

if TYPE_CHECKING:
    from magnetar.http.large_messages import LargeMessages
    from magnetar.http.websocket.service import WebSocketService

_FORBIDDEN: frozenset[Operation] = frozenset(
    {TopicOperation.CREATE_TOPIC, TopicOperation.DELETE_TOPIC, TopicOperation.GET_BUNDLE_RANGE}
)
"""Operations on topics that are refused with status 403 if permission is missing; other operations on topics
are refused with 401.
"""
_SETS_DELAYS = PolicyOperation(PolicyName.DELAYED_DELIVERY, write=True)


@dataclass(frozen=True, slots=True)
class SnapshotAccess:
    """Access to the snapshots of a broker with embedded stores; see ``magnetar.server.snapshots``."""

    take: Callable[[int | None], Awaitable[Mapping[str, object]]]
    prolong: Callable[[str, int | None], Mapping[str, object]]
    release: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Process:
    """The functions and data of a broker's process that handlers use."""

    ready: Callable[[], bool]
    """Returns whether the broker serves clients: True from the end of its start to the beginning of its
    stop.
    """
    check_health: Callable[[bool], Awaitable[None]]
    """Publishes a message to a health check topic of the broker, and reads it; raises BrokerError on failure.
    The argument selects the topic: True for the newer form of its name.
    """
    settings: Mapping[str, str]
    """The effective value of every setting as a string, by Pulsar's name."""
    storage: Callable[[str | None], Awaitable[Mapping[str, Any]]]
    """Returns the use of the disk, the ledger store and the topics: all topics, or only the topics of the
    given namespace (None: all).
    """
    figures: Callable[[], Awaitable[MetricsSnapshot]]
    """Returns the values of all metrics, as far as possible from the same moment."""
    bookies: Callable[[], Awaitable[Sequence[str]]]
    """Returns the ids of all bookies, registered or not; empty for a standalone broker."""
    stop: Callable[[], None] = lambda: None
    """Begins a clean stop of the broker, as SIGTERM does."""
    in_rotation: Callable[[], bool] | None = None
    """Returns whether load balancers should send clients to this process; None: the setting
    ``statusFilePath`` is empty.
    """
    board: TopicBoard | None = None
    """The data of the page at ``/``; None: there is no page."""
    websockets: Callable[[], Awaitable[WebSocketService]] | None = None
    """Returns the WebSocket service, which the first call creates; None: WebSockets are disabled."""
    snapshots: Callable[[], SnapshotAccess] | None = None
    """Returns the object that makes snapshots; None: the data is in BookKeeper and ZooKeeper."""


@dataclass(frozen=True, slots=True)
class Access:
    """Authentication and authorization of HTTP requests."""

    authenticator: Authenticator = field(default_factory=NobodyIsAsked)
    authorizer: Authorizer = field(default_factory=EverybodyMay)
    open_metrics: bool = True
    """Whether metrics are public, because scrapers often have no credentials."""


@dataclass(frozen=True, slots=True)
class Application:
    """The objects of a broker that handlers use."""

    admin: Admin
    process: Process
    metrics: MetricsOptions
    version: str
    cluster: str = ""
    """The name of the broker's cluster."""
    access: Access = field(default_factory=Access)
    messages: LargeMessages | None = None
    """Creates responses with stored messages; set by the server."""
    scrapes: Scrapes | None = None
    """Renders metrics; set by the server."""


Handler = Callable[[Application, Request], Awaitable[Response]]


class WebSocketProcess(Protocol):
    """The functions of a process that handlers of WebSockets use."""

    @property
    def websockets(self) -> Callable[[], Awaitable[WebSocketService]] | None:
        """The function that returns the WebSocket service; None: WebSockets are disabled."""
        ...


class WebSocketApplication(Protocol):
    """The objects that handlers of WebSockets use, in a broker or in a process without a broker."""

    @property
    def process(self) -> WebSocketProcess: ...
    @property
    def access(self) -> Access: ...


WebSocketHandler = Callable[[WebSocketApplication, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    type: Literal["truth", "whole", "text"]
    default: str = ""
    """The value of an absent parameter; empty: no default."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One row of the endpoint table."""

    method: str
    path: str
    """The path pattern: segments separated by ``/``; ``{name}`` is a variable, which stands for any one
    segment.
    """
    handler: Handler
    description: str
    operation: Operation
    """The required permission."""
    aliases: Sequence[str] = ()
    """Legacy paths of the endpoint; they can have other variables."""
    parameters: Sequence[Parameter] = ()
    body: str = ""
    """Pulsar's name for the type of the body; empty: the body is ignored."""
    success: int = 0
    """The status of a successful response; 0: 200 for GET, otherwise 204."""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Further error statuses and their reasons, in addition to :data:`ALWAYS`."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Values of path variables that the handler needs but the path does not contain."""
    sets: str = ""
    """The policy field of a namespace or topic that the endpoint sets (``broker.policies.honoured``)."""
    audited: bool = False
    """Whether requests appear in the audit log although they change nothing, because they show message
    contents.
    """
    asks: bool = False
    """Whether the endpoint changes nothing although its method is not GET."""
    upgrades: bool = False
    """Whether the endpoint turns the connection into a WebSocket."""
    reads_as_it_comes: bool = False
    """Whether the handler reads the body while it arrives (``Request.arriving``), so that its size is not
    limited.
    """
    each: bool = False
    """Whether the operation, when it is requested for a partitioned topic, runs on each partition; the
    response is then empty.
    """
    anywhere: bool = False
    """Whether any broker can handle the request, not only the owner of the topic."""
    public: bool = False
    """Whether the endpoint needs no authentication, because it reveals nothing about this broker."""
    lets_in: bool = False
    """Whether the handler checks the permission, because the path does not contain the target."""

    @property
    def changes(self) -> bool:
        """Whether the endpoint can change data."""
        return self.method != "GET" and not self.asks

    @property
    def tagged(self) -> bool:
        """Whether the response has an ``ETag``, as for settings and policies, which rarely change."""
        set_by_somebody = isinstance(self.operation, PolicyOperation) or self.operation in _SET_BY_SOMEBODY
        return self.method == "GET" and set_by_somebody

    @property
    def is_metrics(self) -> bool:
        """Whether the endpoint serves metrics."""
        return self.operation is BrokerOperation.GET_METRICS

    @property
    def is_asked_for(self) -> bool:
        """Whether the server checks the permission before it calls the handler."""
        # Only its creator knows the id of a read plan.
        return not (self.public or self.lets_in or self.resource is Resource.READ_PLAN)

    @property
    def refused_status(self) -> int:
        """The status for an authenticated client without permission; Pulsar's clients treat 401 and 403
        alike.
        """
        return 401 if is_refused_as_unauthorized(self.operation, self.resource) and not self.upgrades else 403

    @property
    def asked_of_cluster(self) -> bool:
        """Whether only brokers of a cluster to which the topic's namespace is replicated can handle the
        request.
        """
        # A lookup redirects clients to another cluster.
        anybody = (TopicOperation.LOOKUP, TopicOperation.GET_BUNDLE_RANGE)
        return self.resource in (Resource.TOPIC, Resource.SUBSCRIPTION) and self.operation not in anybody

    @property
    def asked_of_owner(self) -> bool:
        """Whether only the owner of the topic can handle the request."""
        # The number of partitions is in the metadata, and each partition is created at its owner.
        return self.asked_of_cluster and not self.anywhere and not self.path.endswith("/partitions")

    @property
    def resource(self) -> Resource:
        """The target of the permission: the innermost resource in the path."""
        return resource_of(self.path)

    @property
    def answers(self) -> Mapping[int, str]:
        """Returns all statuses with which the endpoint can respond, with their meanings."""
        done = self.success or (200 if self.method == "GET" else 204)
        missing = _MISSING.get(self.resource)
        return {
            done: "done",
            **ALWAYS,
            **({304: "the ETag matches If-None-Match"} if self.tagged else {}),
            **({404: missing} if missing else {}),
            **self.refusals,
        }


@dataclass(frozen=True, slots=True)
class WebSocketEndpoint(Endpoint):
    """An endpoint of WebSockets, which needs no broker in its process."""

    handler: WebSocketHandler


E = TypeVar("E", bound=Endpoint)
ALWAYS: Mapping[int, str] = {
    400: "a parameter or the body is invalid",
    401: "the client is not authenticated, or not allowed",
    403: "the client is not allowed, or the request comes from a foreign page",
    412: "a name is invalid, or a value is out of range",
    500: "the operation failed in the broker",
    503: "the broker is starting or stopping",
}
"""Statuses that every endpoint can return, with their meanings."""
_SET_BY_SOMEBODY: frozenset[Operation] = frozenset(
    (
        BrokerOperation.GET_CONFIGURATION,
        BrokerOperation.GET_QUOTA,
        ClusterOperation.LIST_CLUSTERS,
        ClusterOperation.GET_CLUSTER,
        ClusterOperation.GET_PEERS,
        ClusterOperation.LIST_RESOURCE_GROUPS,
        ClusterOperation.GET_RESOURCE_GROUP,
        ClusterOperation.GET_RACKS,
        ClusterOperation.GET_ISOLATION,
        ClusterOperation.GET_FAILURE_DOMAIN,
        TenantOperation.LIST_TENANTS,
        TenantOperation.GET_TENANT,
        TenantOperation.LIST_NAMESPACES,
        NamespaceOperation.GET_BUNDLE,
        NamespaceOperation.GET_BUNDLE_QUOTA,
        NamespaceOperation.GET_PERMISSION,
        NamespaceOperation.GET_METADATA,
        TopicOperation.GET_PERMISSION,
        TopicOperation.GET_METADATA,
        TopicOperation.GET_SCHEMA,
    )
)
"""Operations, other than operations on policies, whose responses have an ``ETag``."""
_MISSING: Mapping[Resource, str] = {
    Resource.CLUSTER: "the cluster does not exist",
    Resource.TENANT: "the tenant does not exist",
    Resource.NAMESPACE: "the namespace does not exist",
    Resource.TOPIC: "the topic or namespace does not exist",
    Resource.SUBSCRIPTION: "the subscription, topic or namespace does not exist",
    Resource.READ_PLAN: "the read plan does not exist",
}


def resource_of(path: str) -> Resource:
    """Returns the innermost resource in a path pattern."""
    names = [piece[1:-1] for piece in _pieces(path) if piece.startswith("{")]
    if "topic" in names:
        return Resource.SUBSCRIPTION if "subscription" in names else Resource.TOPIC
    for name, resource in _OUTER:
        if name in names:
            return resource
    return Resource.BROKER if _of_broker(path) else Resource.NONE


_OUTER = (
    ("namespace", Resource.NAMESPACE),
    ("tenant", Resource.TENANT),
    ("cluster", Resource.CLUSTER),
    ("plan", Resource.READ_PLAN),
)


def _of_broker(path: str) -> bool:
    return path.startswith(
        (
            "/metrics",
            "/admin/v2/broker",
            "/admin/v2/proxy-stats",
            "/admin/v2/resource-quotas",
            "/admin/v2/magnetar/snapshots",
            "/admin/v2/magnetar/storage",
            "/admin/v3/transactions",
        )
    )


@dataclass(frozen=True, slots=True)
class Found(Generic[E]):
    endpoint: E
    variables: dict[str, str]


_Decoder = Callable[[str], str]


def _decoder(name: str, names: Sequence[str], endpoint: Endpoint) -> _Decoder:
    """Returns the function that decodes the text of a path variable, that is, undoes the encoding that
    Pulsar's clients apply.
    """
    if name == "topic":
        return decode_path_piece
    if name == "subscription" and "topic" in names:
        return decode_path_piece if endpoint.upgrades else decode_subscription_piece
    return unquote


@dataclass(slots=True)
class _Node(Generic[E]):
    fixed: dict[str, _Node[E]] = field(default_factory=dict)
    variable: _Node[E] | None = None
    methods: dict[str, tuple[E, dict[str, _Decoder]]] = field(default_factory=dict)
    """Endpoints by method, with the decoder of each variable in the order of the path."""


class Router(Generic[E]):
    """Finds the endpoint for a path. If several patterns match, a pattern with a fixed segment takes
    precedence over one with a variable.
    """

    def __init__(self, endpoints: Iterable[E]) -> None:
        self._root: _Node[E] = _Node()
        for endpoint in endpoints:
            for path in (endpoint.path, *endpoint.aliases):
                self._add(path, endpoint)

    def _add(self, path: str, endpoint: E) -> None:
        node = self._root
        names: list[str] = []
        for piece in _pieces(path):
            if piece.startswith("{"):
                names.append(piece[1:-1])
                following = node.variable
            else:
                following = node.fixed.get(piece)
            if following is None:
                following = _Node()
                if piece.startswith("{"):
                    node.variable = following
                else:
                    node.fixed[piece] = following
            node = following
        if endpoint.method in node.methods:
            raise ValueError(f"two endpoints for {endpoint.method} {path}")
        node.methods[endpoint.method] = (endpoint, {name: _decoder(name, names, endpoint) for name in names})

    def find(self, method: str, path: str) -> Found[E] | frozenset[str]:
        """Returns the endpoint for a method and a path. If there is none, returns the methods that the path
        supports (empty: the path is unknown). HEAD is served by the endpoints for GET.
        """
        wanted = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for node, values in _matches(self._root, _pieces(path), 0, ()):
            entry = node.methods.get(wanted)
            if entry is not None:
                endpoint, decoders = entry
                pieces = zip(decoders.items(), values, strict=True)
                given = {name: decode(piece) for (name, decode), piece in pieces}
                return Found(endpoint, {**endpoint.constants, **given})
            allowed.update(node.methods)
        return frozenset(allowed)


def _pieces(path: str) -> list[str]:
    """Returns the segments of a path; a slash at the end is ignored."""
    pieces = path.split("/")[1:]
    if pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _matches(
    node: _Node[E], pieces: list[str], index: int, values: tuple[str, ...]
) -> Iterator[tuple[_Node[E], tuple[str, ...]]]:
    """Yields all patterns below ``node`` that match the path, each with the values of its variables; the best
    match comes first.

    :param index: the index of the first piece of the path that ``node`` has not matched yet
    :param values: the values of the variables in the pieces before ``index``
    """
    if index == len(pieces):
        if node.methods:
            yield node, values
        return
    piece = pieces[index]
    fixed = node.fixed.get(piece)
    if fixed is not None:
        yield from _matches(fixed, pieces, index + 1, values)
    if node.variable is not None and piece:
        yield from _matches(node.variable, pieces, index + 1, (*values, piece))


_UNAUTHORIZED: frozenset[Operation] = frozenset(
    {
        NamespaceOperation.CREATE_NAMESPACE,
        NamespaceOperation.DELETE_NAMESPACE,
        NamespaceOperation.GET_METADATA,
        NamespaceOperation.UPDATE_METADATA,
        NamespaceOperation.DELETE_METADATA,
        NamespaceOperation.UNLOAD,
        NamespaceOperation.UPDATE_MIGRATION,
        NamespaceOperation.PACKAGES,
        NamespaceOperation.GET_BUNDLE_QUOTA,
        NamespaceOperation.UPDATE_BUNDLE_QUOTA,
        NamespaceOperation.GET_RESOURCE_AVAILABILITY,
        *(
            PolicyOperation(name, write)
            for name in (PolicyName.BOOKIE_AFFINITY, PolicyName.MAX_MESSAGE_SIZE)
            for write in (False, True)
        ),
    }
)
"""Operations on namespaces and policies that are refused with status 401 if permission is missing; other
operations on namespaces and policies are refused with 403.
"""


def is_refused_as_unauthorized(operation: Operation, resource: Resource) -> bool:
    """Whether a request without permission is answered with 401, and not 403.

    In Pulsar, the status depends on the operation.
    """
    if isinstance(operation, (ClusterOperation, BrokerOperation, TenantOperation)):
        return True
    if isinstance(operation, TopicOperation):
        return operation not in _FORBIDDEN
    if operation == _SETS_DELAYS:
        return resource is Resource.NAMESPACE
    return operation in _UNAUTHORIZED
