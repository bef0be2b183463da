"""
key k, ordering key o
{'app': 'tutorial', 'n': '1'}
event time 1700000000000
published later: True
topic is right: True
schema version ''
producer me
no value: True
"""

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "s")
producer = client.create_producer(TOPIC, producer_name="me")
producer.send(
    b"x",
    properties={"app": "tutorial", "n": "1"},
    partition_key="k",
    ordering_key="o",
    event_timestamp=1700000000000,
)
producer.send(None, partition_key="k")
msg = consumer.receive(20000)
print(f"key {msg.partition_key()}, ordering key {msg.ordering_key()}")
print(msg.properties())
print("event time", msg.event_timestamp())
print("published later:", msg.publish_timestamp() > msg.event_timestamp())
print("topic is right:", msg.topic_name() == producer.topic() == consumer.topic())
print("schema version", repr(msg.schema_version()))
print("producer", msg.producer_name())
print("no value:", consumer.receive(20000).has_null_value())
client.close()
