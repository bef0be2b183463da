"""
received hello 0
received hello 1
received hello 2
read hello 0
AlreadyClosed
"""

import asyncio

import pulsar
import pulsar.asyncio


async def main():
    client = pulsar.asyncio.Client(URL)
    consumer = await client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = await client.create_producer(TOPIC)
    await asyncio.gather(*(producer.send(f"hello {i}".encode()) for i in range(3)))
    for _ in range(3):
        msg = await consumer.receive()
        print("received", msg.data().decode())
        await consumer.acknowledge(msg)
    reader = await client.create_reader(TOPIC, pulsar.MessageId.earliest)
    print("read", (await reader.read_next()).data().decode())
    await producer.close()
    try:
        await producer.send(b"too late")
    except pulsar.asyncio.PulsarException as error:
        print(error.error().name)
    await client.close()


asyncio.run(main())
