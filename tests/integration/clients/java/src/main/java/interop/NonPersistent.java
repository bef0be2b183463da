package interop;

import static interop.Checks.check;
import static interop.Checks.expect;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.MessageIdImpl;

/** Non-persistent topics, as an application of the official Java client meets them; one entry is let into flight. */
public final class NonPersistent {
    private static final int SECONDS = 30;
    private static final int COUNT = 100;

    private final PulsarClient client;
    private final String prefix;

    private NonPersistent(String url, String prefix) throws PulsarClientException {
        this.prefix = prefix;
        client = PulsarClient.builder().serviceUrl(url).startingBackoffInterval(50, TimeUnit.MILLISECONDS).build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Checks.options(arguments);
        NonPersistent run = new NonPersistent(options.get("url"), options.get("prefix"));
        check("exclusive", COUNT, run::exclusive);
        check("failover", COUNT, run::failover);
        check("shared", COUNT, run::shared);
        check("key-shared", COUNT, run::keyShared);
        check("key-shared-sticky", COUNT, run::sticky);
        check("small-queue", COUNT, run::smallQueue);
        check("in-flight", COUNT, run::inFlight);
        check("reader", 1, run::reader);
        check("seek", 2, run::seek);
        check("negative-acknowledgement", 1, run::negativeAcknowledgement);
        check("partitioned", COUNT, run::partitioned);
        check("pattern", 2, run::pattern);
        run.client.close();
    }

    private String topic(String name) {
        return "non-persistent://public/default/" + prefix + "-" + name;
    }

