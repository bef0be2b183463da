package interop;

import static interop.Checks.check;
import static interop.Checks.expect;
import static interop.Checks.say;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.MessageImpl;

/** What only the official Java client asks of a broker; the broker deduplicates. */
public final class Semantics {
    private static final int SECONDS = 30;

    private final PulsarClient client;
    private final String prefix;

    private Semantics(String url, String prefix) throws PulsarClientException {
        this.prefix = prefix;
        client = PulsarClient.builder().serviceUrl(url).startingBackoffInterval(50, TimeUnit.MILLISECONDS).build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Checks.options(arguments);
        Semantics run = new Semantics(options.get("url"), options.get("prefix"));
        check("priority", 8, run::priority);
        check("consumer-epoch", 100, run::consumerEpoch);
        check("subscription-properties", 0, run::subscriptionProperties);
        check("highest-sequence-id", 7, run::highestSequenceId);
        check("ordering-key", 80, run::orderingKey);
        check("out-of-order", 0, run::outOfOrder);
        check("transactions", 0, () -> transactions(options.get("url")));
        run.client.close();
    }

    /** A client with transactions is refused at once, and told of what. */
    private static void transactions(String url) throws Exception {
        try (PulsarClient refused = PulsarClient.builder().serviceUrl(url).enableTransaction(true).build()) {
            throw new IllegalStateException("a client with transactions was accepted");
        } catch (PulsarClientException error) {
            expect(error.getMessage().contains("Transactions are not enabled."), error.getMessage());
        }
    }

    private String topic(String name) {
        return "persistent://public/default/" + prefix + "-" + name;
    }

