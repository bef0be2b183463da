"""
CompressionType.LZ4 50 messages in order, batched: True
CompressionType.ZLib 50 messages in order, batched: True
CompressionType.ZSTD 50 messages in order, batched: True
CompressionType.SNAPPY 50 messages in order, batched: True
"""

import pulsar
from pulsar import CompressionType

client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "s")
for kind in (CompressionType.LZ4, CompressionType.ZLib, CompressionType.ZSTD, CompressionType.SNAPPY):
    producer = client.create_producer(
        TOPIC, compression_type=kind, batching_enabled=True, batching_max_messages=10
    )
    for i in range(50):
        producer.send_async(b"%d" % i, lambda *_: None)
    producer.flush()
    messages = [consumer.receive(20000) for _ in range(50)]
    in_order = [int(m.data()) for m in messages] == list(range(50))
    batched = any(m.message_id().batch_index() > 0 for m in messages)
    print(kind, len(messages), "messages", "in order," if in_order else "mixed,", f"batched: {batched}")
    producer.close()
client.close()
