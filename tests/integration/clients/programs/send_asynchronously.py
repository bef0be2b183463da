"""
Result.Ok 10
10 different ids
last sequence id 9
"""

import collections

import pulsar

client = pulsar.Client(URL)
producer = client.create_producer(
    TOPIC, block_if_queue_full=True, batching_enabled=True, batching_max_publish_delay_ms=5
)
results = collections.Counter()
ids = set()


def callback(res, msg_id):
    results[res] += 1
    ids.add(str(msg_id))


for i in range(10):
    producer.send_async(b"content-%d" % i, callback)
producer.flush()
producer.close()
for result, count in results.items():
    print(result, count)
print(len(ids), "different ids")
print("last sequence id", producer.last_sequence_id())
client.close()
