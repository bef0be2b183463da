"""Whom a proxy asks for its clients, and whom not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from magnetar.errors import ServerErrorCode
from magnetar.io.real import real_io
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandLookupTopicResponse
from magnetar.proxy.broker_connection import BrokerLost
from magnetar.proxy.brokers import AllowedTargets, BrokerTarget, NamedBrokers
from magnetar.proxy.lookups import MAX_REDIRECTS, answered
from magnetar.proxy.service import ProxyOptions, ProxyService
from magnetar.security.authentication import NobodyIsAsked

Answer = Callable[[BaseCommand], BaseCommand | Exception | None]
"""None: it is silent."""
TWO = "pulsar://b1:6650,b2:6650"


class Brokers:
    """Connections of a client to brokers that answer by a table."""

    def __init__(self, **answers: Answer) -> None:
        self.asked: list[str] = []
        self._answers = answers

    async def broker(self, target: BrokerTarget) -> Any:
        answer = self._answers.get(target.host)
        if answer is None:
            raise BrokerLost(f"{target} cannot be reached")
        return _Connection(self.asked, target.host, answer)


class _Connection:
    def __init__(self, asked: list[str], name: str, answer: Answer) -> None:
        self._asked, self._name, self._answer = asked, name, answer

    def abort(self) -> None:
        self._asked.append(f"not {self._name}")

    async def ask(self, command: BaseCommand, _field: str) -> BaseCommand:
        self._asked.append(self._name)
        answer = self._answer(command)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


def lookup_answer(kind: int, url: str, *, authoritative: bool = False) -> Answer:
    def give(_command: BaseCommand) -> BaseCommand:
        answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
        answer.lookupTopicResponse.response = kind  # type: ignore[assignment]
        answer.lookupTopicResponse.brokerServiceUrl = url
        answer.lookupTopicResponse.request_id = 99
        answer.lookupTopicResponse.authoritative = authoritative
        return answer

    return give


def connect(url: str) -> Answer:
    return lookup_answer(CommandLookupTopicResponse.Connect, url)


def redirect(url: str) -> Answer:
    return lookup_answer(CommandLookupTopicResponse.Redirect, url, authoritative=True)


def request() -> BaseCommand:
    command = BaseCommand(type=BaseCommand.LOOKUP)
    command.lookupTopic.topic = "t"
    command.lookupTopic.request_id = 7
    return command


def run(work: Callable[[ProxyService], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def whole() -> None:
        io = real_io(asyncio.get_running_loop(), ".")
        named = NamedBrokers(TWO, "", "", "")
        allowed = AllowedTargets(hosts="b*", ports="6650")
        chosen = ProxyOptions(**options)
        await work(ProxyService(io, chosen, named, allowed, io.network, NobodyIsAsked(), None))

    asyncio.run(whole())


def test_a_topic_is_reached_through_the_proxy() -> None:
    async def work(service: ProxyService) -> None:
        found = (
            await answered(service, Brokers(b1=connect("pulsar://b9:6650")), request())
        ).lookupTopicResponse
        assert found.response == CommandLookupTopicResponse.Connect
        assert found.brokerServiceUrl == found.brokerServiceUrlTls == "pulsar://b9:6650"
        assert found.proxy_through_service_url
        assert found.request_id == 7

    run(work)


def test_redirects_are_followed() -> None:
    seen: list[bool] = []

    def last(command: BaseCommand) -> BaseCommand:
        seen.append(command.lookupTopic.authoritative)
        found = connect("pulsar://b3:6650")(command)
        assert isinstance(found, BaseCommand)
        return found

    async def work(service: ProxyService) -> None:
        brokers = Brokers(b1=redirect("pulsar://b3:6650"), b3=last)
        found = (await answered(service, brokers, request())).lookupTopicResponse
        assert found.brokerServiceUrl == "pulsar://b3:6650"
        assert brokers.asked == ["b1", "b3"]
        assert seen == [True]

    run(work)


@pytest.mark.parametrize("url", ["pulsar://evil:6650", "pulsar://b3:22", "nonsense", ""])
def test_redirects_to_what_is_no_broker_are_not(url: str) -> None:
    async def work(service: ProxyService) -> None:
        brokers = Brokers(b1=redirect(url), evil=connect("pulsar://evil:6650"), b3=connect(""))
        found = (await answered(service, brokers, request())).lookupTopicResponse
        assert found.response == CommandLookupTopicResponse.Failed
        assert found.error == ServerErrorCode.SERVICE_NOT_READY
        assert brokers.asked == ["b1"]

    run(work)


def test_redirects_have_an_end() -> None:
    async def work(service: ProxyService) -> None:
        brokers = Brokers(b1=redirect("pulsar://b2:6650"), b2=redirect("pulsar://b1:6650"))
        found = (await answered(service, brokers, request())).lookupTopicResponse
        assert found.response == CommandLookupTopicResponse.Failed
        assert len(brokers.asked) == MAX_REDIRECTS + 1

    run(work)


def test_a_broker_that_is_gone_is_left_for_the_next() -> None:
    async def work(service: ProxyService) -> None:
        lost = Brokers(b1=lambda _command: BrokerLost("gone"), b2=connect("pulsar://b2:6650"))
        assert (await answered(service, lost, request())).lookupTopicResponse.brokerServiceUrl
        assert lost.asked == ["b1", "b2"]
        nobody = (await answered(service, Brokers(), request())).lookupTopicResponse
        assert nobody.error == ServerErrorCode.SERVICE_NOT_READY
        assert service.lookups == 0

    run(work)


def test_a_broker_that_is_silent_is_left_for_the_next() -> None:
    async def work(service: ProxyService) -> None:
        silent = Brokers(b1=lambda _command: None, b2=connect("pulsar://b2:6650"))
        found = (await answered(service, silent, request())).lookupTopicResponse
        assert found.brokerServiceUrl == "pulsar://b2:6650"
        assert silent.asked == ["b1", "not b1", "b2"]
        led = Brokers(b1=lambda _command: None, b2=redirect("pulsar://b1:6650"))
        found = (await answered(service, led, request())).lookupTopicResponse
        assert (found.response, found.request_id) == (CommandLookupTopicResponse.Failed, 7)
        assert "did not answer" in found.message
        assert service.lookups == 0

    run(work, answer_seconds=0.05)


def test_what_a_broker_refuses_is_passed_on_with_the_clients_id() -> None:
    def refuse(_command: BaseCommand) -> BaseCommand:
        answer = BaseCommand(type=BaseCommand.ERROR)
        answer.error.request_id, answer.error.message = 99, "no"
        answer.error.error = ServerErrorCode.AUTHORIZATION  # type: ignore[assignment]
        return answer

    async def work(service: ProxyService) -> None:
        command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
        command.getTopicsOfNamespace.namespace = "public/default"
        command.getTopicsOfNamespace.request_id = 8
        found = (await answered(service, Brokers(b1=refuse), command)).error
        assert (found.request_id, found.error, found.message) == (8, ServerErrorCode.AUTHORIZATION, "no")

    run(work)


def test_more_lookups_than_there_may_be_are_refused() -> None:
    async def work(service: ProxyService) -> None:
        service.lookups = 2
        brokers = Brokers(b1=connect("pulsar://b1:6650"))
        found = (await answered(service, brokers, request())).lookupTopicResponse
        assert found.response == CommandLookupTopicResponse.Failed
        assert brokers.asked == []
        assert service.figures.rejected_lookup_requests == 1

    run(work, lookups=2)


def test_discovery_names_one_broker_after_the_other() -> None:
    async def work(service: ProxyService) -> None:
        found = [(await answered(service, Brokers(), request())).lookupTopicResponse for _ in range(3)]
        assert [each.brokerServiceUrl for each in found] == [
            "pulsar://b1:6650",
            "pulsar://b2:6650",
            "pulsar://b1:6650",
        ]
        assert {each.response for each in found} == {CommandLookupTopicResponse.Redirect}

    run(work, redirects=True)
