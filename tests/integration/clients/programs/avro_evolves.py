"""
1 None
2 red
"""

from enum import Enum

import pulsar
from pulsar.schema import AvroSchema, CustomEnum, Integer, Record, String


class Color(Enum):
    red = 1
    blue = 2


def first():
    class Car(Record):
        wheels = Integer()
        maker = String(required_default=True)

    return Car


class Car(Record):
    wheels = Integer()
    color = CustomEnum(Color, required_default=True)


client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "s")
Old = first()
client.create_producer(TOPIC, schema=AvroSchema(Old)).send(Old(wheels=1, maker="x"))
consumer.close()
producer = client.create_producer(TOPIC, schema=AvroSchema(Car))
producer.send(Car(wheels=2, color=Color.red))
consumer = client.subscribe(TOPIC, "s", schema=AvroSchema(Car))
for _ in range(2):
    car = consumer.receive(20000).value()
    print(car.wheels, car.color.name if car.color else None)
client.close()
