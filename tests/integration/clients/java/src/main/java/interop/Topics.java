package interop;

import static interop.Checks.check;
import static interop.Checks.expect;
import static interop.Checks.say;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageRouter;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TopicMetadata;
import org.apache.pulsar.client.impl.MultiTopicsConsumerImpl;
import org.apache.pulsar.common.naming.TopicName;

/** Topics that come, go and grow, as an application of the official Java client meets them. */
public final class Topics {
    private static final int SECONDS = 30;
    private static final int KEYS = 40;

    private final PulsarClient client;
    private final String prefix;
    private final BufferedReader operator =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Topics(String url, String prefix) throws PulsarClientException {
        this.prefix = prefix;
        client = PulsarClient.builder().serviceUrl(url).startingBackoffInterval(50, TimeUnit.MILLISECONDS).build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Checks.options(arguments);
        Topics run = new Topics(options.get("url"), options.get("prefix"));
        check("pattern", 4, () -> run.pattern("watched", RegexSubscriptionMode.PersistentOnly, 3600, "[a-z]+"));
        check("pattern-all", 4, () -> run.pattern("polled", RegexSubscriptionMode.AllTopics, 1, "[a-z]+"));
        check("pattern-look-ahead", 4,
                () -> run.pattern("ahead", RegexSubscriptionMode.PersistentOnly, 1, "(?!x)[a-z]+"));
        check("routing", 2 * KEYS, run::routing);
        check("list", 9, run::list);
        check("single-partition", 20, run::singlePartition);
        check("custom-router", 20, run::customRouter);
        check("growing", 8, run::growing);
        check("marks", 0, run::marks);
        check("read-compacted", 4, run::readCompacted);
        check("delayed", 1, run::delayed);
        check("reader-ranges", 20, run::readerRanges);
        run.client.close();
    }

    private String topic(String name) {
        return "persistent://public/default/" + prefix + "-" + name;
    }

    private ConsumerBuilder<byte[]> consumer() {
        return client.newConsumer()
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    /** What only an operator can do: the test does it now. */
    private void askOperator() throws Exception {
        say("{\"event\": \"restart\"}");
        expect("back".equals(operator.readLine()), "the operator is gone");
    }

    private MessageId send(String topic, String text) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            return producer.send(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    private static String next(Consumer<byte[]> consumer, String what) throws Exception {
        Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
        expect(message != null, what + " did not arrive");
        consumer.acknowledge(message);
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    private static void await(BooleanSupplier condition, String what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!condition.getAsBoolean()) {
            expect(System.nanoTime() < end, "never: " + what);
            Thread.sleep(10);
        }
    }

    private static Set<String> followed(Consumer<byte[]> consumer) {
        return new HashSet<>(((MultiTopicsConsumerImpl<byte[]>) consumer).getPartitions());
    }

    private void pattern(String name, RegexSubscriptionMode mode, int pollSeconds, String rest) throws Exception {
        String first = topic(name + "-a");
        String second = topic(name + "-b");
        send(first, "1");
        send(topic(name), "other");
        try (Consumer<byte[]> consumer = consumer()
                .topicsPattern(Pattern.compile("public/default/" + prefix + "-" + name + "-" + rest))
                .subscriptionTopicsMode(mode)
                .patternAutoDiscoveryPeriod(pollSeconds, TimeUnit.SECONDS)
                .subscribe()) {
            expect("1".equals(next(consumer, "the first message")), "another message");
            send(second, "2");
            expect("2".equals(next(consumer, "the message of the new topic")), "another message");
            askOperator();
            // It has deleted the second topic, and made one with two partitions.
            Set<String> wanted = Set.of(first, topic(name + "-p-partition-0"), topic(name + "-p-partition-1"));
            await(() -> followed(consumer).equals(wanted), "following " + wanted + " of " + followed(consumer));
            send(first, "3");
            expect("3".equals(next(consumer, "the message of the first topic")), "another message");
            send(topic(name + "-p"), "4");
            expect("4".equals(next(consumer, "the message of the partitioned topic")), "another message");
        }
    }

    /** Keys go to partitions; whoever reads the topics sees where those of all clients are. */
    private void routing() throws Exception {
        for (HashingScheme scheme : List.of(HashingScheme.JavaStringHash, HashingScheme.Murmur3_32Hash)) {
            try (Producer<byte[]> producer = client.newProducer()
                    .topic(topic(scheme.name()))
                    .hashingScheme(scheme)
                    .enableBatching(false)
                    .create()) {
                for (int number = 0; number < KEYS; number++) {
                    producer.newMessage().key("key-" + number).value("java".getBytes(StandardCharsets.UTF_8)).send();
                }
            }
        }
    }

    private void list() throws Exception {
        List<String> topics = List.of(topic("list-a"), topic("list-b"), topic("list-p"));
        try (Consumer<byte[]> consumer = consumer().topics(topics).subscribe()) {
            for (String topic : topics) {
                for (int number = 0; number < 3; number++) {
                    send(topic, "" + number);
                }
            }
            Map<String, String> seen = new HashMap<>();
            for (int number = 0; number < 9; number++) {
                Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
                expect(message != null, "message " + number + " did not arrive");
                consumer.acknowledge(message);
                String text = new String(message.getData(), StandardCharsets.UTF_8);
                String name = TopicName.get(message.getTopicName()).getPartitionedTopicName();
                seen.merge(name, text, String::concat);
            }
            expect(seen.keySet().equals(new HashSet<>(topics)), "messages of " + seen.keySet());
            // Those of a topic without partitions are in order.
            expect(seen.get(topics.get(0)).equals("012"), "messages in another order: " + seen);
        }
    }

    private void singlePartition() throws Exception {
        Set<String> names = routed(topic("single"), MessageRoutingMode.SinglePartition, null).keySet();
        expect(names.size() == 1, "messages in " + names);
    }

    private void customRouter() throws Exception {
        MessageRouter router = new MessageRouter() {
            @Override
            public int choosePartition(Message<?> message, TopicMetadata metadata) {
                return metadata.numPartitions() - 1 - Integer.parseInt(new String(message.getData())) % 2;
            }
        };
        String topic = topic("custom");
        Map<String, Set<Integer>> found = routed(topic, MessageRoutingMode.CustomPartition, router);
        expect(found.keySet().equals(Set.of(topic + "-partition-3", topic + "-partition-2")), "" + found);
        expect(found.get(topic + "-partition-3").stream().allMatch(each -> each % 2 == 0), "" + found);
        expect(found.get(topic + "-partition-2").stream().allMatch(each -> each % 2 == 1), "" + found);
    }

    /** Sends the numbers below 20; by partition those that came. */
    private Map<String, Set<Integer>> routed(String topic, MessageRoutingMode mode, MessageRouter router)
            throws Exception {
        Map<String, Set<Integer>> found = new HashMap<>();
        ProducerBuilder<byte[]> builder =
                client.newProducer().topic(topic).messageRoutingMode(mode).enableBatching(false);
        if (router != null) {
            builder.messageRouter(router);
        }
        try (Consumer<byte[]> consumer = consumer().topic(topic).subscribe();
                Producer<byte[]> producer = builder.create()) {
            for (int number = 0; number < 20; number++) {
                producer.send(("" + number).getBytes(StandardCharsets.UTF_8));
            }
            for (int number = 0; number < 20; number++) {
                Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
                expect(message != null, "message " + number + " did not arrive");
                consumer.acknowledge(message);
                int value = Integer.parseInt(new String(message.getData(), StandardCharsets.UTF_8));
                found.computeIfAbsent(message.getTopicName(), name -> new HashSet<>()).add(value);
            }
        }
        return found;
    }

    private void growing() throws Exception {
        String topic = topic("growing");
        try (Consumer<byte[]> consumer = consumer()
                        .topic(topic)
                        .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                        .subscribe();
                Producer<byte[]> producer = client.newProducer()
                        .topic(topic)
                        .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                        .enableBatching(false)
                        .create()) {
            expect(followed(consumer).size() == 2, "partitions: " + followed(consumer));
            askOperator();
            await(() -> followed(consumer).size() == 4, "four partitions followed");
            await(() -> producer.getNumOfPartitions() == 4, "four partitions published to");
            Set<String> texts = new TreeSet<>();
            for (int number = 0; number < 8; number++) {
                producer.send(("" + number).getBytes(StandardCharsets.UTF_8));
            }
            for (int number = 0; number < 8; number++) {
                texts.add(next(consumer, "message " + number));
            }
            expect(texts.size() == 8, "messages: " + texts);
        }
    }

    private void marks() throws Exception {
        consumer()
                .topic(topic("marks"))
                .subscriptionProperties(Map.of("a", "1", "b", "2"))
                .replicateSubscriptionState(true)
                .subscribe()
                .close();
        askOperator();
        consumer().topic(topic("marks")).subscribe().close();
    }

    private void readCompacted() throws Exception {
        String topic = topic("compacted");
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int number = 0; number < 4; number++) {
                producer.newMessage().key("k").value(("" + number).getBytes(StandardCharsets.UTF_8)).send();
            }
        }
        try (Consumer<byte[]> consumer = consumer()
                .topic(topic)
                .readCompacted(true)
                .subscriptionMode(SubscriptionMode.Durable)
                .subscribe()) {
            for (int number = 0; number < 4; number++) {
                String text = next(consumer, "message " + number);
                expect(text.equals("" + number), "message " + number + " is " + text);
            }
        }
    }

