package interop;

import static interop.Checks.check;
import static interop.Checks.expect;
import static interop.Checks.say;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;

/** The official Java client through every scenario; see ../README.md. */
public final class Client {
    private static final int TIMEOUT_SECONDS = 30;
    private static final int SHARED_MESSAGES = 1000;

    private final String url;
    private final String prefix;
    private final int messages;
    private final int syncMessages;
    private final PulsarClient client;

    private Client(Map<String, String> options) throws PulsarClientException {
        url = options.get("url");
        prefix = options.get("prefix");
        messages = Integer.parseInt(options.getOrDefault("messages", "10000"));
        syncMessages = Integer.parseInt(options.getOrDefault("sync-messages", "500"));
        client = PulsarClient.builder().serviceUrl(url).startingBackoffInterval(50, TimeUnit.MILLISECONDS).build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Checks.options(arguments);
        Client run = new Client(options);
        switch (options.get("scenario")) {
            case "async-batched" -> run.asynchronous(true);
            case "async-unbatched" -> run.asynchronous(false);
            case "sync-batched" -> run.synchronous(true);
            case "sync-unbatched" -> run.synchronous(false);
            case "reader" -> run.reader();
            case "seek" -> run.seek();
            case "shared" -> run.shared();
            case "exclusive" -> run.exclusive();
            case "restart" -> run.restart();
            default -> throw new IllegalArgumentException(options.get("scenario"));
        }
        run.client.close();
    }

    private static byte[] payload(int index) {
        return (index + ":" + "x".repeat(index % 100)).getBytes(StandardCharsets.UTF_8);
    }

    private static int number(byte[] payload) {
        String text = new String(payload, StandardCharsets.UTF_8);
        return Integer.parseInt(text.substring(0, text.indexOf(':')));
    }

    private static String name(boolean batched) {
        return batched ? "batched" : "unbatched";
    }

    private String topic(String name) {
        return "persistent://public/default/" + prefix + "-" + name;
    }

    private Producer<byte[]> producer(String topic, boolean batched, CompressionType codec) throws Exception {
        return client.newProducer()
                .topic(topic)
                .enableBatching(batched)
                .batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                .compressionType(codec)
                .blockIfQueueFull(true)
                .maxPendingMessages(1000)
                .sendTimeout(TIMEOUT_SECONDS, TimeUnit.SECONDS)
                .create();
    }

    private ConsumerBuilder<byte[]> consumer(String topic) {
        return client.newConsumer().topic(topic).subscriptionName("s");
    }

    /** Subscribes and leaves: from now on the broker keeps all messages, consumed or not. */
    private void keep(String topic) throws Exception {
        client.newConsumer().topic(topic).subscriptionName("keep").subscribe().close();
    }

