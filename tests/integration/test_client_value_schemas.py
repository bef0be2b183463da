"""Values: producers and consumers whose schema encodes and decodes them, beside the official client."""

from __future__ import annotations

import asyncio
import time as clock
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime, time
from enum import Enum
from queue import SimpleQueue

import pulsar
import pytest
from server import Server

from magnetar.admin_client import AdminClient
from magnetar.client import (
    Client,
    ConsumerInterceptor,
    InitialPosition,
    InvalidMessage,
    Message,
    MessageId,
    ProducerSchema,
    PulsarException,
    Result,
    ValueSchema,
    aio,
)
from magnetar.client.schemas import (
    Array,
    AvroSchema,
    CustomEnum,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueSchema,
    PrimitiveSchema,
    ProtobufNativeSchema,
    Record,
    String,
)
from magnetar.protocol.pulsar_api_pb2 import MessageIdData

WAIT = 20_000
SECONDS = 30.0


class Colour(Enum):
    RED = 1
    BLUE = 2


class Line(Record):
    item = String()


class Order(Record):
    _avro_namespace = "shop"
    number = Integer(required=True)
    colour = CustomEnum(Colour)
    lines = Array(Line())


def order(number: int) -> Order:
    return Order(number=number, colour=Colour.BLUE, lines=[Line(item=f"item {number}")])


SCHEMAS: dict[str, tuple[ValueSchema, object]] = {
    "avro": (AvroSchema(Order), order(1)),
    "json": (JsonSchema(Order), order(1)),
    "dictionary": (
        AvroSchema(None, {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "long"}]}),
        {"x": 7},
    ),
    "protobuf": (ProtobufNativeSchema(MessageIdData), MessageIdData(ledgerId=1, entryId=2)),
    "STRING": (PrimitiveSchema("STRING"), "grün"),
    "BOOLEAN": (PrimitiveSchema("BOOLEAN"), True),
    "INT8": (PrimitiveSchema("INT8"), -5),
    "INT16": (PrimitiveSchema("INT16"), 300),
    "INT32": (PrimitiveSchema("INT32"), -70_000),
    "INT64": (PrimitiveSchema("INT64"), 1 << 40),
    "FLOAT": (PrimitiveSchema("FLOAT"), 0.5),
    "DOUBLE": (PrimitiveSchema("DOUBLE"), 0.1),
    "BYTES": (PrimitiveSchema("BYTES"), b"\0\xff"),
    "DATE": (PrimitiveSchema("DATE"), date(1969, 7, 20)),
    "TIME": (PrimitiveSchema("TIME"), time(20, 17, 40, 5000)),
    "TIMESTAMP": (PrimitiveSchema("TIMESTAMP"), datetime(1969, 7, 20, 20, 17, 40, 5000, UTC)),
    "INSTANT": (PrimitiveSchema("INSTANT"), datetime(1969, 7, 20, 20, 17, 40, 1, UTC)),
    "LOCAL_DATE": (PrimitiveSchema("LOCAL_DATE"), date(9999, 12, 31)),
    "LOCAL_TIME": (PrimitiveSchema("LOCAL_TIME"), time(23, 59, 59, 999_999)),
    "LOCAL_DATE_TIME": (PrimitiveSchema("LOCAL_DATE_TIME"), datetime(1, 1, 1, 0, 0, 0, 1)),
    "inline pair": (KeyValueSchema(PrimitiveSchema("STRING"), JsonSchema(Order)), KeyValue("k", order(1))),
}


def run(url: str, work: Callable[[aio.Client], Awaitable[None]]) -> None:
    async def with_client() -> None:
        async with aio.Client(url) as client, asyncio.timeout(SECONDS):
            await work(client)

    asyncio.run(with_client())


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.mark.parametrize("kind", SCHEMAS)
def test_values_arrive_as_they_were_sent(server: Server, client: Client, topic: str, kind: str) -> None:
    schema, value = SCHEMAS[kind]
    consumer = client.subscribe(topic, "s", schema=schema)
    producer = client.create_producer(topic, schema=schema)
    producer.send(value, partition_key="k")
    outcomes: list[Result] = []
    producer.send_async(value, lambda result, _id: outcomes.append(result))
    producer.flush()
    assert outcomes == [Result.Ok]
    for _ in range(2):
        message = consumer.receive(WAIT)
        assert message.value() == value
        assert message.data() == schema.encode(value)
        consumer.acknowledge(message)

    async def work(client: aio.Client) -> None:
        for _ in range(2):
            producer = await client.create_producer(topic, schema=schema)
            await producer.send(value)
            producer.send_async(value, lambda result, _id: outcomes.append(result))
            await producer.flush()
            assert outcomes[-1] == Result.Ok
        reader = await client.create_reader(topic, MessageId.latest, schema=schema)
        await producer.send(value)
        assert (await reader.read_next(WAIT)).value() == value

    run(server.url, work)


