package interop;

import static interop.Checks.check;
import static interop.Checks.expect;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * Each feature of producers, consumers and topics together with transactions: {@code --url URL --http URL --prefix NAME}, and
 * {@code --other URL} for a cluster to which the namespace {@code geo/clients} is replicated.
 */
public final class TransactionFeatures {
    /** An order, for the schemas. */
    public static class Order {
        public int number;
        public String item;
    }

    private static final int SECONDS = 30;
    private static final int COUNT = 6;

    private final PulsarClient client;
    private final HttpClient http =
            HttpClient.newBuilder().followRedirects(HttpClient.Redirect.ALWAYS).build();
    private final Map<String, String> options;

    private TransactionFeatures(Map<String, String> options) throws Exception {
        this.options = options;
        client = PulsarClient.builder().serviceUrl(options.get("url")).enableTransaction(true).build();
    }

    public static void main(String[] arguments) throws Exception {
        TransactionFeatures run = new TransactionFeatures(Checks.options(arguments));
        if (run.options.containsKey("other")) {
            check("replication", COUNT, run::replication);
        } else {
            run.producers();
            run.consumers();
            run.topics();
        }
        run.client.close();
    }

    private void producers() {
        check("batches", COUNT, () -> outcomes(new Pair("batches").batches(BatcherBuilder.DEFAULT)));
        check("parts of batches", COUNT, () -> {
            Pair pair = new Pair("indexes").batches(BatcherBuilder.DEFAULT);
            pair.consumer.enableBatchIndexAcknowledgment(true);
            outcomes(pair);
        });
        check("key-based batches", COUNT, () -> {
            Pair pair = new Pair("keys").batches(BatcherBuilder.KEY_BASED);
            pair.consumer.subscriptionType(SubscriptionType.Key_Shared);
            outcomes(pair);
        });
        check("chunks", COUNT, () -> {
            Pair pair = new Pair("chunks").padded(9000);
            pair.producer.enableChunking(true).chunkMaxMessageSize(2000);
            outcomes(pair);
        });
        for (CompressionType codec : CompressionType.values()) {
            check("compression " + codec, COUNT, () -> {
                Pair pair = new Pair("codec-" + codec).batches(BatcherBuilder.DEFAULT).padded(3000);
                pair.producer.compressionType(codec);
                outcomes(pair);
            });
        }
        check("encryption", COUNT, () -> {
            CryptoKeyReader keys = keys();
            Pair pair = new Pair("encryption").batches(BatcherBuilder.DEFAULT);
            pair.producer.addEncryptionKey("key").cryptoKeyReader(keys);
            pair.consumer.cryptoKeyReader(keys);
            outcomes(pair);
        });
        check("partitions", COUNT, () -> {
            Pair pair = new Pair("partitions");
            ask("PUT", pair.path() + "/partitions", "3");
            pair.producer.messageRoutingMode(MessageRoutingMode.RoundRobinPartition);
            outcomes(pair);
        });
        check("deduplication", 3, this::deduplication);
        check("delays", 2, this::delays);
        check("schemas", 3, this::schemas);
    }

