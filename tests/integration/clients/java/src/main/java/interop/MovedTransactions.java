package interop;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Transactions of Java's client while their topic migrates to another cluster: {@code MovedTransactions URL TOPIC}. At "step migrate"
 * the program waits for a line; then the topic has migrated.
 */
public final class MovedTransactions {
    private MovedTransactions() {}

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build()) {
            Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s")
                    .subscriptionType(SubscriptionType.Shared).acknowledgmentGroupTime(0, TimeUnit.SECONDS)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            Producer<String> producer =
                    client.newProducer(Schema.STRING).topic(topic).sendTimeout(60, TimeUnit.SECONDS).create();
            producer.send("kept");
            producer.send("given back");
            Message<String> kept = consumer.receive();
            Message<String> back = consumer.receive();
            Transaction committed = begin(client, 60);
            producer.newMessage(committed).value("committed").send();
            consumer.acknowledgeAsync(kept.getMessageId(), committed).get();
            Transaction late = begin(client, 10);
            producer.newMessage(late).value("late").send();
            consumer.acknowledgeAsync(back.getMessageId(), late).get();
            System.out.println("step migrate");
            System.out.flush();
            System.in.read();
            committed.commit().get();
            for (int i = 0; i < 2; i++) {
                Message<String> message = consumer.receive();
                System.out.println("received " + message.getValue() + " " + message.getRedeliveryCount());
                consumer.acknowledge(message);
            }
            producer.send("there");
            Message<String> there = consumer.receive();
            System.out.println("received " + there.getValue());
            Transaction refused = begin(client, 60);
            try {
                producer.newMessage(refused).value("lost").send();
            } catch (Exception failure) {
                System.out.println("refused " + failure.getMessage());
            }
            try {
                refused.commit().get();
                System.out.println("committed");
            } catch (ExecutionException failure) {
                System.out.println("not committed");
            }
            producer.send("last");
            System.out.println("received " + consumer.receive().getValue());
        }
    }

    private static Transaction begin(PulsarClient client, int seconds) throws Exception {
        return client.newTransaction().withTransactionTimeout(seconds, TimeUnit.SECONDS).build().get();
    }
}
