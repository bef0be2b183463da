"""
now
later, at least 500 ms after it was published: True
"""

import time
from datetime import timedelta

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
producer = client.create_producer(TOPIC)
producer.send(b"later", deliver_after=timedelta(milliseconds=500))
producer.send(b"now")
print(consumer.receive(20000).data().decode())
msg = consumer.receive(20000)
# Clocks may differ by a few milliseconds.
late = time.time() * 1000 - msg.publish_timestamp() > 450
print(f"{msg.data().decode()}, at least 500 ms after it was published: {late}")
client.close()
