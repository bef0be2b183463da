"""
AutoSplit: 30 messages, each key at one consumer
Sticky: 30 messages, each key at one consumer
"""

import pulsar
from pulsar import BatchingType, ConsumerKeySharedPolicy, ConsumerType, KeySharedMode

client = pulsar.Client(URL)
split = [ConsumerKeySharedPolicy(KeySharedMode.AutoSplit)] * 2
sticky = [
    ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(first, first + 32767)])
    for first in (0, 32768)
]
for name, policies in (("AutoSplit", split), ("Sticky", sticky)):
    consumers = [
        client.subscribe(TOPIC, name, ConsumerType.KeyShared, key_shared_policy=policy) for policy in policies
    ]
    producer = client.create_producer(TOPIC, batching_enabled=True, batching_type=BatchingType.KeyBased)
    for i in range(30):
        producer.send_async(b"%d" % i, lambda *_: None, partition_key=f"key-{i % 6}")
    producer.flush()
    owners, total = {}, 0
    for number, consumer in enumerate(consumers):
        try:
            while True:
                msg = consumer.receive(500)
                owners.setdefault(msg.partition_key(), set()).add(number)
                total += 1
                consumer.acknowledge(msg)
        except pulsar.Timeout:
            pass
    alone = all(len(found) == 1 for found in owners.values()) and len(owners) == 6
    print(f"{name}: {total} messages,", "each key at one consumer" if alone else owners)
    for consumer in consumers:
        consumer.close()
client.close()
