"""
12582912 bytes as they were: True
"""

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "s", max_pending_chunked_message=2)
producer = client.create_producer(TOPIC, chunking_enabled=True)
content = bytes(range(256)) * (12 * 4096)
producer.send(content)
received = consumer.receive(20000).data()
print(len(received), "bytes as they were:", received == content)
client.close()