    private void delayed() throws Exception {
        String topic = topic("delayed");
        try (Consumer<byte[]> consumer = consumer()
                        .topic(topic)
                        .subscriptionType(SubscriptionType.Shared)
                        .subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            long due = System.currentTimeMillis() + 1000;
            producer.newMessage().value(new byte[] {'d'}).deliverAt(due).send();
            producer.newMessage().value(new byte[] {'n'}).send();
            expect("n".equals(next(consumer, "the message that does not wait")), "another message");
            expect("d".equals(next(consumer, "the delayed message")), "another message");
            expect(System.currentTimeMillis() >= due, "it came before its time");
        }
    }

    private void readerRanges() throws Exception {
        String topic = topic("ranges");
        // Without a subscription what was published may be trimmed.
        consumer().topic(topic).subscriptionName("keep").subscribe().close();
        Set<String> sent = new TreeSet<>();
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int number = 0; number < 20; number++) {
                sent.add("k" + number);
                producer.newMessage().key("k" + number).value(new byte[] {'m'}).send();
            }
        }
        Set<String> lower = keys(topic, Range.of(0, 32767));
        Set<String> upper = keys(topic, Range.of(32768, 65535));
        expect(!lower.isEmpty() && !upper.isEmpty(), "keys: " + lower + " and " + upper);
        Set<String> both = new TreeSet<>(lower);
        both.addAll(upper);
        expect(both.equals(sent) && lower.size() + upper.size() == 20, "keys: " + lower + " and " + upper);
    }

    private Set<String> keys(String topic, Range range) throws Exception {
        Set<String> keys = new TreeSet<>();
        try (Reader<byte[]> reader = client.newReader()
                .topic(topic)
                .startMessageId(MessageId.earliest)
                .keyHashRange(range)
                .create()) {
            Message<byte[]> message;
            while ((message = reader.readNext(1, TimeUnit.SECONDS)) != null) {
                keys.add(message.getKey());
            }
        }
        return keys;
    }
}
