package interop;

import static interop.Checks.check;
import static interop.Checks.expect;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;

/** What the broker writes in front of entries, as an application of the official Java client sees it. */
public final class EntryMetadata {
    private static final int SECONDS = 30;
    private static final int BATCH = 5;
    private static final int COUNT = 3 + BATCH;

    private final PulsarClient client;
    private final String prefix;
    private final boolean exposed;

    private EntryMetadata(String url, String prefix, boolean exposed) throws PulsarClientException {
        this.prefix = prefix;
        this.exposed = exposed;
        client = PulsarClient.builder().serviceUrl(url).build();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Checks.options(arguments);
        boolean exposed = !options.get("prefix").endsWith("hidden");
        EntryMetadata run = new EntryMetadata(options.get("url"), options.get("prefix"), exposed);
        for (SubscriptionType type : SubscriptionType.values()) {
            check(type.name(), COUNT, () -> run.consumed(type));
        }
        check("reader", COUNT, run::read);
        run.client.close();
    }

    private String topic(String name) {
        return "persistent://public/default/" + prefix + "-" + name;
    }

    /** Three messages alone, then a batch. */
    private void publish(String topic) throws Exception {
        try (Producer<byte[]> alone = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int number = 0; number < COUNT - BATCH; number++) {
                alone.newMessage().key("k").value(new byte[] {(byte) number}).send();
            }
        }
        try (Producer<byte[]> together = client.newProducer()
                .topic(topic)
                .batchingMaxMessages(BATCH)
                .batchingMaxPublishDelay(SECONDS, TimeUnit.SECONDS)
                .create()) {
            for (int number = COUNT - BATCH; number < COUNT; number++) {
                together.newMessage().key("k").value(new byte[] {(byte) number}).sendAsync();
            }
            together.flush();
        }
    }

    private void consumed(SubscriptionType type) throws Exception {
        String topic = topic(type.name());
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionType(type)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .subscribe()) {
            long before = System.currentTimeMillis();
            publish(topic);
            List<Message<byte[]>> messages = new ArrayList<>();
            for (int number = 0; number < COUNT; number++) {
                messages.add(consumer.receive(SECONDS, TimeUnit.SECONDS));
            }
            look(messages, before);
            messages.forEach(consumer::negativeAcknowledge);
            messages.clear();
            for (int number = 0; number < COUNT; number++) {
                messages.add(consumer.receive(SECONDS, TimeUnit.SECONDS));
            }
            look(messages, before);
        }
    }

    private void read() throws Exception {
        String topic = topic("reader");
        long before = System.currentTimeMillis();
        publish(topic);
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            List<Message<byte[]>> messages = new ArrayList<>();
            for (int number = 0; number < COUNT; number++) {
                messages.add(reader.readNext(SECONDS, TimeUnit.SECONDS));
            }
            look(messages, before);
        }
    }

    private void look(List<Message<byte[]>> messages, long before) throws Checks.Failed {
        for (Message<byte[]> message : messages) {
            expect(message != null, "a message does not come");
            int number = message.getData()[0];
            if (!exposed) {
                expect(message.getIndex().isEmpty() && message.getBrokerPublishTime().isEmpty(), "seen by everybody");
                continue;
            }
            expect(message.getIndex().isPresent(), number + " has no index");
            expect(message.getIndex().get() == number, number + " has index " + message.getIndex().get());
            long at = message.getBrokerPublishTime().orElse(0L);
            expect(at >= before && at <= System.currentTimeMillis(), number + " was taken at " + at);
        }
    }
}