    private ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscriptionType(type);
    }

    private static byte[] bytes(long number) {
        return Long.toString(number).getBytes(StandardCharsets.UTF_8);
    }

    private static void receive(Consumer<byte[]> consumer, long first, int count) throws Exception {
        for (long number = first; number < first + count; number++) {
            Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
            expect(message != null, number + " did not arrive");
            String found = new String(message.getData(), StandardCharsets.UTF_8);
            expect(found.equals(Long.toString(number)), found + " in place of " + number);
        }
    }

    private static void expectNothing(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> more = consumer.receive(500, TimeUnit.MILLISECONDS);
        expect(more == null, "one more message");
    }

    /** Who is of a lower level gets what those above have no permits for. */
    private void priority() throws Exception {
        String topic = topic("priority");
        Consumer<byte[]> low = consumer(topic, SubscriptionType.Shared).priorityLevel(1).subscribe();
        Consumer<byte[]> high =
                consumer(topic, SubscriptionType.Shared).priorityLevel(0).receiverQueueSize(5).subscribe();
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int index = 0; index < 8; index++) {
                producer.send(bytes(index));
            }
        }
        receive(low, 5, 3);
        receive(high, 0, 5);
        low.close();
        high.close();
    }

    /** What was on its way when everything was asked for again is not taken for what comes again. */
    private void consumerEpoch() throws Exception {
        for (SubscriptionType type : List.of(SubscriptionType.Exclusive, SubscriptionType.Failover)) {
            String topic = topic("epoch-" + type);
            Consumer<byte[]> consumer = consumer(topic, type).receiverQueueSize(7).subscribe();
            try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
                List<CompletableFuture<MessageId>> sent = new ArrayList<>();
                for (int index = 0; index < 100; index++) {
                    sent.add(producer.sendAsync(bytes(index)));
                }
                for (int turn = 0; turn < 10; turn++) {
                    receiveFrom(consumer, turn, 1 + 3 * turn);
                    consumer.redeliverUnacknowledgedMessages();
                }
                for (CompletableFuture<MessageId> each : sent) {
                    each.get(SECONDS, TimeUnit.SECONDS);
                }
            }
            receiveFrom(consumer, 10, 100);
            expectNothing(consumer);
            consumer.close();
        }
    }

    /**
     * Messages from 0 on. The library forgets what it had received before it counts its epoch up: a message that
     * comes in between is given out although it carries the former epoch.
     */
    private static void receiveFrom(Consumer<byte[]> consumer, long epoch, int count) throws Exception {
        for (long number = 0; number < count; ) {
            Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
            expect(message != null, number + " did not arrive");
            String found = new String(message.getData(), StandardCharsets.UTF_8);
            if (number == 0 && ((MessageImpl<byte[]>) message).getConsumerEpoch() < epoch) {
                continue;
            }
            expect(found.equals(Long.toString(number)), found + " in place of " + number);
            number++;
        }
    }

    private void subscriptionProperties() throws Exception {
        consumer(topic("properties"), SubscriptionType.Shared)
                .subscriptionProperties(Map.of("team", "red", "since", "2026"))
                .subscribe()
                .close();
    }

    /** A producer goes on behind the last message of its last batch, also after a SIGKILL. */
    private void highestSequenceId() throws Exception {
        String topic = topic("highest");
        Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe();
        try (Producer<byte[]> producer = producer(topic)) {
            send(producer, 10, 11, 12, 13, 14, 15);
            expect(producer.getLastSequenceId() == 15, producer.getLastSequenceId() + " in place of 15");
        }
        receive(consumer, 10, 6);
        // Else they come again after the SIGKILL.
        consumer.close();
        say("{\"event\": \"restart\"}");
        System.in.read();
        consumer = consumer(topic, SubscriptionType.Exclusive).subscribe();
        receive(consumer, 10, 6);
        try (Producer<byte[]> producer = producer(topic)) {
            expect(producer.getLastSequenceId() == 15, producer.getLastSequenceId() + " after the restart");
            send(producer, 12, 13, 15);
            send(producer, 16);
        }
        receive(consumer, 16, 1);
        expectNothing(consumer);
        consumer.close();
    }

    private Producer<byte[]> producer(String topic) throws PulsarClientException {
        return client.newProducer()
                .topic(topic)
                .producerName("p")
                .batchingMaxMessages(100)
                .batchingMaxPublishDelay(10, TimeUnit.SECONDS)
                .create();
    }

    private static void send(Producer<byte[]> producer, long... numbers) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (long number : numbers) {
            sent.add(producer.newMessage().sequenceId(number).value(bytes(number)).sendAsync());
        }
        producer.flush();
        for (CompletableFuture<MessageId> each : sent) {
            each.get(SECONDS, TimeUnit.SECONDS);
        }
    }

    private int[] shares(Consumer<byte[]> first, Consumer<byte[]> second, int count) throws Exception {
        int[] shares = new int[2];
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (shares[0] + shares[1] < count) {
            expect(System.nanoTime() < deadline, shares[0] + " and " + shares[1] + " of " + count);
            if (first.receive(10, TimeUnit.MILLISECONDS) != null) {
                shares[0]++;
            }
            if (second.receive(10, TimeUnit.MILLISECONDS) != null) {
                shares[1]++;
            }
        }
        return shares;
    }

    /** The ordering key says who gets a message, and the key only where there is none. */
    private void orderingKey() throws Exception {
        String topic = topic("ordering-key");
        try (Consumer<byte[]> first = consumer(topic, SubscriptionType.Key_Shared).subscribe();
                Consumer<byte[]> second = consumer(topic, SubscriptionType.Key_Shared).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int number = 0; number < 40; number++) {
                producer.newMessage().key("k" + number).orderingKey(bytes(7)).value(bytes(number)).send();
            }
            int[] together = shares(first, second, 40);
            expect(together[0] == 0 || together[1] == 0, together[0] + " and " + together[1] + " of one ordering key");
            for (int number = 0; number < 40; number++) {
                producer.newMessage().key("k").orderingKey(bytes(number)).value(bytes(number)).send();
            }
            int[] apart = shares(first, second, 40);
            expect(apart[0] > 0 && apart[1] > 0, "one consumer got all ordering keys");
        }
    }

    private ConsumerBuilder<byte[]> keyShared(String topic, boolean outOfOrder) {
        return consumer(topic, SubscriptionType.Key_Shared)
                .keySharedPolicy(
                        KeySharedPolicy.autoSplitHashRange().setAllowOutOfOrderDelivery(outOfOrder));
    }

    /** Whoever joins must allow what the others allow. */
    private void outOfOrder() throws Exception {
        String topic = topic("out-of-order");
        try (Consumer<byte[]> first = keyShared(topic, true).subscribe();
                Consumer<byte[]> second = keyShared(topic, true).subscribe()) {
            expect(first.isConnected() && second.isConnected(), "not connected");
            try {
                keyShared(topic, false).subscribe().close();
            } catch (PulsarClientException refused) {
                return;
            }
            throw new IllegalStateException("one that wants order joined those that do not");
        }
    }
}
