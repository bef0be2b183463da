"""
4
4
2
0
"""

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(
    TOPIC, "s", batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(4, 1024 * 1024, 1000)
)
producer = client.create_producer(TOPIC)
for i in range(10):
    producer.send(b"%d" % i)
for _ in range(4):
    msgs = consumer.batch_receive()
    print(len(msgs))
    for msg in msgs:
        consumer.acknowledge(msg)
client.close()
