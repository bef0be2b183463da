package interop;

import static interop.Checks.check;
import static interop.Checks.expect;
import static interop.Checks.say;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Subscription types and acknowledgement, as an application of the official Java client meets them. */
public final class Subscriptions {
    private static final int SECONDS = 30;

    private final PulsarClient client;
    private final String prefix;

    private Subscriptions(String url, String prefix) throws PulsarClientException {
        this.prefix = prefix;
        client = PulsarClient.builder().serviceUrl(url).startingBackoffInterval(50, TimeUnit.MILLISECONDS).build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Checks.options(arguments);
        Subscriptions run = new Subscriptions(options.get("url"), options.get("prefix"));
        check("failover", 10, run::failover);
        check("key-shared", 300, run::keyShared);
        check("key-shared-sticky", 40, run::sticky);
        check("cumulative-on-shared", 1, run::cumulativeOnShared);
        check("negative-acknowledgement", 3, run::negativeAcknowledgement);
        check("acknowledgement-timeout", 3, run::acknowledgementTimeout);
        check("dead-letter", 3, run::deadLetter);
        check("dead-letter-topic", 1, run::deadLetterTopic);
        check("retry-letter", 3, run::retryLetter);
        check("retry-letter-topic", 3, run::retryLetterTopic);
        check("over-a-kill", 20, run::overAKill);
        run.client.close();
    }

    private String topic(String name) {
        return "persistent://public/default/" + prefix + "-" + name;
    }

    private ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .subscriptionType(type);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    private static Message<byte[]> next(Consumer<byte[]> consumer, String what) throws Exception {
        Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
        expect(message != null, what + " did not arrive");
        return message;
    }