def test_separated_keys_are_keys_of_messages(server: Server, client: Client, topic: str) -> None:
    AdminClient(server.http_url).create_partitioned_topic(topic, 3)
    schema = KeyValueSchema(PrimitiveSchema("STRING"), PrimitiveSchema("INT32"), separated=True)
    consumer = client.subscribe(topic, "s", schema=schema)
    producer = client.create_producer(topic, schema=schema, batching_enabled=True)
    for number in range(12):
        producer.send_async(
            KeyValue(f"k{number % 4}", number), lambda _result, _id: None, properties={"n": "1"}
        )
    producer.flush()
    partitions: dict[bytes | None, set[int]] = {}
    numbers: dict[object, list[int]] = {}
    for _ in range(12):
        message = consumer.receive(WAIT)
        pair = message.value()
        assert isinstance(pair, KeyValue)
        assert message.partition_key_bytes() == str(pair.key).encode()
        assert message.has_base64_encoded_key()
        assert message.properties() == {"n": "1"}
        partitions.setdefault(message.partition_key_bytes(), set()).add(message.message_id().partition())
        numbers.setdefault(pair.key, []).append(message.value().value)
    assert numbers == {f"k{key}": list(range(key, 12, 4)) for key in range(4)}
    assert {len(each) for each in partitions.values()} == {1}
    with pytest.raises(ValueError, match="the payload contains only the value"):
        schema.decode(message.data())

    async def work(client: aio.Client) -> None:
        producer = await client.create_producer(topic, schema=schema)
        await producer.send(KeyValue("k", None))
        await producer.send(KeyValue(None, 5))

    run(server.url, work)
    messages = [consumer.receive(WAIT) for _ in range(2)]
    assert {(message.value(), message.has_null_value()) for message in messages} == {
        (KeyValue("k", None), True),
        (KeyValue(None, 5), False),
    }


def test_several_topics_partitions_and_interceptors(server: Server, client: Client, topic: str) -> None:
    AdminClient(server.http_url).create_partitioned_topic(topic, 3)
    schema = AvroSchema(Order)

    class Sees(ConsumerInterceptor):
        values: list[object] = []  # noqa: RUF012 - for one test

        def before_consume(self, consumer: aio.Consumer, message: Message) -> Message:
            self.values.append(message.value())
            return message

    with client.create_producer(topic, schema=schema) as producer:
        for number in range(6):
            producer.send(order(number))
    wanted = {number: order(number) for number in range(6)}
    everything = client.subscribe_to_topics(
        [topic, f"{topic}-other"],
        "s",
        schema=schema,
        initial_position=InitialPosition.Earliest,
        interceptors=[Sees()],
    )
    found = [everything.receive(WAIT).value() for _ in wanted]
    assert {each.number: each for each in found} == wanted
    assert Sees.values == found

    async def work(client: aio.Client) -> None:
        producer = await client.create_producer(topic, schema=schema)
        consumer = await client.subscribe(
            topic, "t", schema=schema, initial_position=InitialPosition.Earliest, receiver_queue_size=0
        )
        await asyncio.gather(*(producer.send(order(number)) for number in range(6)))
        values = [(await consumer.receive(WAIT)).value().number for _ in range(12)]
        assert sorted(values) == sorted([*wanted, *wanted])

    run(server.url, work)


