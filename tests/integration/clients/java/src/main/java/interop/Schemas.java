package interop;

import static interop.Checks.check;
import static interop.Checks.expect;
import static interop.Checks.say;

import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Schemas through the official Java client, in one process. */
public final class Schemas {
    /** The first version. */
    public static class First {
        public String name;
        public int count;
    }

    /** Both can read each other's. */
    public static class Second {
        public String name;
        public int count;
        public Long more;
    }

    /** Nobody can read it who expects a count. */
    public static class Other {
        public String name;
        public double amount;
    }

    private final String prefix;
    private final PulsarClient client;

    private Schemas(Map<String, String> options) throws PulsarClientException {
        prefix = options.get("prefix");
        client = PulsarClient.builder()
                .serviceUrl(options.get("url"))
                .startingBackoffInterval(50, TimeUnit.MILLISECONDS)
                .build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Checks.options(arguments);
        Schemas run = new Schemas(options);
        check("primitive", 1, run::primitive);
        check("json", 1, () -> run.records("json", Schema.JSON(First.class), Schema.JSON(Second.class),
                Schema.JSON(Other.class)));
        check("avro", 1, () -> run.records("avro", Schema.AVRO(First.class), Schema.AVRO(Second.class),
                Schema.AVRO(Other.class)));
        check("key-value", 1, run::keyValue);
        check("protobuf", 1, run::protobuf);
        check("auto-consume", 1, run::autoConsume);
        check("auto-produce", 1, run::autoProduce);
        check("multi-version", 1, run::multiVersion);
        check("types-differ", 1, run::typesDiffer);
        check("over-a-restart", 1, run::restart);
        run.client.close();
    }

    private String topic(String name) {
        return "persistent://public/default/" + prefix + "-" + name;
    }

    private <T> Producer<T> producer(String topic, Schema<T> schema) throws PulsarClientException {
        return client.newProducer(schema).topic(topic).create();
    }

