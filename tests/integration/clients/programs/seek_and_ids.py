"""
after a seek: 2
by time: 0
inclusive: 2
(1,2,0,3)
equal True, less True
"""

import pulsar
from pulsar import MessageId

client = pulsar.Client(URL)
producer = client.create_producer(TOPIC)
consumer = client.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
ids = [producer.send(b"%d" % i) for i in range(4)]
received = [consumer.receive(20000) for _ in ids]
consumer.seek(ids[1])
print("after a seek:", consumer.receive(20000).data().decode())
consumer.seek(received[0].publish_timestamp() - 60000)
print("by time:", consumer.receive(20000).data().decode())
consumer.close()
consumer = client.subscribe(TOPIC, "s2", start_message_id_inclusive=True)
consumer.seek(MessageId.deserialize(ids[2].serialize()))
print("inclusive:", consumer.receive(20000).data().decode())
print(MessageId(0, 1, 2, 3))
equal = received[0].message_id() == ids[0]
print(f"equal {equal}, less {ids[0] < ids[1]}")
client.close()
