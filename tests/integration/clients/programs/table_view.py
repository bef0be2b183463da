"""
{'apple': '3', 'pear': '2'}
apple 3
no plum None
listened ('plum', '4')
3 keys
"""

import queue

import pulsar
from pulsar.schema import StringSchema

client = pulsar.Client(URL)
producer = client.create_producer(TOPIC, schema=StringSchema())
for key, value in (("apple", "1"), ("pear", "2"), ("apple", "3")):
    producer.send(value, partition_key=key)
view = client.create_table_view(TOPIC, schema=StringSchema())
found = {}
view.for_each(found.__setitem__)
print(dict(sorted(found.items())))
print("apple", view.get("apple"))
print("no plum", view.get("plum"))
changes = queue.Queue()
view.for_each_and_listen(lambda key, value: changes.put((key, value)))
producer.send("4", partition_key="plum")
while True:
    change = changes.get(timeout=20)
    if change[0] == "plum":
        print("listened", change)
        break
print(len(view), "keys")
view.close()
client.close()
