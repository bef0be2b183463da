package interop;

import static interop.Checks.check;
import static interop.Checks.expect;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;

/** Producers with exclusive access (PIP-68): a fenced one stays fenced, and one that waits gets its turn. */
public final class Leaders {
    private static final int SECONDS = 30;

    private final PulsarClient one;
    private final PulsarClient other;

    private Leaders(String url) throws PulsarClientException {
        one = client(url);
        other = client(url);
    }

    private static PulsarClient client(String url) throws PulsarClientException {
        return PulsarClient.builder()
                .serviceUrl(url)
                .startingBackoffInterval(50, TimeUnit.MILLISECONDS)
                .maxBackoffInterval(500, TimeUnit.MILLISECONDS)
                .operationTimeout(5, TimeUnit.SECONDS)
                .build();
    }

    public static void main(String[] arguments) throws Exception {
        Leaders run = new Leaders(Checks.options(arguments).get("url"));
        check("fencing", 3, run::fencing);
        check("waiting", 1, run::waiting);
        run.one.close();
        run.other.close();
    }

    private static CompletableFuture<Producer<byte[]>> producer(
            PulsarClient client, String topic, ProducerAccessMode mode) {
        return client.newProducer()
                .topic(topic)
                .accessMode(mode)
                .enableBatching(false)
                .createAsync();
    }

    private static void send(Producer<byte[]> producer, String text) throws PulsarClientException {
        producer.send(text.getBytes(StandardCharsets.UTF_8));
    }

    private static void expectNext(Consumer<byte[]> consumer, String text) throws Exception {
        Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
        expect(message != null, "nothing arrived in place of " + text);
        String found = new String(message.getData(), StandardCharsets.UTF_8);
        expect(found.equals(text), found + " in place of " + text);
    }

    /** The first leader never publishes again, however often its client connects. */
    private void fencing() throws Exception {
        String topic = "persistent://public/default/leaders-fencing";
        ProducerAccessMode mode = ProducerAccessMode.ExclusiveWithFencing;
        Consumer<byte[]> consumer =
                one.newConsumer().topic(topic).subscriptionName("s").subscribe();
        Producer<byte[]> first = producer(one, topic, mode).get(SECONDS, TimeUnit.SECONDS);
        send(first, "first");
        Producer<byte[]> second = producer(other, topic, mode).get(SECONDS, TimeUnit.SECONDS);
        send(second, "second");
        for (int attempt = 0; attempt < 3; attempt++) {
            try {
                send(first, "late");
                expect(false, "a fenced producer publishes");
            } catch (PulsarClientException.ProducerFencedException
                    | PulsarClientException.AlreadyClosedException expected) {
                Thread.sleep(500);
            }
            expect(second.isConnected(), "the new leader was disturbed");
        }
        send(second, "third");
        expectNext(consumer, "first");
        expectNext(consumer, "second");
        expectNext(consumer, "third");
        second.close();
        consumer.close();
    }

    /** It becomes the leader when the shared producers have left, though they try to come back. */
    private void waiting() throws Exception {
        String topic = "persistent://public/default/leaders-waiting";
        ProducerAccessMode shared = ProducerAccessMode.Shared;
        Producer<byte[]> first = producer(one, topic, shared).get(SECONDS, TimeUnit.SECONDS);
        Producer<byte[]> second = producer(one, topic, shared).get(SECONDS, TimeUnit.SECONDS);
        CompletableFuture<Producer<byte[]>> waiting = producer(other, topic, ProducerAccessMode.WaitForExclusive);
        Thread.sleep(1000);
        expect(!waiting.isDone(), "it did not wait");
        first.close();
        try {
            one.newProducer().topic(topic).create().close();
            expect(false, "a shared producer was let in before one that waits");
        } catch (PulsarClientException.ProducerBusyException expected) {
            expect(expected.getMessage().contains("waits for exclusive access"), expected.getMessage());
        }
        second.close();
        Producer<byte[]> leader = waiting.get(SECONDS, TimeUnit.SECONDS);
        send(leader, "mine");
        leader.close();
    }
}