@pytest.mark.parametrize("queue", [0, 1, 1000])
def test_avro_is_read_with_the_schema_of_its_writer(client: Client, topic: str, queue: int) -> None:
    def version(*fields: tuple[str, object]) -> AvroSchema:
        described = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields]
        return AvroSchema(None, {"type": "record", "name": "Price", "fields": described})

    first, second = version(("cents", "long")), version(("currency", "string"), ("cents", "long"))
    consumer = client.subscribe(
        topic, "s", schema=first, initial_position=InitialPosition.Earliest, receiver_queue_size=queue
    )
    with client.create_producer(topic, schema=first) as producer:
        producer.send({"cents": 1})
    with client.create_producer(topic, schema=second) as producer:
        for cents in range(2, 5):
            producer.send({"currency": "CHF", "cents": cents})
    assert [consumer.receive(WAIT).value() for _ in range(4)] == [{"cents": cents} for cents in range(1, 5)]
    reader = client.create_reader(topic, MessageId.earliest, schema=second)
    assert [reader.read_next(WAIT).value() for _ in range(2)] == [
        {"currency": None, "cents": 1},
        {"currency": "CHF", "cents": 2},
    ]


@pytest.mark.parametrize("separated", [True, False])
def test_both_parts_of_a_pair_are_read_with_the_schemas_of_their_writer(
    client: Client, topic: str, separated: bool
) -> None:
    def version(*fields: str) -> AvroSchema:
        described = [{"name": name, "type": ["null", "long"], "default": None} for name in fields]
        return AvroSchema(None, {"type": "record", "name": "Price", "fields": described})

    first = KeyValueSchema(version("cents"), version("cents"), separated=separated)
    second = KeyValueSchema(version("item", "cents"), version("rate", "cents"), separated=separated)
    consumer = client.subscribe(topic, "s", schema=first, initial_position=InitialPosition.Earliest)
    client.create_producer(topic, schema=first).send(KeyValue({"cents": 1}, {"cents": 2}))
    pair = KeyValue({"item": 3, "cents": 4}, {"rate": 5, "cents": 6})
    client.create_producer(topic, schema=second).send(pair)
    assert [consumer.receive(WAIT).value() for _ in range(2)] == [
        KeyValue({"cents": 1}, {"cents": 2}),
        KeyValue({"cents": 4}, {"cents": 6}),
    ]


