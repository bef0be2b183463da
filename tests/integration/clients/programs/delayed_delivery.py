"""
now
later
"""

from datetime import timedelta

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
producer = client.create_producer(TOPIC)
producer.send(b"later", deliver_after=timedelta(milliseconds=1500))
producer.send(b"now")
for _ in range(2):
    msg = consumer.receive(20000)
    print(msg.data().decode())
    consumer.acknowledge(msg)
client.close()
