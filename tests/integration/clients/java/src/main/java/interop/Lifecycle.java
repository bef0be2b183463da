package interop;

import static interop.Checks.check;
import static interop.Checks.expect;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;

/** Backlog quotas and time to live; the namespaces life/hold, life/exception and life/ttl have them. */
public final class Lifecycle {
    private static final int SECONDS = 30;
    private static final int MOST = 400;

    private final PulsarClient client;

    private Lifecycle(String url) throws PulsarClientException {
        client = PulsarClient.builder()
                .serviceUrl(url)
                .startingBackoffInterval(50, TimeUnit.MILLISECONDS)
                .maxBackoffInterval(500, TimeUnit.MILLISECONDS)
                .operationTimeout(3, TimeUnit.SECONDS)
                .build();
    }

    public static void main(String[] arguments) throws Exception {
        Lifecycle run = new Lifecycle(Checks.options(arguments).get("url"));
        check("hold", 0, run::hold);
        check("exception", 0, run::exception);
        check("time-to-live", 10, run::timeToLive);
        run.client.close();
    }

    private Consumer<byte[]> consumer(String topic) throws PulsarClientException {
        return client.newConsumer().topic(topic).subscriptionName("s").subscribe();
    }

    private static byte[] payload(int number) {
        return String.format("%0200d", number).getBytes(StandardCharsets.UTF_8);
    }

    private static int take(Consumer<byte[]> consumer) throws Exception {
        Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
        expect(message != null, "nothing arrived");
        consumer.acknowledge(message);
        return Integer.parseInt(new String(message.getData(), StandardCharsets.UTF_8));
    }

    /** Whether it was stored before long; then the next one may follow in a moment. */
    private static boolean isAnswered(CompletableFuture<MessageId> sent) throws Exception {
        try {
            sent.get(2, TimeUnit.SECONDS);
        } catch (TimeoutException held) {
            return false;
        }
        Thread.sleep(100);
        return true;
    }

    /** Producers wait until there is room again; what they send arrives once. */
    private void hold() throws Exception {
        String topic = "persistent://life/hold/t";
        Consumer<byte[]> consumer = consumer(topic);
        Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .enableBatching(false)
                .sendTimeout(0, TimeUnit.SECONDS)
                .create();
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        do {
            expect(sent.size() < MOST, "nothing held the producer");
            sent.add(producer.sendAsync(payload(sent.size())));
        } while (isAnswered(sent.get(sent.size() - 1)));
        Thread.sleep(1500);
        expect(!sent.get(sent.size() - 1).isDone(), "it was held only for a moment");
        expect(!producer.isConnected(), "it is connected");
        for (int number = 0; number < sent.size(); number++) {
            int found = take(consumer);
            expect(found == number, found + " in place of " + number);
        }
        for (CompletableFuture<MessageId> each : sent) {
            each.get(SECONDS, TimeUnit.SECONDS);
        }
        expect(consumer.receive(500, TimeUnit.MILLISECONDS) == null, "one more message");
        producer.close();
        consumer.close();
    }

    /** Producers fail, and go on when there is room again. */
    private void exception() throws Exception {
        String topic = "persistent://life/exception/t";
        Consumer<byte[]> consumer = consumer(topic);
        Producer<byte[]> producer =
                client.newProducer().topic(topic).enableBatching(false).create();
        int stored = 0;
        try {
            for (; stored < MOST; stored++) {
                producer.send(payload(stored));
                Thread.sleep(100);
            }
            expect(false, "nothing stopped the producer");
        } catch (PulsarClientException.ProducerBlockedQuotaExceededException expected) {
            expect(stored > 0, "nothing was stored");
        }
        try {
            client.newProducer().topic(topic).create().close();
            expect(false, "another producer was let in");
        } catch (PulsarClientException.ProducerBlockedQuotaExceededException expected) {
            expect(expected.getMessage().contains("backlog quota exceeded"), expected.getMessage());
        }
        for (int number = 0; number < stored; number++) {
            take(consumer);
        }
        try (Producer<byte[]> other = client.newProducer().topic(topic).create()) {
            other.send(payload(7));
        }
        expect(take(consumer) == 7, "another message");
        producer.close();
        consumer.close();
    }

    /** What nobody acknowledges in time does not come again. */
    private void timeToLive() throws Exception {
        String topic = "persistent://life/ttl/t";
        Consumer<byte[]> consumer = consumer(topic);
        try (Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            for (int number = 0; number < 10; number++) {
                producer.send(payload(number));
            }
        }
        for (int number = 0; number < 10; number++) {
            expect(consumer.receive(SECONDS, TimeUnit.SECONDS) != null, number + " did not arrive");
        }
        Thread.sleep(4000);
        consumer.redeliverUnacknowledgedMessages();
        expect(consumer.receive(1, TimeUnit.SECONDS) == null, "it came again");
        consumer.close();
    }
}
