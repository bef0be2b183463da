"""
first attempt: task, redelivered 0 times
second attempt: task, redelivered 1 times
"""

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(
    TOPIC, "workers", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100
)
client.create_producer(TOPIC).send(b"task")
for attempt in ("first", "second"):
    msg = consumer.receive(20000)
    print(f"{attempt} attempt: {msg.data().decode()}, redelivered {msg.redelivery_count()} times")
    if attempt == "first":
        consumer.negative_acknowledge(msg)
    else:
        consumer.acknowledge(msg)
client.close()