REFUSED: dict[str, tuple[object, str]] = {
    "BYTES": ("text", "must be bytes"),
    "DATE": (datetime(2000, 1, 1), "must be a datetime.date"),
    "TIME": (time(1, tzinfo=UTC), "must have no time zone"),
    "TIMESTAMP": (datetime(2000, 1, 1), "requires a time zone"),
    "INSTANT": (date(2000, 1, 1), "must be a datetime.datetime"),
    "LOCAL_DATE": ("2000-01-01", "must be a datetime.date"),
    "LOCAL_TIME": (1, "must be a datetime.time"),
    "LOCAL_DATE_TIME": (datetime(2000, 1, 1, tzinfo=UTC), "must have no time zone"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_values_that_a_primitive_schema_cannot_have(client: Client, topic: str, kind: str) -> None:
    value, reason = REFUSED[kind]
    with pytest.raises(InvalidMessage, match=reason):
        client.create_producer(topic, schema=PrimitiveSchema(kind)).send(value)


def test_dates_that_python_does_not_have(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=PrimitiveSchema("LOCAL_DATE"))
    client.create_producer(topic).send((1 << 40).to_bytes(8))
    with pytest.raises(InvalidMessage, match="the content does not match the consumer's schema"):
        consumer.receive(WAIT).value()


def test_what_contradicts_a_pair_is_refused(client: Client, topic: str) -> None:
    separated = KeyValueSchema(PrimitiveSchema("STRING"), PrimitiveSchema("INT32"), separated=True)
    producer = client.create_producer(topic, schema=separated)
    for options in ({"partition_key": ""}, {"partition_key_bytes": b"k"}, {"null_partition_key": True}):
        with pytest.raises(InvalidMessage, match=f"{next(iter(options))} must not be set"):
            producer.send(KeyValue("k", 1), **options)
    for value in ("text", ("k", 1), 5):
        with pytest.raises(InvalidMessage, match="the value must be a KeyValue"):
            producer.send(value)
    with pytest.raises(InvalidMessage, match="the value does not match"):
        producer.send(KeyValue("k", "text"))
    inline = KeyValueSchema(PrimitiveSchema("STRING"), PrimitiveSchema("INT32"))
    consumer = client.subscribe(f"{topic}-i", "s", schema=inline)
    client.create_producer(f"{topic}-i", schema=inline).send(KeyValue("k", 1), partition_key="other")
    message = consumer.receive(WAIT)
    assert (message.value(), message.partition_key()) == (KeyValue("k", 1), "other")


def test_values_of_the_official_client(server: Server, client: Client, topic: str) -> None:
    class Parcel(pulsar.schema.Record):  # type: ignore[misc]
        number = pulsar.schema.Integer(required=True)

    class Own(Record):
        number = Integer(required=True)

    Own.__name__ = "Parcel"
    official = pulsar.Client(server.url)
    try:
        for kind, own in (("AvroSchema", AvroSchema(Own)), ("JsonSchema", JsonSchema(Own))):
            name = f"{topic}-{kind}"
            schema = getattr(pulsar.schema, kind)(Parcel)
            theirs = official.subscribe(name, "theirs", schema=schema)
            ours = client.subscribe(name, "ours", schema=own)
            official.create_producer(name, schema=schema).send(Parcel(number=1))
            client.create_producer(name, schema=own).send(Own(number=2))
            assert [theirs.receive(WAIT).value().number for _ in range(2)] == [1, 2]
            assert [ours.receive(WAIT).value().number for _ in range(2)] == [1, 2]
    finally:
        official.close()


def test_what_does_not_match_is_refused(server: Server, client: Client, topic: str) -> None:
    numbers = PrimitiveSchema("INT32")
    producer = client.create_producer(topic, schema=numbers)
    for value in ("text", 1 << 40, None):
        with pytest.raises(InvalidMessage, match="the value does not match the producer's schema"):
            producer.send(value)
        with pytest.raises(InvalidMessage, match="the value does not match the producer's schema"):
            producer.send_async(value, lambda _result, _id: None)
    with pytest.raises(
        InvalidMessage, match="the content must be bytes, not str; give the producer a schema"
    ):
        client.create_producer(f"{topic}-bytes").send("text")

    async def work(client: aio.Client) -> None:
        orders = await client.create_producer(f"{topic}-orders", schema=AvroSchema(Order))
        with pytest.raises(InvalidMessage, match="the value does not match"):
            await orders.send({"number": 1})
        with pytest.raises(InvalidMessage, match="the content must be bytes"):
            await (await client.create_producer(f"{topic}-bytes")).send(17)

    run(server.url, work)
    with pytest.raises(ValueError, match="the kind must be STRING or one of BOOLEAN"):
        PrimitiveSchema("UUID")
    with pytest.raises(ValueError, match="requires a record class or the definition of a record"):
        AvroSchema(None)


def test_contents_that_do_not_match_and_null_values(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=PrimitiveSchema("INT32"))
    producer = client.create_producer(topic)
    producer.send(b"not four")
    producer.send(b"", null_value=True)
    producer.send((5).to_bytes(4))
    message = consumer.receive(WAIT)
    with pytest.raises(InvalidMessage, match="the content does not match the consumer's schema"):
        message.value()
    assert message.data() == b"not four"
    assert consumer.receive(WAIT).value() is None
    assert consumer.receive(WAIT).value() == 5
    with client.create_producer(topic, schema=PrimitiveSchema("INT32")) as numbers:
        numbers.send(None, null_value=True)
    message = consumer.receive(WAIT)
    assert (message.value(), message.has_null_value()) == (None, True)


def test_a_schema_of_the_program(client: Client, topic: str) -> None:
    class Days(ValueSchema):
        def __init__(self) -> None:
            super().__init__(ProducerSchema("STRING"))

        def encode(self, value: object) -> bytes:
            if not isinstance(value, date):
                raise TypeError(f"a date is expected, not {value!r}")
            return value.isoformat().encode()

        def decode(self, data: bytes, writer: object = None) -> date:
            return date.fromisoformat(data.decode())

    consumer = client.subscribe(topic, "s", schema=Days())
    client.create_producer(topic, schema=Days()).send(date(2024, 2, 29))
    assert consumer.receive(WAIT).value() == date(2024, 2, 29)
    assert client.schema(topic).kind == "STRING"


def test_a_schema_that_is_gone(server: Server, client: Client, topic: str) -> None:
    schema = AvroSchema(Order)
    consumer = client.subscribe(topic, "s", schema=schema)
    client.create_producer(topic, schema=schema).send(order(1))
    path = f"/admin/v2/schemas/{topic.partition('://')[2]}/schema?force=true"
    assert server.ask("DELETE", path)[0] == 200
    message = consumer.receive(WAIT)
    with pytest.raises(PulsarException):
        message.value()
    assert message.data() == schema.encode(order(1))


def test_a_table_view_has_values(server: Server, client: Client, topic: str) -> None:
    schema = AvroSchema(Order)
    producer = client.create_producer(topic, schema=schema)
    for number, key in enumerate(("a", "b", "a", "c")):
        producer.send(order(number), partition_key=key)
    producer.send(None, null_value=True, partition_key="c")
    with client.create_table_view(topic, schema=schema) as view:
        assert view.contents() == {"a": order(2), "b": order(1)}
        assert (view.get("b"), view.get("c"), len(view)) == (order(1), None, 2)
        assert "a" in view
        assert "c" not in view
        changes: SimpleQueue[tuple[str, object]] = SimpleQueue()

        def fails(_key: str, _value: object) -> None:
            raise RuntimeError("on purpose")

        view.listen(fails)
        assert view.listen(lambda key, value: changes.put((key, value))) == view.contents()
        producer.send(order(7), partition_key="d")
        producer.send(None, null_value=True, partition_key="a")
        assert [changes.get(timeout=SECONDS) for _ in range(2)] == [("d", order(7)), ("a", None)]
        assert view.contents() == {"b": order(1), "d": order(7)}

    async def work(client: aio.Client) -> None:
        view = await client.create_table_view(topic, schema=schema)
        assert view.contents() == {"b": order(1), "d": order(7)}
        assert "d" in view
        heard: asyncio.Queue[tuple[str, object]] = asyncio.Queue()
        view.listen(lambda key, value: heard.put_nowait((key, value)))
        producer = await client.create_producer(topic, schema=schema)
        await producer.send(order(8), partition_key="b")
        assert await heard.get() == ("b", order(8))
        contents = await client.create_table_view(topic)
        assert contents.get("b") == schema.encode(order(8))

    run(server.url, work)


def test_a_table_view_of_separated_keys(client: Client, topic: str) -> None:
    schema = KeyValueSchema(PrimitiveSchema("INT32"), PrimitiveSchema("STRING"), separated=True)
    producer = client.create_producer(topic, schema=schema)
    for key, value in ((1, "one"), (2, "two"), (1, None), (None, "lost")):
        producer.send(KeyValue(key, value))
    view = client.create_table_view(topic, schema=schema)
    assert view.contents() == {b64encode((2).to_bytes(4)).decode(): KeyValue(2, "two")}


def test_a_table_view_says_which_value_cannot_be_read(client: Client, topic: str) -> None:
    numbers = PrimitiveSchema("INT32")
    client.create_producer(topic, schema=numbers).send(5, partition_key="good")
    producer = client.create_producer(topic)
    producer.send(b"not four", partition_key="bad")
    view = client.create_table_view(topic, schema=numbers)
    changes: SimpleQueue[tuple[str, object]] = SimpleQueue()
    assert (view.get("good"), len(view)) == (5, 2)
    for ask in (lambda: view.get("bad"), view.contents, lambda: view.listen(print)):
        with pytest.raises(InvalidMessage, match="the content does not match the consumer's schema"):
            ask()
    producer.send((6).to_bytes(4), partition_key="bad")
    producer.send(b"not four either", partition_key="good")
    producer.send((7).to_bytes(4), partition_key="good")

    def good() -> object:
        try:
            return view.get("good")
        except InvalidMessage:
            return None

    deadline = clock.monotonic() + SECONDS
    while good() != 7:
        assert clock.monotonic() < deadline
        clock.sleep(0.01)
    assert view.listen(lambda key, value: changes.put((key, value))) == {"bad": 6, "good": 7}
    producer.send(b"no", partition_key="good")
    producer.send((8).to_bytes(4), partition_key="bad")
    assert changes.get(timeout=SECONDS) == ("bad", 8)