    private <T> Consumer<T> consumer(String topic, Schema<T> schema) throws PulsarClientException {
        return client.newConsumer(schema)
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    private static <T> Message<T> next(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(20, TimeUnit.SECONDS);
        expect(message != null, "no message came");
        consumer.acknowledge(message);
        return message;
    }

    private <T> void thereAndBack(String name, Schema<T> schema, T value) throws Exception {
        String topic = topic(name);
        try (Producer<T> producer = producer(topic, schema); Consumer<T> consumer = consumer(topic, schema)) {
            producer.send(value);
            expect(value.equals(next(consumer).getValue()), name + " came back as something else");
        }
    }

    private void primitive() throws Exception {
        thereAndBack("string", Schema.STRING, "text");
        thereAndBack("bool", Schema.BOOL, true);
        thereAndBack("int8", Schema.INT8, (byte) 8);
        thereAndBack("int16", Schema.INT16, (short) 16);
        thereAndBack("int32", Schema.INT32, 32);
        thereAndBack("int64", Schema.INT64, 64L);
        thereAndBack("float", Schema.FLOAT, 1.5f);
        thereAndBack("double", Schema.DOUBLE, 2.5);
        thereAndBack("date", Schema.DATE, new Date(1_000_000_000_000L));
        thereAndBack("instant", Schema.INSTANT, Instant.ofEpochMilli(1_000_000_000_000L));
        thereAndBack("local-date", Schema.LOCAL_DATE, LocalDate.of(2024, 2, 29));
        thereAndBack("local-time", Schema.LOCAL_TIME, LocalTime.of(1, 2, 3));
        thereAndBack("local-date-time", Schema.LOCAL_DATE_TIME, LocalDateTime.of(2024, 2, 29, 1, 2, 3));
    }

    private void records(String name, Schema<First> first, Schema<Second> second, Schema<Other> other)
            throws Exception {
        String topic = topic(name);
        try (Producer<First> producer = producer(topic, first); Consumer<First> consumer = consumer(topic, first)) {
            First value = new First();
            value.name = "a";
            value.count = 1;
            producer.send(value);
            Message<First> message = next(consumer);
            expect(message.getValue().count == 1 && "a".equals(message.getValue().name), "another value");
            expect(message.getSchemaVersion()[7] == 0, "not version 0");
            try (Producer<Second> later = producer(topic, second)) {
                Second changed = new Second();
                changed.name = "b";
                changed.count = 2;
                changed.more = 3L;
                later.send(changed);
            }
            message = next(consumer);
            expect(message.getValue().count == 2, "another value");
            expect(message.getSchemaVersion()[7] == 1, "not version 1");
        }
        refused(() -> producer(topic, other).close());
        refused(() -> consumer(topic, other).close());
    }

    private interface Attempt {
        void run() throws PulsarClientException;
    }

    private static void refused(Attempt attempt) throws Exception {
        try {
            attempt.run();
        } catch (PulsarClientException.IncompatibleSchemaException expected) {
            return;
        }
        expect(false, "an incompatible schema was let in");
    }

    private void keyValue() throws Exception {
        First key = new First();
        key.name = "k";
        for (KeyValueEncodingType type : KeyValueEncodingType.values()) {
            String topic = topic("pairs-" + type);
            Schema<KeyValue<First, String>> schema =
                    Schema.KeyValue(Schema.JSON(First.class), Schema.STRING, type);
            try (Producer<KeyValue<First, String>> producer = producer(topic, schema);
                    Consumer<KeyValue<First, String>> consumer = consumer(topic, schema)) {
                producer.send(new KeyValue<>(key, "v"));
                KeyValue<First, String> value = next(consumer).getValue();
                expect("k".equals(value.getKey().name) && "v".equals(value.getValue()), "another pair");
            }
            refused(() -> producer(topic, Schema.KeyValue(Schema.STRING, Schema.STRING, type)).close());
        }
    }

    private void protobuf() throws Exception {
        com.google.protobuf.Timestamp value =
                com.google.protobuf.Timestamp.newBuilder().setSeconds(5).setNanos(6).build();
        thereAndBack("protobuf", Schema.PROTOBUF(com.google.protobuf.Timestamp.class), value);
        String topic = topic("native");
        thereAndBack("native", Schema.PROTOBUF_NATIVE(com.google.protobuf.Timestamp.class), value);
        refused(() -> producer(topic, Schema.PROTOBUF_NATIVE(com.google.protobuf.Duration.class)).close());
    }

    private void autoConsume() throws Exception {
        String topic = topic("auto");
        try (Producer<First> producer = producer(topic, Schema.AVRO(First.class));
                Consumer<GenericRecord> consumer = consumer(topic, Schema.AUTO_CONSUME())) {
            First value = new First();
            value.name = "generic";
            producer.send(value);
            expect("generic".equals(next(consumer).getValue().getField("name")), "another record");
            try (Producer<Second> later = producer(topic, Schema.AVRO(Second.class))) {
                Second changed = new Second();
                changed.name = "more";
                changed.more = 7L;
                later.send(changed);
            }
            GenericRecord record = next(consumer).getValue();
            expect(Long.valueOf(7).equals(record.getField("more")), "the new version was not read as such");
        }
    }

    private void autoProduce() throws Exception {
        String topic = topic("auto-produce");
        producer(topic, Schema.AVRO(First.class)).close();
        try (Producer<byte[]> producer = producer(topic, Schema.AUTO_PRODUCE_BYTES());
                Consumer<First> consumer = consumer(topic, Schema.AVRO(First.class))) {
            First value = new First();
            value.name = "bytes";
            producer.send(Schema.AVRO(First.class).encode(value));
            expect("bytes".equals(next(consumer).getValue().name), "another record");
            try {
                producer.send(new byte[] {1, 2, 3});
            } catch (RuntimeException | PulsarClientException expected) {
                return;
            }
            expect(false, "bytes of no schema were sent");
        }
    }

    /** One producer sends messages of several schemas: GET_OR_CREATE_SCHEMA. */
    private void multiVersion() throws Exception {
        String topic = topic("multi");
        Map<String, Integer> versions = new LinkedHashMap<>();
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableMultiSchema(true).create();
                Consumer<GenericRecord> consumer = consumer(topic, Schema.AUTO_CONSUME())) {
            First first = new First();
            first.name = "first";
            Second second = new Second();
            second.name = "second";
            producer.newMessage(Schema.AVRO(First.class)).value(first).send();
            producer.newMessage(Schema.AVRO(Second.class)).value(second).send();
            producer.newMessage(Schema.AVRO(First.class)).value(first).send();
            for (int index = 0; index < 3; index++) {
                Message<GenericRecord> message = next(consumer);
                versions.put(index + "-" + message.getValue().getField("name"), (int) message.getSchemaVersion()[7]);
            }
        }
        expect(versions.toString().equals("{0-first=0, 1-second=1, 2-first=0}"), versions.toString());
    }

    private void typesDiffer() throws Exception {
        String topic = topic("differ");
        producer(topic, Schema.STRING).close();
        refused(() -> producer(topic, Schema.INT32).close());
        refused(() -> consumer(topic, Schema.JSON(First.class)).close());
        producer(topic, Schema.BYTES).close();
    }

    private void restart() throws Exception {
        String topic = topic("restart");
        try (Producer<First> producer = producer(topic, Schema.AVRO(First.class));
                Consumer<First> consumer = consumer(topic, Schema.AVRO(First.class))) {
            First value = new First();
            value.name = "before";
            producer.send(value);
            say("{\"event\": \"restart\"}");
            expect(System.in.read() >= 0, "nobody said that the broker is back");
            value.name = "after";
            producer.send(value);
            expect("before".equals(next(consumer).getValue().name), "the first was lost");
            expect("after".equals(next(consumer).getValue().name), "the second was lost");
        }
        refused(() -> producer(topic, Schema.AVRO(Other.class)).close());
    }
}
