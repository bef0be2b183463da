package interop;

import static interop.Checks.check;
import static interop.Checks.expect;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.ServiceUrlProvider;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.impl.AutoClusterFailover;

/** A client that goes to another cluster when its own does not answer, and comes back (PIP-121). */
public final class ClusterFailover {
    private static final int SECONDS = 30;
    private static final int MESSAGES = 3;

    private final String primary;
    private final String secondary;
    private final ServiceUrlProvider provider;
    private final PulsarClient client;
    private final Producer<byte[]> producer;
    private final Consumer<byte[]> consumer;

    private ClusterFailover(Map<String, String> options) throws Exception {
        primary = options.get("url");
        secondary = options.get("secondary");
        provider = AutoClusterFailover.builder()
                .primary(primary)
                .secondary(List.of(secondary))
                .failoverDelay(500, TimeUnit.MILLISECONDS)
                .switchBackDelay(500, TimeUnit.MILLISECONDS)
                .checkInterval(200, TimeUnit.MILLISECONDS)
                .build();
        client = PulsarClient.builder()
                .serviceUrlProvider(provider)
                .startingBackoffInterval(50, TimeUnit.MILLISECONDS)
                .maxBackoffInterval(500, TimeUnit.MILLISECONDS)
                .build();
        String topic = options.get("topic");
        producer = client.newProducer().topic(topic).enableBatching(false).create();
        consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    public static void main(String[] arguments) throws Exception {
        ClusterFailover run = new ClusterFailover(Checks.options(arguments));
        check("primary", MESSAGES, () -> run.exchange("first", run.primary));
        run.waitForTest();
        check("secondary", MESSAGES, () -> run.exchange("second", run.secondary));
        run.waitForTest();
        check("back", MESSAGES, () -> run.exchange("third", run.primary));
        run.client.close();
        run.provider.close();
    }

    /** The test ends the primary cluster, or starts it again. */
    private void waitForTest() throws Exception {
        Checks.say("{\"event\": \"restart\"}");
        expect(System.in.read() >= 0, "the test has ended");
        while (System.in.read() != '\n') {}
    }

    /** Publishes and consumes once the client is connected to the cluster at a URL. */
    private void exchange(String name, String url) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        while (!provider.getServiceUrl().equals(url)) {
            expect(System.nanoTime() < end, "the client is still at " + provider.getServiceUrl());
            Thread.sleep(50);
        }
        Set<String> wanted = new HashSet<>();
        for (int number = 0; number < MESSAGES; number++) {
            String text = name + " " + number;
            producer.send(text.getBytes(StandardCharsets.UTF_8));
            wanted.add(text);
        }
        while (!wanted.isEmpty()) {
            Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
            expect(message != null, wanted + " did not arrive");
            consumer.acknowledge(message);
            wanted.remove(new String(message.getData(), StandardCharsets.UTF_8));
        }
    }
}