    private ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) {
        return client.newConsumer().topic(topic).subscriptionName("s").subscriptionType(type);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    private static String next(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
        expect(message != null, "a message did not arrive");
        consumer.acknowledge(message);
        return text(message);
    }

    private static void nothingMore(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(300, TimeUnit.MILLISECONDS);
        expect(message == null, "somebody got a message too many");
    }

    private static void await(BooleanSupplier condition, String what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!condition.getAsBoolean()) {
            expect(System.nanoTime() < end, "never: " + what);
            Thread.sleep(10);
        }
    }

    /** A consumer's permits are sent a moment after it is subscribed, and what comes before them is dropped. */
    private static Consumer<byte[]> ready(ConsumerBuilder<byte[]> builder) throws Exception {
        Consumer<byte[]> consumer = builder.subscribe();
        Thread.sleep(300);
        return consumer;
    }

    private Producer<byte[]> producer(String topic) throws Exception {
        return client.newProducer().topic(topic).enableBatching(false).maxPendingMessages(1000).create();
    }

    /** Sends numbers, one after the other, each with one of ten keys. */
    private static void send(Producer<byte[]> producer, int from, int to) throws Exception {
        for (int index = from; index < to; index++) {
            MessageId id = producer.newMessage().key("k" + index % 25).value(bytes("" + index)).send();
            MessageIdImpl sent = (MessageIdImpl) id;
            expect(sent.getLedgerId() == 0 && sent.getEntryId() == 0, "the id is " + sent);
        }
    }

    private void inOrder(Consumer<byte[]> consumer, int from, int to) throws Exception {
        for (int index = from; index < to; index++) {
            String found = next(consumer);
            expect(found.equals("" + index), found + " in place of " + index);
        }
    }

    private void exclusive() throws Exception {
        String topic = topic("exclusive");
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, 1);
            Consumer<byte[]> consumer = ready(consumer(topic, SubscriptionType.Exclusive));
            send(producer, 1, COUNT);
            inOrder(consumer, 1, COUNT);
            try {
                consumer(topic, SubscriptionType.Exclusive).subscribe();
                throw new Checks.Failed("a second exclusive consumer");
            } catch (PulsarClientException.ConsumerBusyException expected) {
                nothingMore(consumer);
            }
            consumer.unsubscribe();
        }
    }

    private void failover() throws Exception {
        String topic = topic("failover");
        Map<String, Boolean> active = new ConcurrentHashMap<>();
        ConsumerEventListener listener = new ConsumerEventListener() {
            @Override
            public void becameActive(Consumer<?> consumer, int partition) {
                active.put(consumer.getConsumerName(), true);
            }

            @Override
            public void becameInactive(Consumer<?> consumer, int partition) {
                active.put(consumer.getConsumerName(), false);
            }
        };
        Consumer<byte[]> first = ready(consumer(topic, SubscriptionType.Failover)
                .consumerName("a").consumerEventListener(listener));
        await(() -> Boolean.TRUE.equals(active.get("a")), "the first consumer is active");
        Consumer<byte[]> second = ready(consumer(topic, SubscriptionType.Failover)
                .consumerName("b").consumerEventListener(listener));
        await(() -> Boolean.FALSE.equals(active.get("b")), "the second consumer is inactive");
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, COUNT / 2);
            inOrder(first, 0, COUNT / 2);
            first.close();
            await(() -> Boolean.TRUE.equals(active.get("b")), "the second consumer takes over");
            send(producer, COUNT / 2, COUNT);
            inOrder(second, COUNT / 2, COUNT);
        }
        second.close();
    }

    private void shared() throws Exception {
        String topic = topic("shared");
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int index = 0; index < 4; index++) {
            consumers.add(ready(consumer(topic, SubscriptionType.Shared)));
        }
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, COUNT);
        }
        Set<String> all = new TreeSet<>();
        for (Consumer<byte[]> consumer : consumers) {
            for (int index = 0; index < COUNT / 4; index++) {
                all.add(next(consumer));
            }
            nothingMore(consumer);
            consumer.close();
        }
        expect(all.size() == COUNT, "only " + all.size() + " different messages");
    }

    private void keyShared() throws Exception {
        keys(topic("key-shared"), KeySharedPolicy.autoSplitHashRange(), KeySharedPolicy.autoSplitHashRange());
    }

    private void sticky() throws Exception {
        keys(
                topic("sticky"),
                KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 32767)),
                KeySharedPolicy.stickyHashRange().ranges(Range.of(32768, 65535)));
        try {
            String topic = topic("overlap");
            KeySharedPolicy all = KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 65535));
            consumer(topic, SubscriptionType.Key_Shared).keySharedPolicy(all).subscribe();
            consumer(topic, SubscriptionType.Key_Shared).keySharedPolicy(all).subscribe();
            throw new Checks.Failed("overlapping ranges");
        } catch (PulsarClientException expected) {
            expect(expected.getMessage().contains("conflict"), expected.getMessage());
        }
    }

    private void keys(String topic, KeySharedPolicy one, KeySharedPolicy other) throws Exception {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (KeySharedPolicy policy : List.of(one, other)) {
            consumers.add(ready(consumer(topic, SubscriptionType.Key_Shared).keySharedPolicy(policy)));
        }
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, COUNT);
        }
        Map<String, Integer> holders = new HashMap<>();
        int came = 0;
        for (int holder = 0; holder < 2; holder++) {
            Map<String, Integer> last = new HashMap<>();
            Message<byte[]> message;
            while ((message = consumers.get(holder).receive(500, TimeUnit.MILLISECONDS)) != null) {
                came++;
                Integer before = holders.put(message.getKey(), holder);
                expect(before == null || before == holder, message.getKey() + " went to two consumers");
                int number = Integer.parseInt(text(message));
                expect(last.getOrDefault(message.getKey(), -1) < number, "out of order");
                last.put(message.getKey(), number);
            }
            consumers.get(holder).close();
        }
        expect(came == COUNT, came + " of " + COUNT + " messages came");
        expect(new TreeSet<>(holders.values()).size() == 2, "one consumer got everything");
    }

    private void smallQueue() throws Exception {
        String topic = topic("small-queue");
        Consumer<byte[]> small = ready(consumer(topic, SubscriptionType.Exclusive).receiverQueueSize(1));
        Consumer<byte[]> large = ready(client.newConsumer().topic(topic).subscriptionName("large").receiverQueueSize(1000));
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, COUNT);
        }
        inOrder(large, 0, COUNT);
        inOrder(small, 0, 1);
        nothingMore(small);
        small.close();
        large.close();
    }

    private void inFlight() throws Exception {
        String topic = topic("in-flight");
        Consumer<byte[]> consumer = ready(consumer(topic, SubscriptionType.Exclusive).receiverQueueSize(5000));
        int dropped = 0;
        int passed = 0;
        try (Producer<byte[]> producer = producer(topic)) {
            for (int attempt = 0; attempt < 30 && dropped == 0; attempt++) {
                List<CompletableFuture<MessageId>> sent = new ArrayList<>();
                for (int index = 0; index < COUNT; index++) {
                    sent.add(producer.sendAsync(bytes("" + index)));
                }
                for (CompletableFuture<MessageId> future : sent) {
                    MessageIdImpl id = (MessageIdImpl) future.get(SECONDS, TimeUnit.SECONDS);
                    if (id.getLedgerId() == -1) {
                        expect(id.getEntryId() == -1, "the id is " + id);
                        dropped++;
                    } else {
                        passed++;
                    }
                }
            }
        }
        expect(dropped > 0, "nothing was dropped");
        for (int index = 0; index < passed; index++) {
            next(consumer);
        }
        nothingMore(consumer);
        consumer.close();
    }

    private void reader() throws Exception {
        String topic = topic("reader");
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, 1);
            try (Reader<byte[]> reader =
                    client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
                Thread.sleep(300);
                send(producer, 1, 2);
                Message<byte[]> message = reader.readNext(SECONDS, TimeUnit.SECONDS);
                expect(message != null && text(message).equals("1"), "the reader got something else");
            }
        }
    }

    private void seek() throws Exception {
        String topic = topic("seek");
        Consumer<byte[]> consumer = ready(consumer(topic, SubscriptionType.Exclusive));
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, 1);
            inOrder(consumer, 0, 1);
            consumer.seekAsync(MessageId.earliest).get(SECONDS, TimeUnit.SECONDS);
            send(producer, 1, 2);
            inOrder(consumer, 1, 2);
        }
        consumer.close();
    }

    private void negativeAcknowledgement() throws Exception {
        String topic = topic("negative");
        Consumer<byte[]> consumer = ready(consumer(topic, SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS));
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 0, 1);
            Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
            expect(message != null, "the message did not arrive");
            consumer.negativeAcknowledge(message);
            nothingMore(consumer);
            send(producer, 1, 2);
            inOrder(consumer, 1, 2);
        }
        consumer.close();
    }

    private void partitioned() throws Exception {
        String topic = topic("partitioned");
        expect(client.getPartitionsForTopic(topic).get().size() == 4, "there are not four partitions");
        Consumer<byte[]> consumer = ready(consumer(topic, SubscriptionType.Failover));
        try (Producer<byte[]> producer = producer(topic)) {
            for (int index = 0; index < COUNT; index++) {
                producer.newMessage().key("k" + index % 25).value(bytes("" + index)).send();
            }
        }
        Set<String> all = new TreeSet<>();
        for (int index = 0; index < COUNT; index++) {
            all.add(next(consumer));
        }
        expect(all.size() == COUNT, "only " + all.size() + " different messages");
        consumer.close();
    }

    private void pattern() throws Exception {
        String passing = topic("pattern");
        String stored = passing.replace("non-persistent:", "persistent:");
        try (Producer<byte[]> one = producer(passing); Producer<byte[]> other = producer(stored)) {
            for (RegexSubscriptionMode mode : RegexSubscriptionMode.values()) {
                Consumer<byte[]> consumer = ready(client.newConsumer()
                        .topicsPattern(Pattern.compile("public/default/" + prefix + "-pattern"))
                        .subscriptionTopicsMode(mode)
                        .subscriptionName("s-" + mode)
                        );
                one.send(bytes("passing"));
                other.send(bytes("stored"));
                if (mode != RegexSubscriptionMode.PersistentOnly) {
                    expect(next(consumer).equals("passing") || mode == RegexSubscriptionMode.AllTopics, "" + mode);
                }
                if (mode != RegexSubscriptionMode.NonPersistentOnly) {
                    expect(next(consumer).equals("stored") || mode == RegexSubscriptionMode.AllTopics, "" + mode);
                }
                nothingMore(consumer);
                consumer.close();
            }
        }
    }
}
