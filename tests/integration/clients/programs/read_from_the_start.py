"""
0
1
2
3
4
from the fourth: 4
again: 0
"""

import pulsar

client = pulsar.Client(URL)
producer = client.create_producer(TOPIC)
ids = [producer.send(str(i).encode()) for i in range(5)]
reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
while reader.has_message_available():
    print(reader.read_next().data().decode())
later = client.create_reader(TOPIC, ids[3])
print("from the fourth:", later.read_next(20000).data().decode())
reader.seek(pulsar.MessageId.earliest)
print("again:", reader.read_next(20000).data().decode())
reader.close()
client.close()
