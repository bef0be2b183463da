"""Answers lookups, partition metadata and topic lists with requests to brokers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from magnetar.client.exceptions import Timeout
from magnetar.client.timing import within
from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
)
from magnetar.proxy.broker_connection import ANSWERS, BrokerLost, BrokerRefused
from magnetar.proxy.brokers import BrokerTarget, TargetDenied, target_of_url
from magnetar.proxy.service import ProxyService

if TYPE_CHECKING:
    from magnetar.proxy.client_connection import ClientConnection


log = logging.getLogger(__name__)

MAX_REDIRECTS = 10
REQUESTS = {
    BaseCommand.LOOKUP: "lookupTopic",
    BaseCommand.PARTITIONED_METADATA: "partitionMetadata",
    BaseCommand.GET_TOPICS_OF_NAMESPACE: "getTopicsOfNamespace",
    BaseCommand.GET_SCHEMA: "getSchema",
}
"""Commands that a proxy answers itself, with the name of the field that contains their message."""
LARGE = frozenset({BaseCommand.GET_TOPICS_OF_NAMESPACE, BaseCommand.GET_SCHEMA})
"""Commands whose answers can have megabytes."""
_COUNTS = {
    BaseCommand.LOOKUP: "lookup_requests",
    BaseCommand.PARTITIONED_METADATA: "partitions_metadata_requests",
    BaseCommand.GET_TOPICS_OF_NAMESPACE: "get_topics_of_namespace_requests",
    BaseCommand.GET_SCHEMA: "get_schema_requests",
}
_TOO_MANY = "Too many concurrent lookup and partitionsMetadata requests"


class _Failed(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def answered(service: ProxyService, client: ClientConnection, command: BaseCommand) -> BaseCommand:
    """Returns the answer to a client's request, with the client's request id."""
    kind = command.type
    request_id = getattr(command, REQUESTS[kind]).request_id
    if service.lookups >= service.options.lookups:
        rejected = f"rejected_{_COUNTS[kind]}"
        if hasattr(service.figures, rejected):
            setattr(service.figures, rejected, getattr(service.figures, rejected) + 1)
        return failure(kind, request_id, ServerErrorCode.SERVICE_NOT_READY, _TOO_MANY)
    setattr(service.figures, _COUNTS[kind], getattr(service.figures, _COUNTS[kind]) + 1)
    service.lookups += 1
    try:
        if kind == BaseCommand.LOOKUP and service.options.redirects:
            answer = _redirect(service)
        elif kind == BaseCommand.LOOKUP:
            answer = await _owner(service, client, command)
        else:
            answer = await _of_any(service, lambda target: _ask(service, client, target, command))
    except _Failed as failed:
        return failure(kind, request_id, failed.code, str(failed))
    except BrokerRefused as refused:
        return failure(kind, request_id, refused.code, str(refused))
    except BrokerLost as lost:
        return failure(kind, request_id, ServerErrorCode.SERVICE_NOT_READY, str(lost))
    finally:
        service.lookups -= 1
    getattr(answer, ANSWERS[answer.type]).request_id = request_id
    return answer


async def _of_any(
    service: ProxyService, ask: Callable[[BrokerTarget], Awaitable[BaseCommand]]
) -> BaseCommand:
    """Asks one broker after another until one answers.

    :raises _Failed: no broker answers
    """
    reason = "No broker is available"
    for broker in service.brokers.in_turn():
        target = broker.target(tls=service.options.tls_with_broker)
        if target is None:
            continue
        try:
            return await ask(target)
        except BrokerLost as lost:
            reason = str(lost)
            log.info("broker does not answer", extra={"broker": str(target), "reason": reason})
    raise _Failed(ServerErrorCode.SERVICE_NOT_READY, reason)


async def _ask(
    service: ProxyService, client: ClientConnection, target: BrokerTarget, command: BaseCommand
) -> BaseCommand:
    """Asks a broker.

    :raises BrokerLost: the broker does not answer; other waiting requests on its connection fail, too
    """
    connection = await client.broker(target)

    async def answer() -> BaseCommand:
        answered: BaseCommand = await connection.ask(command, REQUESTS[command.type])
        return answered

    try:
        return await within(service.io.loop, service.options.answer_seconds, answer(), "asking it")
    except Timeout as error:
        connection.abort()
        raise BrokerLost(f"{target} did not answer: {error}") from error


async def _owner(service: ProxyService, client: ClientConnection, command: BaseCommand) -> BaseCommand:
    """Returns the answer to a lookup: the topic's broker, and the instruction to connect through the proxy.

    :raises _Failed: the broker cannot be found
    """
    request = command.lookupTopic
    answer = await _of_any(service, lambda target: _ask(service, client, target, command))
    for _ in range(MAX_REDIRECTS):
        found = answer.lookupTopicResponse
        if answer.type != BaseCommand.LOOKUP_RESPONSE or found.response == CommandLookupTopicResponse.Failed:
            return answer
        url = found.brokerServiceUrlTls if service.options.tls_with_broker else found.brokerServiceUrl
        target = target_of_url(url)
        if target is None:
            kind = "with" if service.options.tls_with_broker else "without"
            raise _Failed(
                ServerErrorCode.SERVICE_NOT_READY, f"The broker of the topic has no address {kind} TLS"
            )
        if found.response == CommandLookupTopicResponse.Connect:
            return _through_proxy(url)
        try:
            service.check_redirect(target)
        except TargetDenied as denied:
            log.warning("lookup refused: its target is not an allowed broker", extra={"reason": str(denied)})
            raise _Failed(
                ServerErrorCode.SERVICE_NOT_READY,
                "The broker that owns the topic is not registered; try again",
            ) from None
        request.authoritative = found.authoritative
        answer = await _ask(service, client, target, command)
    raise _Failed(
        ServerErrorCode.SERVICE_NOT_READY,
        f"The lookup was redirected more than {MAX_REDIRECTS} times; try again",
    )


def _redirect(service: ProxyService) -> BaseCommand:
    """Returns a lookup answer that redirects the client to any broker.

    :raises _Failed: no broker is available
    """
    for broker in service.brokers.in_turn():
        if broker.binary or broker.binary_tls:
            answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
            response = answer.lookupTopicResponse
            response.brokerServiceUrl, response.brokerServiceUrlTls = broker.binary, broker.binary_tls
            response.response = CommandLookupTopicResponse.Redirect
            response.authoritative = response.proxy_through_service_url = False
            return answer
    raise _Failed(ServerErrorCode.SERVICE_NOT_READY, "No broker is available")


def _through_proxy(url: str) -> BaseCommand:
    """Returns a lookup answer with one URL in both fields: the address without TLS, and the address with TLS.

    The client may use TLS to the proxy even if the proxy uses no TLS to the brokers, and vice versa.
    """
    answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    response = answer.lookupTopicResponse
    response.brokerServiceUrl = response.brokerServiceUrlTls = url
    response.response = CommandLookupTopicResponse.Connect
    response.authoritative = True
    response.proxy_through_service_url = True
    return answer


def failure(kind: int, request_id: int, code: int, reason: str) -> BaseCommand:
    """Returns the error answer to a request.

    :param kind: the type of the request's command
    :param code: the ``ServerError``
    """
    if kind == BaseCommand.LOOKUP:
        answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
        response = answer.lookupTopicResponse
        response.response = CommandLookupTopicResponse.Failed
        response.request_id = request_id
        response.error, response.message = code, reason  # type: ignore[assignment]
        return answer
    if kind == BaseCommand.PARTITIONED_METADATA:
        answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
        partitions = answer.partitionMetadataResponse
        partitions.response = CommandPartitionedTopicMetadataResponse.Failed
        partitions.request_id = request_id
        partitions.error, partitions.message = code, reason  # type: ignore[assignment]
        return answer
    answer = BaseCommand(type=BaseCommand.ERROR)
    answer.error.request_id = request_id
    answer.error.error, answer.error.message = code, reason  # type: ignore[assignment]
    return answer
