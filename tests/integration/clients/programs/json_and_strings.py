"""
hello
ann is 30, likes ['tea']
another schema is refused
"""

import pulsar
from pulsar.schema import Array, Integer, JsonSchema, Record, String, StringSchema


class Person(Record):
    name = String(required=True)
    age = Integer()
    likes = Array(String())


client = pulsar.Client(URL)
words = client.subscribe(f"{TOPIC}-words", "s", schema=StringSchema())
client.create_producer(f"{TOPIC}-words", schema=StringSchema()).send("hello")
print(words.receive(20000).value())
people = client.subscribe(TOPIC, "s", schema=JsonSchema(Person))
client.create_producer(TOPIC, schema=JsonSchema(Person)).send(Person(name="ann", age=30, likes=["tea"]))
person = people.receive(20000).value()
print(f"{person.name} is {person.age}, likes {person.likes}")
try:
    client.create_producer(TOPIC, schema=StringSchema())
except pulsar.IncompatibleSchema:
    print("another schema is refused")
client.close()