    private static void await(BooleanSupplier condition, String what) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!condition.getAsBoolean()) {
            expect(System.nanoTime() < end, "never: " + what);
            Thread.sleep(10);
        }
    }

    /** Sends the numbers below {@code count}. */
    private void send(String topic, int count) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int index = 0; index < count; index++) {
                producer.send(bytes("" + index));
            }
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
        Consumer<byte[]> first = consumer(topic, SubscriptionType.Failover)
                .consumerName("first").priorityLevel(0).consumerEventListener(listener).subscribe();
        await(() -> Boolean.TRUE.equals(active.get("first")), "the first consumer is active");
        Consumer<byte[]> second = consumer(topic, SubscriptionType.Failover)
                .consumerName("second").priorityLevel(1).consumerEventListener(listener).subscribe();
        await(() -> Boolean.FALSE.equals(active.get("second")), "the second consumer is inactive");
        send(topic, 10);
        for (int index = 0; index < 5; index++) {
            Message<byte[]> message = next(first, "message " + index);
            expect(text(message).equals("" + index), text(message) + " in place of " + index);
            expect(message.getRedeliveryCount() == 0, "a redelivery count");
            if (index < 3) {
                first.acknowledge(message);
            }
        }
        first.close();
        for (int index = 3; index < 10; index++) {
            Message<byte[]> message = next(second, "message " + index);
            expect(text(message).equals("" + index), text(message) + " in place of " + index);
        }
        // Listeners are called on a thread of their own, maybe after the first messages.
        await(() -> Boolean.TRUE.equals(active.get("second")), "the second consumer was told");
        second.close();
    }

    private void keyShared() throws Exception {
        String topic = topic("key-shared");
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int index = 0; index < 3; index++) {
            consumers.add(consumer(topic, SubscriptionType.Key_Shared).consumerName("c" + index).subscribe());
        }
        try (Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .batchingMaxPublishDelay(5, TimeUnit.MILLISECONDS)
                .create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int index = 0; index < 300; index++) {
                sent.add(producer.newMessage().keyBytes(new byte[] {(byte) (index % 10), (byte) 200})
                        .value(bytes("" + index)).sendAsync());
            }
            for (CompletableFuture<MessageId> each : sent) {
                each.get(SECONDS, TimeUnit.SECONDS);
            }
        }
        Map<Integer, Integer> owners = new HashMap<>();
        Map<Integer, Integer> last = new HashMap<>();
        int received = 0;
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (received < 300) {
            expect(System.nanoTime() < end, "only " + received + " messages");
            for (int index = 0; index < consumers.size(); index++) {
                Message<byte[]> message = consumers.get(index).receive(10, TimeUnit.MILLISECONDS);
                if (message == null) {
                    continue;
                }
                int number = Integer.parseInt(text(message));
                int key = message.getKeyBytes()[0];
                expect(number % 10 == key, number + " with key " + key);
                Integer owner = owners.putIfAbsent(key, index);
                expect(owner == null || owner == index, "key " + key + " at two consumers");
                Integer before = last.put(key, number);
                expect(before == null || before + 10 == number, number + " after " + before);
                consumers.get(index).acknowledge(message);
                received++;
            }
        }
        expect(new HashSet<>(owners.values()).size() > 1, "all keys at one consumer");
        for (Consumer<byte[]> each : consumers) {
            each.close();
        }
    }

    private void sticky() throws Exception {
        String topic = topic("sticky");
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Key_Shared);
        Consumer<byte[]> low = builder.clone()
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 32767))).subscribe();
        try {
            builder.clone().keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(30000, 65535)))
                    .subscribe();
            expect(false, "overlapping ranges were let in");
        } catch (PulsarClientException.ConsumerAssignException wanted) {
            expect(wanted.getMessage().contains("Range conflict"), wanted.getMessage());
        }
        Consumer<byte[]> high = builder.clone()
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(32768, 65535))).subscribe();
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int index = 0; index < 40; index++) {
                producer.newMessage().key("key-" + index).value(bytes("" + index)).send();
            }
        }
        Set<String> seen = new TreeSet<>();
        for (Consumer<byte[]> each : List.of(low, high)) {
            int before = seen.size();
            Message<byte[]> message = next(each, "a message");
            while (message != null) {
                seen.add(text(message));
                each.acknowledge(message);
                message = each.receive(500, TimeUnit.MILLISECONDS);
            }
            expect(seen.size() > before, "a consumer without messages");
            each.close();
        }
        expect(seen.size() == 40, seen.size() + " messages of 40");
    }

    private void cumulativeOnShared() throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Shared, SubscriptionType.Key_Shared)) {
            String topic = topic("cumulative-" + type);
            Consumer<byte[]> consumer = consumer(topic, type).subscribe();
            send(topic, 1);
            Message<byte[]> message = next(consumer, "the message");
            try {
                consumer.acknowledgeCumulative(message);
                expect(false, "a cumulative acknowledgement on " + type);
            } catch (PulsarClientException.InvalidConfigurationException wanted) {
                consumer.acknowledge(message);
            }
            consumer.close();
        }
    }

    private void negativeAcknowledgement() throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Shared, SubscriptionType.Key_Shared)) {
            String topic = topic("nack-" + type);
            Consumer<byte[]> consumer = consumer(topic, type).subscribe();
            send(topic, 1);
            for (int count = 0; count < 3; count++) {
                Message<byte[]> message = next(consumer, "delivery " + count);
                expect(message.getRedeliveryCount() == count, message.getRedeliveryCount() + " in place of " + count);
                if (count < 2) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            consumer.close();
        }
    }

    private void acknowledgementTimeout() throws Exception {
        String topic = topic("timeout");
        Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS).ackTimeoutTickTime(100, TimeUnit.MILLISECONDS).subscribe();
        send(topic, 1);
        for (int count = 0; count < 3; count++) {
            Message<byte[]> message = next(consumer, "delivery " + count);
            expect(message.getRedeliveryCount() == count, message.getRedeliveryCount() + " in place of " + count);
        }
        consumer.close();
    }

    private void deadLetter() throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Shared, SubscriptionType.Key_Shared)) {
            String topic = topic("dead-" + type);
            Consumer<byte[]> dead = consumer(topic + "-s-DLQ", SubscriptionType.Exclusive).subscribe();
            Consumer<byte[]> consumer = consumer(topic, type)
                    .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
            send(topic, 1);
            for (int count = 0; count < 3; count++) {
                consumer.negativeAcknowledge(next(consumer, "delivery " + count));
            }
            Message<byte[]> letter = next(dead, "the dead letter");
            expect(text(letter).equals("0"), text(letter));
            expect(letter.getProperty("REAL_TOPIC").equals(topic), "" + letter.getProperties());
            expect(letter.getProperties().containsKey("ORIGIN_MESSAGE_ID"), "" + letter.getProperties());
            dead.acknowledge(letter);
            expect(consumer.receive(500, TimeUnit.MILLISECONDS) == null, "delivered again after it was dead");
            consumer.close();
            dead.close();
        }
    }

    /** A topic of the application's own; the subscription that keeps its letters comes with their producer. */
    private void deadLetterTopic() throws Exception {
        String topic = topic("dead-own");
        String letters = topic("letters");
        Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(1)
                        .deadLetterTopic(letters)
                        .initialSubscriptionName("kept")
                        .build())
                .subscribe();
        send(topic, 1);
        for (int count = 0; count < 2; count++) {
            consumer.negativeAcknowledge(next(consumer, "delivery " + count));
        }
        expect(consumer.receive(1, TimeUnit.SECONDS) == null, "delivered again after it was dead");
        Consumer<byte[]> dead = client.newConsumer().topic(letters).subscriptionName("kept").subscribe();
        Message<byte[]> letter = next(dead, "the dead letter");
        expect(letter.getProperty("REAL_TOPIC").equals(topic), "" + letter.getProperties());
        dead.acknowledge(letter);
        consumer.close();
        dead.close();
    }

    private void retryLetter() throws Exception {
        String topic = topic("retry");
        retried(topic, topic + "-s-RETRY", topic + "-s-DLQ", DeadLetterPolicy.builder().maxRedeliverCount(2).build());
    }

    private void retryLetterTopic() throws Exception {
        String retries = topic("own-retries");
        String letters = topic("own-letters");
        retried(topic("retry-own"), retries, letters, DeadLetterPolicy.builder()
                .maxRedeliverCount(2)
                .retryLetterTopic(retries)
                .deadLetterTopic(letters)
                .build());
    }

    private void retried(String topic, String retries, String letters, DeadLetterPolicy policy) throws Exception {
        Consumer<byte[]> dead = consumer(letters, SubscriptionType.Exclusive).subscribe();
        Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared)
                .enableRetry(true)
                .deadLetterPolicy(policy)
                .subscribe();
        send(topic, 1);
        for (int count = 0; count < 3; count++) {
            Message<byte[]> message = next(consumer, "delivery " + count);
            String wanted = count == 0 ? topic : retries;
            expect(message.getTopicName().equals(wanted), message.getTopicName() + " in place of " + wanted);
            consumer.reconsumeLater(message, 100, TimeUnit.MILLISECONDS);
        }
        Message<byte[]> letter = next(dead, "the dead letter");
        expect(text(letter).equals("0"), text(letter));
        expect(letter.getProperty("RECONSUMETIMES").equals("3"), "" + letter.getProperties());
        dead.acknowledge(letter);
        consumer.close();
        dead.close();
    }

    /** What was acknowledged, single messages of batches included, does not come again after a SIGKILL. */
    private void overAKill() throws Exception {
        String topic = topic("kill");
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Shared)
                .enableBatchIndexAcknowledgment(true).isAckReceiptEnabled(true);
        Consumer<byte[]> consumer = builder.clone().subscribe();
        try (Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .batchingMaxMessages(10)
                .batchingMaxPublishDelay(10, TimeUnit.SECONDS)
                .create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int index = 0; index < 20; index++) {
                sent.add(producer.sendAsync(bytes("" + index)));
            }
            for (CompletableFuture<MessageId> each : sent) {
                each.get(SECONDS, TimeUnit.SECONDS);
            }
        }
        Set<Integer> left = new TreeSet<>();
        List<CompletableFuture<Void>> acknowledged = new ArrayList<>();
        for (int index = 0; index < 20; index++) {
            Message<byte[]> message = next(consumer, "message " + index);
            int number = Integer.parseInt(text(message));
            if (number >= 10 || number % 3 == 0) {
                acknowledged.add(consumer.acknowledgeAsync(message));
            } else {
                left.add(number);
            }
        }
        for (CompletableFuture<Void> each : acknowledged) {
            each.get(SECONDS, TimeUnit.SECONDS);
        }
        // A receipt says that it is recorded; it is on the disk with the cursor's next write.
        Thread.sleep(1000);
        say("{\"event\": \"restart\"}");
        System.in.read();
        Set<Integer> again = new TreeSet<>();
        while (again.size() < left.size()) {
            Message<byte[]> message = next(consumer, "what is left: " + again + " of " + left);
            again.add(Integer.parseInt(text(message)));
            consumer.acknowledge(message);
        }
        expect(again.equals(left), again + " came again, " + left + " was not acknowledged");
        Message<byte[]> more = consumer.receive(500, TimeUnit.MILLISECONDS);
        expect(more == null, "one more message");
        consumer.close();
    }
}
