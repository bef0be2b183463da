"""
2 attempts
dead letter: poison
from topic: True
"""

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(
    TOPIC,
    "s",
    pulsar.ConsumerType.Shared,
    negative_ack_redelivery_delay_ms=100,
    dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, f"{TOPIC}-dead", "graveyard"),
)
dead = client.subscribe(f"{TOPIC}-dead", "graveyard")
client.create_producer(TOPIC).send(b"poison")
attempts = 0
try:
    while True:
        consumer.negative_acknowledge(consumer.receive(2000))
        attempts += 1
except pulsar.Timeout:
    print(attempts, "attempts")
msg = dead.receive(20000)
print("dead letter:", msg.data().decode())
print("from topic:", msg.properties().get("REAL_TOPIC", "").endswith(TOPIC))
client.close()