    private static List<MessageId> sendAll(Producer<byte[]> producer, int first, int count) throws Exception {
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int index = first; index < first + count; index++) {
            sent.add(producer.sendAsync(payload(index)));
        }
        producer.flush();
        List<MessageId> ids = new ArrayList<>();
        for (CompletableFuture<MessageId> each : sent) {
            ids.add(each.get(TIMEOUT_SECONDS, TimeUnit.SECONDS));
        }
        return ids;
    }

    private static void expectMessage(Message<byte[]> message, int index) throws Exception {
        expect(message != null, "message " + index + " did not arrive");
        byte[] wanted = payload(index);
        boolean equal = java.util.Arrays.equals(message.getData(), wanted);
        expect(equal, "message " + number(message.getData()) + " instead of " + index);
    }

    private static void receiveFrom(Consumer<byte[]> consumer, int first, int count) throws Exception {
        for (int index = first; index < first + count; index++) {
            Message<byte[]> message = consumer.receive(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            expectMessage(message, index);
            consumer.acknowledge(message);
        }
    }

    private static void expectNothing(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(300, TimeUnit.MILLISECONDS);
        expect(message == null, "an unexpected message");
    }

    private static void readFrom(Reader<byte[]> reader, int first, int count) throws Exception {
        for (int index = first; index < first + count; index++) {
            expectMessage(reader.readNext(TIMEOUT_SECONDS, TimeUnit.SECONDS), index);
        }
    }

    /** Receives and acknowledges with futures, each asking for the next. */
    private static CompletableFuture<Void> receiveAsync(Consumer<byte[]> consumer, int index, int end) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        receiveNext(consumer, index, end, done);
        return done;
    }

    private static void receiveNext(Consumer<byte[]> consumer, int index, int end, CompletableFuture<Void> done) {
        if (index == end) {
            done.complete(null);
            return;
        }
        consumer.receiveAsync().whenCompleteAsync((message, error) -> {
            try {
                expect(error == null, String.valueOf(error));
                expectMessage(message, index);
                consumer.acknowledgeAsync(message);
                receiveNext(consumer, index + 1, end, done);
            } catch (Exception failure) {
                done.completeExceptionally(failure);
            }
        });
    }

    private void asynchronous(boolean batched) {
        for (CompressionType codec : CompressionType.values()) {
            String topic = topic("async-" + batched + "-" + codec);
            check(codec + " " + name(batched) + " async", messages, () -> {
                try (Consumer<byte[]> consumer = consumer(topic).subscribe();
                        Producer<byte[]> producer = producer(topic, batched, codec)) {
                    CompletableFuture<Void> received = receiveAsync(consumer, 0, messages);
                    sendAll(producer, 0, messages);
                    received.get(60, TimeUnit.SECONDS);
                    expectNothing(consumer);
                }
            });
        }
    }

    private void synchronous(boolean batched) {
        for (CompressionType codec : CompressionType.values()) {
            String topic = topic("sync-" + batched + "-" + codec);
            check(codec + " " + name(batched) + " sync", syncMessages, () -> {
                try (Consumer<byte[]> consumer = consumer(topic).subscribe();
                        Producer<byte[]> producer = producer(topic, batched, codec)) {
                    for (int index = 0; index < syncMessages; index++) {
                        producer.send(payload(index));
                    }
                    receiveFrom(consumer, 0, syncMessages);
                    expectNothing(consumer);
                }
            });
        }
    }

    private void reader() throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            String topic = topic("reader-" + batched);
            keep(topic);
            try (Producer<byte[]> producer = producer(topic, batched, CompressionType.NONE)) {
                List<MessageId> ids = sendAll(producer, 0, 100);
                check("reader from earliest, " + name(batched), 100, () -> {
                    try (Reader<byte[]> reader =
                            client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
                        readFrom(reader, 0, 100);
                        expect(!reader.hasMessageAvailable(), "more than all messages available");
                    }
                });
                check("reader from an id, " + name(batched), 99, () -> {
                    try (Reader<byte[]> reader =
                            client.newReader().topic(topic).startMessageId(ids.get(50)).create()) {
                        readFrom(reader, 51, 49);
                    }
                    try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(ids.get(50))
                            .startMessageIdInclusive().create()) {
                        readFrom(reader, 50, 50);
                    }
                });
                check("reader from latest, " + name(batched), 10, () -> {
                    try (Reader<byte[]> reader =
                            client.newReader().topic(topic).startMessageId(MessageId.latest).create()) {
                        expect(!reader.hasMessageAvailable(), "a message available behind the latest");
                        sendAll(producer, 100, 10);
                        readFrom(reader, 100, 10);
                        expect(reader.readNext(300, TimeUnit.MILLISECONDS) == null, "an unexpected message");
                    }
                });
            }
        }
    }

    private void seek() throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            String topic = topic("seek-" + batched);
            keep(topic);
            try (Consumer<byte[]> consumer = consumer(topic).startMessageIdInclusive().subscribe();
                    Producer<byte[]> producer = producer(topic, batched, CompressionType.NONE)) {
                List<MessageId> ids = sendAll(producer, 0, 50);
                Thread.sleep(100);
                long between = System.currentTimeMillis();
                Thread.sleep(100);
                sendAll(producer, 50, 50);
                receiveFrom(consumer, 0, 100);
                check("seek to an id, " + name(batched), 70, () -> {
                    consumer.seek(ids.get(30));
                    receiveFrom(consumer, 30, 70);
                    expectNothing(consumer);
                });
                check("seek to a time, " + name(batched), 50, () -> {
                    consumer.seek(between);
                    receiveFrom(consumer, 50, 50);
                    expectNothing(consumer);
                });
                check("seek to earliest, " + name(batched), 100, () -> {
                    consumer.seek(MessageId.earliest);
                    receiveFrom(consumer, 0, 100);
                    expectNothing(consumer);
                });
            }
        }
    }

    private void shared() {
        String topic = topic("shared");
        check("two consumers share a subscription", SHARED_MESSAGES, () -> {
            List<List<Integer>> parts = new ArrayList<>();
            List<Consumer<byte[]>> consumers = new ArrayList<>();
            for (int index = 0; index < 2; index++) {
                List<Integer> part = Collections.synchronizedList(new ArrayList<>());
                parts.add(part);
                consumers.add(consumer(topic).subscriptionType(SubscriptionType.Shared).receiverQueueSize(50)
                        .messageListener((consumer, message) -> {
                            part.add(number(message.getData()));
                            consumer.acknowledgeAsync(message);
                        })
                        .subscribe());
            }
            try (Producer<byte[]> producer = producer(topic, false, CompressionType.NONE)) {
                sendAll(producer, 0, SHARED_MESSAGES);
            }
            await(60, () -> parts.get(0).size() + parts.get(1).size() >= SHARED_MESSAGES);
            Thread.sleep(200);
            for (Consumer<byte[]> consumer : consumers) {
                consumer.close();
            }
            List<Integer> sizes = List.of(parts.get(0).size(), parts.get(1).size());
            expect(sizes.get(0) + sizes.get(1) == SHARED_MESSAGES, sizes + " messages arrived");
            expect(sizes.get(0) > 0 && sizes.get(1) > 0, sizes + ": one consumer got nothing");
            Set<Integer> together = new HashSet<>(parts.get(0));
            together.addAll(parts.get(1));
            expect(together.size() == SHARED_MESSAGES, "a message is missing");
        });
    }

    private void exclusive() {
        String topic = topic("exclusive");
        check("a second exclusive consumer is refused", 10, () -> {
            Consumer<byte[]> first = consumer(topic).subscribe();
            try (PulsarClient other = PulsarClient.builder().serviceUrl(url).build()) {
                try {
                    other.newConsumer().topic(topic).subscriptionName("s").subscribe().close();
                    expect(false, "the second consumer was accepted");
                } catch (PulsarClientException.ConsumerBusyException refused) {
                    first.close();
                }
                try (Consumer<byte[]> second = other.newConsumer().topic(topic).subscriptionName("s").subscribe();
                        Producer<byte[]> producer = producer(topic, false, CompressionType.NONE)) {
                    sendAll(producer, 0, 10);
                    receiveFrom(second, 0, 10);
                }
            }
        });
    }

    private void restart() {
        check("nothing is lost over a restart", 0, () -> {
            Set<Integer> received = Collections.synchronizedSet(new LinkedHashSet<>());
            Consumer<byte[]> consumer = consumer(topic("restart")).messageListener((from, message) -> {
                received.add(number(message.getData()));
                from.acknowledgeAsync(message);
            }).subscribe();
            Producer<byte[]> producer = producer(topic("restart"), false, CompressionType.NONE);
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            sendPaced(producer, sent, () -> sent.size() >= 300);
            say("{\"event\": \"restart\"}");
            CompletableFuture<Integer> back = CompletableFuture.supplyAsync(Client::readByte);
            sendPaced(producer, sent, back::isDone);
            int behind = sent.size() + 300;
            sendPaced(producer, sent, () -> sent.size() >= behind);
            for (CompletableFuture<MessageId> each : sent) {
                each.get(60, TimeUnit.SECONDS);
            }
            await(60, () -> received.size() >= sent.size());
            expect(received.size() == sent.size(), received.size() + " messages received, " + sent.size() + " sent");
            int expected = 0;
            for (int each : received) {
                expect(each == expected, "message " + each + " first seen in place of " + expected);
                expected++;
            }
            producer.close();
            consumer.close();
        });
    }

    private static int readByte() {
        try {
            return System.in.read();
        } catch (java.io.IOException error) {
            throw new CompletionException(error);
        }
    }

    private static void sendPaced(
            Producer<byte[]> producer, List<CompletableFuture<MessageId>> sent, BooleanSupplier until)
            throws Exception {
        while (!until.getAsBoolean()) {
            sent.add(producer.sendAsync(payload(sent.size())));
            Thread.sleep(1);
        }
    }

    private static void await(int seconds, BooleanSupplier condition) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!condition.getAsBoolean() && System.nanoTime() < end) {
            Thread.sleep(20);
        }
    }
}
