"""
topic: the pattern
list: ['a', 'b']
pattern: ['a', 'b']
acknowledged by id: 0 left
"""

import re

import pulsar

client = pulsar.Client(URL)
topics = [f"{TOPIC}-{name}" for name in "ab"]
by_list = client.subscribe(topics, "list")
by_pattern = client.subscribe(re.compile(f"{TOPIC}-.*"), "pattern", pattern_auto_discovery_period=1)
print("topic:", "the pattern" if by_pattern.topic() == f"{TOPIC}-.*" else by_pattern.topic())
for topic in topics:
    client.create_producer(topic).send(topic[-1].encode())
for name, consumer in (("list", by_list), ("pattern", by_pattern)):
    messages = [consumer.receive(20000) for _ in topics]
    print(f"{name}:", sorted(m.data().decode() for m in messages))
    for m in messages:
        stored = m.message_id().serialize()
        consumer.acknowledge(pulsar.MessageId.deserialize(stored, topic=m.topic_name()))
    consumer.close()
again = client.subscribe(topics, "list")
try:
    again.receive(300)
except pulsar.Timeout:
    print("acknowledged by id: 0 left")
client.close()
