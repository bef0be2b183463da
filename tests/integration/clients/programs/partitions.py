"""
4 partitions
keys: [0, 0, 3, 2, 2, 2]
router: [3, 3, 3]
9 received, 3 of them from partition 3 by the router
"""

import pulsar

client = pulsar.Client(URL)
PARTITION(4)
print(len(client.get_topic_partitions(TOPIC)), "partitions")
consumer = client.subscribe(TOPIC, "s")
producer = client.create_producer(TOPIC, lazy_start_partitioned_producers=True)
print("keys:", [producer.send(b"k", partition_key=key).partition() for key in "abcdef"])
routed = client.create_producer(
    TOPIC,
    message_routing_mode=pulsar.PartitionsRoutingMode.CustomPartition,
    message_router=lambda message, count: int(message.data()) % count,
)
print("router:", [routed.send(b"%d" % number).partition() for number in (3, 7, 11)])
received = [consumer.receive(20000) for _ in range(9)]
chosen = [m for m in received if m.data().isdigit() and m.message_id().partition() == 3]
print(f"{len(received)} received, {len(chosen)} of them from partition 3 by the router")
client.close()
