"""Forked processes, the end of the interpreter, and several loops in several threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from server import Server

from magnetar.client import InitialPosition, InvalidConfiguration, aio

WAIT = 20_000
SECONDS = 60


def ran(program: str, *arguments: str) -> list[str]:
    """Runs a program that must print nothing to standard error; returns the lines of its output."""
    command = [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", "-c", program, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.splitlines()


BLOCKING = """
import os, sys
from magnetar.client import Client, InitialPosition

client = Client(sys.argv[1])
producer = client.create_producer("forked", block_if_queue_full=True, max_pending_messages=1)
consumer = client.subscribe("forked", "s", initial_position=InitialPosition.Earliest)
producer.send(b"1")
consumer.acknowledge(consumer.receive(20_000))
child = os.fork()
if not child:
    calls = [
        lambda: producer.send(b"x"),
        lambda: producer.send_async(b"x", print),
        lambda: consumer.receive(20_000),
        lambda: consumer.acknowledge(message),
        lambda: client.create_producer("forked"),
    ]
    message = None
    for call in calls:
        try:
            call()
            print("no error")
        except Exception as error:
            print(type(error).__name__, str(error))
    client.close()
    with Client(sys.argv[1]) as own:
        own.create_producer("forked").send(b"child")
    del producer, consumer, client
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(consumer.receive(20_000).data())
producer.send(b"2")
print(consumer.receive(20_000).data())
client.close()
"""
ASYNCIO = """
import asyncio, os, sys
from magnetar.client.aio import Client, InitialPosition

async def run():
    async with Client(sys.argv[1]) as client:
        topic = "forked-asyncio"
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        child = os.fork()
        if not child:
            async def in_child():
                for call in (
                    lambda: producer.send(b"x"),
                    lambda: consumer.receive(20_000),
                    lambda: client.create_producer(topic),
                ):
                    try:
                        await call()
                        print("no error")
                    except Exception as error:
                        print(type(error).__name__, str(error))
                await client.close()
                async with Client(sys.argv[1]) as own:
                    await (await own.create_producer(topic)).send(b"child")
            asyncio._set_running_loop(None)
            asyncio.new_event_loop().run_until_complete(in_child())
            sys.stdout.flush()
            os._exit(0)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        print((await consumer.receive(20_000)).data())
        await producer.send(b"2")
        print((await consumer.receive(20_000)).data())

asyncio.run(run())
"""


def test_a_forked_process_is_told_to_make_its_own_client(server: Server) -> None:
    lines = ran(BLOCKING, server.url)
    assert lines[-2:] == ["b'child'", "b'2'"]
    assert len(lines) == 7
    assert all(
        line.startswith("AlreadyClosed the client was made before this process") for line in lines[:-2]
    )


def test_a_forked_asyncio_program(server: Server) -> None:
    lines = ran(ASYNCIO, server.url)
    assert lines[-2:] == ["b'child'", "b'2'"]
    assert len(lines) == 5
    assert all(line.startswith("AlreadyClosed the client was made before") for line in lines[:-2])


UNCLOSED = """
import sys, threading
from magnetar.client import Client

handled = threading.Event()
client = Client(sys.argv[1], stats_interval_seconds=0.01)
consumer = client.subscribe("unclosed", "s", message_listener=lambda consumer, message: handled.set())
producer = client.create_producer("unclosed", block_if_queue_full=True)
producer.send(b"x")
assert handled.wait(20)
producer.send_async(b"y", lambda *_: None)
"""
UNCLOSED_ASYNCIO = """
import asyncio, sys
from magnetar.client.aio import Client

async def run():
    client = Client(sys.argv[1])
    consumer = await client.subscribe("unclosed", "t", message_listener=lambda *_: None)
    producer = await client.create_producer("unclosed")
    await producer.send(b"x")

asyncio.run(run())
"""


@pytest.mark.parametrize("program", [UNCLOSED, UNCLOSED_ASYNCIO])
def test_a_program_ends_without_closing_its_client(server: Server, program: str) -> None:
    assert ran(program, server.url) == []


def test_loops_in_several_threads(server: Server, topic: str) -> None:
    failures: list[BaseException] = []

    async def work(index: int) -> None:
        async with aio.Client(server.url) as client:
            producer = await client.create_producer(f"{topic}-{index}")
            consumer = await client.subscribe(
                producer.topic(), "s", initial_position=InitialPosition.Earliest
            )
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(200)))
            assert [(await consumer.receive(WAIT)).data() for _ in range(200)] == [
                b"%d" % number for number in range(200)
            ]

    def run(index: int) -> None:
        try:
            asyncio.run(work(index))
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_another_loop_is_refused_by_name(server: Server, topic: str) -> None:
    async def make() -> aio.Client:
        return aio.Client(server.url)

    with asyncio.Runner() as runner:
        client = runner.run(make())
        with pytest.raises(InvalidConfiguration, match="the client belongs to another event loop"):
            asyncio.run(client.create_producer(topic))
        runner.run(client.close())
