"""
calls to receive are refused
['0', '1', '2', '3', '4']
paused: 0 more
resumed: 1 more
"""

import queue

import pulsar

client = pulsar.Client(URL)
got = queue.Queue()


def listener(consumer, message):
    got.put(message.data().decode())
    consumer.acknowledge(message)


consumer = client.subscribe(TOPIC, "listening", message_listener=listener)
try:
    consumer.receive(100)
except pulsar.InvalidConfiguration:
    print("calls to receive are refused")
producer = client.create_producer(TOPIC)
for i in range(5):
    producer.send(b"%d" % i)
print([got.get(timeout=20) for _ in range(5)])
consumer.pause_message_listener()
producer.send(b"later")
try:
    print("paused:", got.get(timeout=0.3))
except queue.Empty:
    print("paused: 0 more")
consumer.resume_message_listener()
got.get(timeout=20)
print("resumed: 1 more")
client.close()
