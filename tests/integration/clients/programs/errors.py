"""
Pulsar error: TimeOut
Pulsar error: ConsumerBusy
Pulsar error: InvalidTopicName
Pulsar error: TopicNotFound
Pulsar error: MessageTooBig
Pulsar error: AlreadyClosed
Pulsar error: ResultCumulativeAcknowledgementNotAllowedError
all are PulsarException
"""

import pulsar

client = pulsar.Client(URL)
consumer = client.subscribe(TOPIC, "s")
shared = client.subscribe(TOPIC, "shared", pulsar.ConsumerType.Shared)
producer = client.create_producer(TOPIC)
closed = client.create_producer(TOPIC)
closed.close()
producer.send(b"x")
message = shared.receive(20000)
consumer.acknowledge(consumer.receive(20000))
attempts = [
    lambda: consumer.receive(timeout_millis=50),
    lambda: client.subscribe(TOPIC, "s"),
    lambda: client.create_producer("persistent://too/few"),
    lambda: client.create_producer("persistent://no-tenant/at/all"),
    lambda: producer.send(b"x" * (6 * 1024 * 1024)),
    lambda: closed.send(b"x"),
    lambda: shared.acknowledge_cumulative(message),
]
kinds = []
for attempt in attempts:
    try:
        attempt()
    except Exception as e:
        print(e)
        kinds.append(isinstance(e, pulsar.PulsarException))
print("all are PulsarException" if all(kinds) else kinds)
client.close()
