"""
received Hello-0
received Hello-1
received Hello-2
nothing left
"""

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "my-subscription")
producer = client.create_producer(TOPIC)
for i in range(3):
    producer.send(f"Hello-{i}".encode())
for _ in range(3):
    msg = consumer.receive(timeout_millis=20000)
    print(f"received {msg.data().decode()}")
    consumer.acknowledge(msg)
try:
    consumer.receive(timeout_millis=100)
except pulsar.Timeout:
    print("nothing left")
client.close()