    private void consumers() {
        check("order of keys after an abort", 12, this::orderOfKeys);
        check("dead letters", 1, this::deadLetters);
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Failover)) {
            check("cumulative, " + type, COUNT, () -> cumulative(type));
        }
        check("negative acknowledgement", 2, this::negative);
        check("acknowledgement time-out", 2, this::acknowledgementTimeout);
        check("closed consumer", 4, this::closedConsumer);
        check("several topics", 4, this::severalTopics);
        check("seek", 3, this::seek);
        check("reader", 3, this::reader);
        check("table view", 2, this::tableView);
    }

    private void topics() {
        check("compaction", 2, this::compaction);
        check("unload", COUNT, this::unload);
        check("added partitions", 2 * COUNT, this::addedPartitions);
        check("deleted topic", 1, this::deleted);
        check("deleted subscription", 1, this::deletedSubscription);
        // The last one, because Apache Pulsar terminates the topic, and the transaction never ends.
        check("terminated topic", 2, this::terminated);
    }

    /** A producer and a shared consumer of one topic, before they are created. */
    private final class Pair {
        final String topic;
        final ProducerBuilder<byte[]> producer;
        final ConsumerBuilder<byte[]> consumer;
        int padding;

        Pair(String name) {
            topic = topic(name);
            producer = client.newProducer().topic(topic).enableBatching(false).sendTimeout(0, TimeUnit.SECONDS);
            consumer = consumer(Schema.BYTES, topic, SubscriptionType.Shared);
        }

        Pair batches(BatcherBuilder builder) {
            producer.enableBatching(true)
                    .batcherBuilder(builder)
                    .batchingMaxMessages(COUNT)
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS);
            return this;
        }

        Pair padded(int bytes) {
            padding = bytes;
            return this;
        }

        String path() {
            return TransactionFeatures.path(topic);
        }

        byte[] content(String text) {
            return (text + " " + "x".repeat(padding)).getBytes(StandardCharsets.UTF_8);
        }
    }

    private String topic(String name) {
        return "persistent://public/default/" + options.get("prefix") + "-" + name.toLowerCase();
    }

    private static String path(String topic) {
        return "/admin/v2/" + topic.replace("://", "/");
    }

    private <T> ConsumerBuilder<T> consumer(Schema<T> schema, String topic, SubscriptionType type) {
        return client.newConsumer(schema)
                .topic(topic)
                .subscriptionName("s")
                .subscriptionType(type)
                .acknowledgmentGroupTime(0, TimeUnit.SECONDS)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    private Producer<byte[]> producer(String topic) throws Exception {
        return client.newProducer().topic(topic).enableBatching(false).sendTimeout(0, TimeUnit.SECONDS).create();
    }

    private Transaction begin() throws Exception {
        return client.newTransaction().withTransactionTimeout(60, TimeUnit.SECONDS).build().get();
    }

    /** An administrative request that succeeds; its answer. */
    private String ask(String method, String path, String body) throws IOException, InterruptedException, Checks.Failed {
        HttpRequest request = HttpRequest.newBuilder(URI.create(options.get("http") + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
        expect(answer.statusCode() / 100 == 2, method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        return answer.body();
    }

    private static void same(Object found, Object wanted) throws Checks.Failed {
        expect(found.equals(wanted), found + " in place of " + wanted);
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8).trim().replaceAll(" x+$", "");
    }

    private static <T> Message<T> next(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
        expect(message != null, "no message within " + SECONDS + " s");
        return message;
    }

    private static <T> List<Message<T>> next(Consumer<T> consumer, int count) throws Exception {
        List<Message<T>> found = new ArrayList<>();
        while (found.size() < count) {
            found.add(next(consumer));
        }
        return found;
    }

    private static List<String> texts(List<Message<byte[]>> messages) {
        List<String> found = new ArrayList<>();
        messages.forEach(each -> found.add(text(each)));
        return found;
    }

    private static List<String> sorted(List<String> texts) {
        return new ArrayList<>(new TreeSet<>(texts));
    }

    private static <T> void nothing(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(300, TimeUnit.MILLISECONDS);
        expect(message == null, "unexpected: " + (message == null ? "" : new String(message.getData(), StandardCharsets.UTF_8)));
    }

    private static <T> void acknowledge(Consumer<T> consumer, List<Message<T>> messages, Transaction in) throws Exception {
        for (Message<T> each : messages) {
            consumer.acknowledgeAsync(each.getMessageId(), in).get();
        }
    }

    private static void send(Producer<byte[]> producer, String text, Transaction in) throws Exception {
        producer.newMessage(in).value(text.getBytes(StandardCharsets.UTF_8)).send();
    }

    /**
     * Publishes and acknowledges in transactions that are aborted, and in ones that are committed. The consumer sees what was
     * committed, and sees it again unless its acknowledgement was committed.
     */
    private void outcomes(Pair pair) throws Exception {
        try (Consumer<byte[]> consumer = pair.consumer.subscribe();
                Producer<byte[]> producer = pair.producer.create()) {
            List<String> committed = publishBoth(pair, consumer, producer);
            acknowledgeTwice(consumer, committed);
        }
    }

    /** Receives messages in any order, and acknowledges them in a transaction that is aborted, then in one that is committed. */
    private void acknowledgeTwice(Consumer<byte[]> consumer, List<String> wanted) throws Exception {
        for (boolean commit : new boolean[] {false, true}) {
            List<Message<byte[]>> messages = next(consumer, wanted.size());
            same(sorted(texts(messages)), wanted);
            Transaction in = begin();
            acknowledge(consumer, messages, in);
            (commit ? in.commit() : in.abort()).get();
        }
        consumer.redeliverUnacknowledgedMessages();
        nothing(consumer);
    }

    /** Sends in two transactions by turns; aborts the first and commits the other. Returns what was committed. */
    private List<String> publishBoth(Pair pair, Consumer<byte[]> consumer, Producer<byte[]> producer) throws Exception {
        Transaction aborted = begin();
        Transaction committed = begin();
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        List<String> wanted = new ArrayList<>();
        // A batch belongs to one transaction. But if messages of two transactions are pending, this client (4.0.8) may put
        // both into the batch of their key. Flushing alone does not prevent that: a message is pending only after the answer
        // that adds the topic to its transaction.
        for (int run = 0; run < 2; run++) {
            for (Transaction each : List.of(aborted, committed)) {
                for (int i = run * COUNT / 2; i < (run + 1) * COUNT / 2; i++) {
                    String text = (each == aborted ? "aborted " : "committed ") + i;
                    sent.add(producer.newMessage(each).key("k" + i % 2).value(pair.content(text)).sendAsync());
                    if (each == committed) {
                        wanted.add(text);
                    }
                }
                producer.flush();
                CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get(SECONDS, TimeUnit.SECONDS);
            }
        }
        nothing(consumer);
        aborted.abort().get();
        nothing(consumer);
        committed.commit().get();
        return wanted;
    }

    private static CryptoKeyReader keys() throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        KeyPair pair = generator.generateKeyPair();
        return new CryptoKeyReader() {
            @Override
            public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
                return new EncryptionKeyInfo(pem("PUBLIC", pair.getPublic().getEncoded()), metadata);
            }

            @Override
            public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
                return new EncryptionKeyInfo(pem("PRIVATE", pair.getPrivate().getEncoded()), metadata);
            }
        };
    }

    private static byte[] pem(String kind, byte[] der) {
        String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der);
        return ("-----BEGIN " + kind + " KEY-----\n" + body + "\n-----END " + kind + " KEY-----\n")
                .getBytes(StandardCharsets.US_ASCII);
    }

    /** A sequence id counts once, also if its transaction is aborted. */
    private void deduplication() throws Exception {
        String topic = topic("deduplication");
        try (Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe()) {
            ask("POST", path(topic) + "/deduplicationEnabled", "true");
            while (!ask("GET", path(topic) + "/internalStats", "").contains("pulsar.dedup")) {
                Thread.sleep(50);
            }
            try (Producer<byte[]> producer = client.newProducer()
                    .topic(topic)
                    .producerName("own")
                    .enableBatching(false)
                    .sendTimeout(0, TimeUnit.SECONDS)
                    .create()) {
                Transaction aborted = begin();
                producer.newMessage(aborted).sequenceId(0).value("aborted".getBytes()).send();
                aborted.abort().get();
                Transaction committed = begin();
                producer.newMessage(committed).sequenceId(0).value("lost".getBytes()).send();
                producer.newMessage(committed).sequenceId(1).value("once".getBytes()).send();
                producer.newMessage(committed).sequenceId(1).value("twice".getBytes()).send();
                producer.newMessage(committed).sequenceId(2).value("last".getBytes()).send();
                committed.commit().get();
            }
            same(texts(next(consumer, 2)), List.of("once", "last"));
            nothing(consumer);
        }
    }

    private void delays() throws Exception {
        String topic = topic("delays");
        try (Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe();
                Producer<byte[]> producer = producer(topic)) {
            Transaction aborted = begin();
            producer.newMessage(aborted).deliverAfter(300, TimeUnit.MILLISECONDS).value("aborted".getBytes()).send();
            Transaction committed = begin();
            producer.newMessage(committed).deliverAfter(1, TimeUnit.HOURS).value("far".getBytes()).send();
            producer.newMessage(committed).deliverAfter(300, TimeUnit.MILLISECONDS).value("due".getBytes()).send();
            send(producer, "at once", committed);
            Thread.sleep(600);
            nothing(consumer);
            aborted.abort().get();
            committed.commit().get();
            same(sorted(texts(next(consumer, 2))), List.of("at once", "due"));
            nothing(consumer);
        }
    }

    private void schemas() throws Exception {
        Order order = new Order();
        order.number = 7;
        order.item = "tea";
        schema("avro", Schema.AVRO(Order.class), order);
        schema("json", Schema.JSON(Order.class), order);
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            Schema<KeyValue<String, Order>> schema = Schema.KeyValue(Schema.STRING, Schema.AVRO(Order.class), encoding);
            schema("key-value-" + encoding, schema, new KeyValue<>("k", order));
        }
    }

    private <T> void schema(String name, Schema<T> schema, T value) throws Exception {
        String topic = topic("schema-" + name);
        try (Consumer<T> consumer = consumer(schema, topic, SubscriptionType.Shared).subscribe();
                Producer<T> producer = client.newProducer(schema).topic(topic).sendTimeout(0, TimeUnit.SECONDS).create()) {
            Transaction aborted = begin();
            producer.newMessage(aborted).value(value).send();
            aborted.abort().get();
            Transaction committed = begin();
            producer.newMessage(committed).value(value).send();
            producer.newMessage(committed).value(value).send();
            committed.commit().get();
            for (Message<T> each : next(consumer, 2)) {
                same(Base64.getEncoder().encodeToString(schema.encode(each.getValue())),
                        Base64.getEncoder().encodeToString(schema.encode(value)));
                consumer.acknowledge(each);
            }
            nothing(consumer);
        }
    }

    private void orderOfKeys() throws Exception {
        String topic = topic("order");
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        try (Producer<byte[]> producer = producer(topic)) {
            for (int i = 0; i < 2; i++) {
                consumers.add(consumer(Schema.BYTES, topic, SubscriptionType.Key_Shared).subscribe());
            }
            Transaction sent = begin();
            for (int i = 0; i < 12; i++) {
                producer.newMessage(sent).key("k" + i % 4).value(("" + i).getBytes()).send();
            }
            sent.commit().get();
            int received = 0;
            for (Consumer<byte[]> each : consumers) {
                List<Message<byte[]>> before = new ArrayList<>();
                for (Message<byte[]> next; (next = each.receive(1, TimeUnit.SECONDS)) != null; ) {
                    before.add(next);
                }
                received += before.size();
                Transaction aborted = begin();
                acknowledge(each, before, aborted);
                aborted.abort().get();
                List<Message<byte[]>> after = next(each, before.size());
                for (int key = 0; key < 4; key++) {
                    String wanted = "k" + key;
                    same(texts(after.stream().filter(m -> m.getKey().equals(wanted)).toList()),
                            texts(before.stream().filter(m -> m.getKey().equals(wanted)).toList()));
                }
            }
            same(received, 12);
        } finally {
            for (Consumer<byte[]> each : consumers) {
                each.close();
            }
        }
    }

    /** Each aborted acknowledgement counts as a delivery that failed. */
    private void deadLetters() throws Exception {
        String topic = topic("letters");
        try (Producer<byte[]> producer = producer(topic);
                Consumer<byte[]> dead = consumer(Schema.BYTES, topic + "-s-DLQ", SubscriptionType.Shared).subscribe();
                Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, SubscriptionType.Shared)
                        .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build())
                        .subscribe()) {
            Transaction sent = begin();
            send(producer, "bad", sent);
            sent.commit().get();
            for (int count = 0; count <= 2; count++) {
                Message<byte[]> message = next(consumer);
                same(message.getRedeliveryCount(), count);
                Transaction aborted = begin();
                consumer.acknowledgeAsync(message.getMessageId(), aborted).get();
                aborted.abort().get();
            }
            nothing(consumer);
            same(text(next(dead)), "bad");
        }
    }

    private void cumulative(SubscriptionType type) throws Exception {
        String topic = topic("cumulative-" + type);
        try (Producer<byte[]> producer = producer(topic)) {
            Transaction sent = begin();
            for (int i = 0; i < COUNT; i++) {
                send(producer, "" + i, sent);
            }
            sent.commit().get();
            try (Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, type).subscribe()) {
                List<Message<byte[]>> all = next(consumer, COUNT);
                Transaction aborted = begin();
                consumer.acknowledgeCumulativeAsync(all.get(3).getMessageId(), aborted).get();
                aborted.abort().get();
                // The abort also redelivers. If a message arrives during the call, the client may keep it: it
                // checks the message's epoch before the call raises its own, and queues the message after it.
                Thread.sleep(300);
                consumer.redeliverUnacknowledgedMessages();
                all = next(consumer, COUNT);
                same(texts(all), List.of("0", "1", "2", "3", "4", "5"));
                Transaction committed = begin();
                consumer.acknowledgeCumulativeAsync(all.get(3).getMessageId(), committed).get();
                committed.commit().get();
            }
            try (Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, type).subscribe()) {
                same(texts(next(consumer, 2)), List.of("4", "5"));
            }
        }
    }

    /** Another message comes again; the one whose acknowledgement is pending does so after the abort. */
    private void negative() throws Exception {
        String topic = topic("negative");
        try (Producer<byte[]> producer = producer(topic);
                Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe()) {
            producer.send("pending".getBytes());
            producer.send("other".getBytes());
            List<Message<byte[]>> both = next(consumer, 2);
            Transaction open = begin();
            acknowledge(consumer, both.subList(0, 1), open);
            both.forEach(consumer::negativeAcknowledge);
            same(text(next(consumer)), "other");
            nothing(consumer);
            open.abort().get();
            same(text(next(consumer)), "pending");
        }
    }

    private void acknowledgementTimeout() throws Exception {
        String topic = topic("time-out");
        try (Producer<byte[]> producer = producer(topic);
                Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, SubscriptionType.Shared)
                        .ackTimeout(1, TimeUnit.SECONDS)
                        .subscribe()) {
            producer.send("pending".getBytes());
            producer.send("late".getBytes());
            List<Message<byte[]>> both = next(consumer, 2);
            Transaction open = begin();
            acknowledge(consumer, both.subList(0, 1), open);
            Message<byte[]> again = next(consumer);
            same(text(again), "late");
            consumer.acknowledge(again);
            open.commit().get();
            Message<byte[]> more = consumer.receive(1500, TimeUnit.MILLISECONDS);
            expect(more == null, "unexpected: " + (more == null ? "" : text(more)));
        }
    }

    /** Pending acknowledgements outlive their consumer. */
    private void closedConsumer() throws Exception {
        String topic = topic("closed");
        try (Producer<byte[]> producer = producer(topic)) {
            Consumer<byte[]> first = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe();
            for (int i = 0; i < 4; i++) {
                producer.send(("" + i).getBytes());
            }
            List<Message<byte[]>> all = next(first, 4);
            Transaction committed = begin();
            Transaction aborted = begin();
            acknowledge(first, all.subList(0, 1), committed);
            acknowledge(first, all.subList(1, 2), aborted);
            first.close();
            try (Consumer<byte[]> second = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe()) {
                same(sorted(texts(next(second, 2))), List.of("2", "3"));
                committed.commit().get();
                aborted.abort().get();
                same(text(next(second)), "1");
                nothing(second);
            }
        }
    }

    private void severalTopics() throws Exception {
        List<String> topics = List.of(topic("several-a"), topic("several-b"));
        List<Producer<byte[]>> producers = List.of(producer(topics.get(0)), producer(topics.get(1)));
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topicsPattern(topic("several-.*"))
                .subscriptionName("s")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            for (boolean commit : new boolean[] {false, true}) {
                Transaction in = begin();
                for (Producer<byte[]> each : producers) {
                    send(each, commit + " " + each.getTopic(), in);
                }
                (commit ? in.commit() : in.abort()).get();
            }
            List<String> wanted = List.of("true " + topics.get(0), "true " + topics.get(1));
            acknowledgeTwice(consumer, wanted);
        } finally {
            for (Producer<byte[]> each : producers) {
                each.close();
            }
        }
    }

    private void seek() throws Exception {
        String topic = topic("seek");
        try (Producer<byte[]> producer = producer(topic);
                Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, SubscriptionType.Exclusive).subscribe()) {
            producer.send("first".getBytes());
            Transaction aborted = begin();
            send(producer, "aborted", aborted);
            Transaction open = begin();
            send(producer, "open", open);
            aborted.abort().get();
            same(text(next(consumer)), "first");
            consumer.seek(MessageId.earliest);
            same(text(next(consumer)), "first");
            nothing(consumer);
            open.commit().get();
            same(text(next(consumer)), "open");
            consumer.seek(MessageId.earliest);
            same(texts(next(consumer, 2)), List.of("first", "open"));
            nothing(consumer);
        }
    }

    private void reader() throws Exception {
        String topic = topic("reader");
        try (Producer<byte[]> producer = producer(topic);
                Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            Transaction open = begin();
            send(producer, "open", open);
            producer.send("behind".getBytes());
            expect(!reader.hasMessageAvailable(), "a message behind an open transaction is available");
            expect(reader.readNext(300, TimeUnit.MILLISECONDS) == null, "a message of an open transaction");
            open.commit().get();
            Transaction aborted = begin();
            send(producer, "aborted", aborted);
            aborted.abort().get();
            producer.send("last".getBytes());
            List<String> found = new ArrayList<>();
            while (found.size() < 3) {
                expect(reader.hasMessageAvailable(), "nothing is available after " + found);
                found.add(text(reader.readNext(SECONDS, TimeUnit.SECONDS)));
            }
            same(found, List.of("open", "behind", "last"));
            expect(!reader.hasMessageAvailable(), "more is available");
        }
    }

    private void tableView() throws Exception {
        String topic = topic("view");
        try (Producer<byte[]> producer = producer(topic)) {
            Transaction committed = begin();
            producer.newMessage(committed).key("a").value("1".getBytes()).send();
            producer.newMessage(committed).key("b").value("1".getBytes()).send();
            committed.commit().get();
            Transaction aborted = begin();
            producer.newMessage(aborted).key("a").value("2".getBytes()).send();
            aborted.abort().get();
            try (TableView<byte[]> view = client.newTableView(Schema.BYTES).topic(topic).create()) {
                same(view.size(), 2);
                same(new String(view.get("a")), "1");
                Transaction later = begin();
                producer.newMessage(later).key("b").value("3".getBytes()).send();
                Thread.sleep(300);
                same(new String(view.get("b")), "1");
                later.commit().get();
                for (int i = 0; i < 100 && !"3".equals(new String(view.get("b"))); i++) {
                    Thread.sleep(100);
                }
                same(new String(view.get("b")), "3");
            }
        }
    }

    private void compaction() throws Exception {
        String topic = topic("compaction");
        try (Producer<byte[]> producer = producer(topic)) {
            Transaction committed = begin();
            for (int i = 0; i < COUNT; i++) {
                producer.newMessage(committed).key("k" + i % 2).value(("" + i).getBytes()).send();
            }
            committed.commit().get();
            Transaction aborted = begin();
            producer.newMessage(aborted).key("k0").value("aborted".getBytes()).send();
            aborted.abort().get();
            ask("PUT", path(topic) + "/compaction", "");
            String status;
            do {
                Thread.sleep(100);
                status = ask("GET", path(topic) + "/compaction", "");
            } while (status.contains("RUNNING"));
            expect(status.contains("SUCCESS"), status);
        }
        List<String> found = new ArrayList<>();
        try (Reader<byte[]> reader =
                client.newReader().topic(topic).startMessageId(MessageId.earliest).readCompacted(true).create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(SECONDS, TimeUnit.SECONDS);
                found.add(message.getKey() + "=" + text(message));
            }
        }
        same(found, List.of("k0=4", "k1=5"));
    }

    private void unload() throws Exception {
        Pair pair = new Pair("unload");
        try (Consumer<byte[]> consumer = pair.consumer.subscribe();
                Producer<byte[]> producer = pair.producer.create()) {
            producer.send("input".getBytes());
            Message<byte[]> input = next(consumer);
            Transaction aborted = begin();
            Transaction committed = begin();
            send(producer, "aborted", aborted);
            send(producer, "before", committed);
            consumer.acknowledgeAsync(input.getMessageId(), committed).get();
            ask("PUT", pair.path() + "/unload", "");
            send(producer, "after", committed);
            aborted.abort().get();
            committed.commit().get();
            List<String> found = new ArrayList<>();
            // A consumer that connects again may get a message twice.
            while (!new TreeSet<>(found).equals(new TreeSet<>(List.of("before", "after")))) {
                Message<byte[]> message = next(consumer);
                found.add(text(message));
                consumer.acknowledge(message);
            }
            nothing(consumer);
        }
    }

    /** An open transaction goes on in the partitions that are added. */
    private void addedPartitions() throws Exception {
        Pair pair = new Pair("added");
        ask("PUT", pair.path() + "/partitions", "1");
        pair.producer.messageRoutingMode(MessageRoutingMode.RoundRobinPartition).autoUpdatePartitionsInterval(1, TimeUnit.SECONDS);
        pair.consumer.autoUpdatePartitionsInterval(1, TimeUnit.SECONDS);
        try (Consumer<byte[]> consumer = pair.consumer.subscribe();
                Producer<byte[]> producer = pair.producer.create()) {
            Transaction open = begin();
            for (int i = 0; i < COUNT; i++) {
                send(producer, "a" + i, open);
            }
            ask("POST", pair.path() + "/partitions", "3");
            TreeSet<String> partitions = new TreeSet<>();
            int more = 0;
            for (; partitions.size() < 3 || more < COUNT; more++) {
                MessageId id = producer.newMessage(open).value(("b" + more).getBytes()).send();
                partitions.add(id.toString().split(":")[2]);
                if (partitions.size() < 3) {
                    Thread.sleep(50);
                }
            }
            nothing(consumer);
            open.commit().get();
            same(next(consumer, COUNT + more).size(), COUNT + more);
            nothing(consumer);
        }
    }

    /** The topic is terminated once the open transaction has ended. */
    private void terminated() throws Exception {
        String topic = topic("terminated");
        Producer<byte[]> producer = producer(topic);
        try (Consumer<byte[]> consumer = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe()) {
            producer.send("input".getBytes());
            Message<byte[]> input = next(consumer);
            Transaction open = begin();
            Transaction aborted = begin();
            send(producer, "aborted", aborted);
            send(producer, "open", open);
            consumer.acknowledgeAsync(input.getMessageId(), open).get();
            aborted.abort().get();
            CompletableFuture<String> termination = CompletableFuture.supplyAsync(() -> {
                try {
                    return ask("POST", path(topic) + "/terminate", "");
                } catch (IOException | InterruptedException | Checks.Failed failure) {
                    throw new IllegalStateException(failure);
                }
            });
            Thread.sleep(300);
            expect(!termination.isDone(), "a topic with an open transaction is terminated");
            open.commit().get();
            termination.get(SECONDS, TimeUnit.SECONDS);
            Message<byte[]> last = next(consumer);
            same(text(last), "open");
            consumer.acknowledge(last);
            for (int i = 0; i < 100 && !consumer.hasReachedEndOfTopic(); i++) {
                nothing(consumer);
            }
            expect(consumer.hasReachedEndOfTopic(), "the consumer is not told of the end of the topic");
        }
        producer.closeAsync();
    }

    private void deleted() throws Exception {
        String topic = topic("deleted");
        String other = topic("not-deleted");
        Producer<byte[]> gone = producer(topic);
        try (Producer<byte[]> kept = producer(other);
                Consumer<byte[]> consumer = consumer(Schema.BYTES, other, SubscriptionType.Shared).subscribe()) {
            Transaction open = begin();
            send(gone, "gone", open);
            send(kept, "kept", open);
            gone.close();
            ask("DELETE", path(topic) + "?force=true", "");
            open.commit().get();
            same(text(next(consumer)), "kept");
        }
    }

    private void deletedSubscription() throws Exception {
        String topic = topic("subscription");
        try (Producer<byte[]> producer = producer(topic);
                Consumer<byte[]> kept = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe()) {
            Consumer<byte[]> gone = client.newConsumer()
                    .topic(topic)
                    .subscriptionName("gone")
                    .subscriptionType(SubscriptionType.Shared)
                    .subscribe();
            producer.send("input".getBytes());
            Transaction open = begin();
            acknowledge(kept, next(kept, 1), open);
            acknowledge(gone, next(gone, 1), open);
            send(producer, "output", open);
            gone.unsubscribe();
            open.commit().get();
            same(text(next(kept)), "output");
            nothing(kept);
        }
    }

    /** The other cluster gets what was committed, as plain messages. */
    private void replication() throws Exception {
        String topic = "persistent://geo/clients/" + options.get("prefix");
        try (PulsarClient there = PulsarClient.builder().serviceUrl(options.get("other")).build();
                Consumer<byte[]> here = consumer(Schema.BYTES, topic, SubscriptionType.Shared).subscribe();
                Consumer<byte[]> consumer = there.newConsumer()
                        .topic(topic)
                        .subscriptionName("s")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            Pair pair = new Pair("replication");
            List<String> committed = publishBoth(pair, here, producer);
            same(sorted(texts(next(here, COUNT))), committed);
            same(texts(next(consumer, COUNT)), committed);
            nothing(consumer);
        }
    }
}
