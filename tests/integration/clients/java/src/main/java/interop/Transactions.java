package interop;

import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Transactions with Java's client, for a recording of what it says: {@code Transactions URL PREFIX}. Before each step the program
 * prints "step" and its name, and waits for a line.
 */
public final class Transactions {
    private static final int TIMEOUT_SECONDS = 60;

    private Transactions() {}

    public static void main(String[] arguments) throws Exception {
        step("connect");
        String prefix = arguments[1];
        try (PulsarClient client =
                PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build()) {
            String topic = "persistent://public/default/" + prefix;
            step("producer and consumer");
            Producer<String> producer = client.newProducer(Schema.STRING).topic(topic).producerName("p")
                    .enableBatching(false).sendTimeout(0, TimeUnit.SECONDS).create();
            Consumer<String> consumer = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("s")
                    .subscriptionType(SubscriptionType.Shared).acknowledgmentGroupTime(0, TimeUnit.SECONDS)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            producer.send("plain 0");
            producer.send("plain 1");
            MessageId first = consumer.receive().getMessageId();
            MessageId second = consumer.receive().getMessageId();

            step("commit");
            Transaction committed = begin(client);
            producer.newMessage(committed).value("committed 0").send();
            producer.newMessage(committed).value("committed 1").send();
            consumer.acknowledgeAsync(first, committed).get();
            committed.commit().get();
            for (int i = 0; i < 2; i++) {
                Message<String> message = consumer.receive();
                System.out.println(" received " + message.getValue());
                consumer.acknowledge(message);
            }

            step("abort");
            Transaction aborted = begin(client);
            producer.newMessage(aborted).value("aborted 0").send();
            consumer.acknowledgeAsync(second, aborted).get();
            aborted.abort().get();
            producer.send("after the abort");
            // The message whose acknowledgement is undone comes again.
            for (int i = 0; i < 2; i++) {
                Message<String> next = consumer.receive();
                System.out.println(" received " + next.getValue() + " redelivered " + next.getRedeliveryCount());
                if (!next.getValue().equals("plain 1")) {
                    consumer.acknowledge(next);
                }
            }

            step("conflict");
            Transaction holder = begin(client);
            consumer.acknowledgeAsync(second, holder).get();
            Transaction other = begin(client);
            tell("acknowledge twice", () -> consumer.acknowledgeAsync(second, other).get());
            tell("abort", () -> other.abort().get());
            holder.commit().get();
            tell("commit again", () -> holder.commit().get());
            tell("abort after a commit", () -> holder.abort().get());
            consumer.close();

            step("cumulative");
            Consumer<String> failover = client.newConsumer(Schema.STRING).topic(topic).subscriptionName("c")
                    .subscriptionType(SubscriptionType.Failover).acknowledgmentGroupTime(0, TimeUnit.SECONDS)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
            Transaction cumulative = begin(client);
            failover.receive();
            failover.receive();
            failover.acknowledgeCumulativeAsync(failover.receive().getMessageId(), cumulative).get();
            cumulative.commit().get();
            failover.close();

            step("batch");
            String batches = topic + "-batches";
            Producer<String> batching = client.newProducer(Schema.STRING).topic(batches).producerName("b")
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS).batcherBuilder(BatcherBuilder.DEFAULT)
                    .sendTimeout(0, TimeUnit.SECONDS).create();
            Consumer<String> indexes = client.newConsumer(Schema.STRING).topic(batches).subscriptionName("s")
                    .subscriptionType(SubscriptionType.Shared).acknowledgmentGroupTime(0, TimeUnit.SECONDS)
                    .enableBatchIndexAcknowledgment(true).subscribe();
            Transaction batch = begin(client);
            for (int i = 0; i < 3; i++) {
                batching.newMessage(batch).value("batch " + i).sendAsync();
            }
            batching.flush();
            batch.commit().get();
            Transaction index = begin(client);
            indexes.receive();
            indexes.acknowledgeAsync(indexes.receive().getMessageId(), index).get();
            index.commit().get();

            step("several");
            Transaction several = begin(client);
            producer.newMessage(several).value("in two topics").send();
            batching.newMessage(several).value("in two topics").send();
            indexes.acknowledgeAsync(List.of(indexes.receive().getMessageId()), several).get();
            several.commit().get();

            step("time-out");
            Transaction late = client.newTransaction().withTransactionTimeout(2, TimeUnit.SECONDS).build().get();
            producer.newMessage(late).value("late").send();
            Thread.sleep(6000);
            tell("commit after the time-out", () -> late.commit().get());
            step("close");
        }
        step("end");
    }

    private static Transaction begin(PulsarClient client) throws Exception {
        Transaction begun = client.newTransaction().withTransactionTimeout(TIMEOUT_SECONDS, TimeUnit.SECONDS).build().get();
        System.out.println(" transaction " + begun.getTxnID());
        return begun;
    }

    private static void step(String name) throws Exception {
        System.out.println("step " + name);
        System.out.flush();
        if (System.in.read() < 0) {
            throw new IllegalStateException("the recorder has gone");
        }
    }

    private static void tell(String what, Checked action) throws Exception {
        try {
            action.run();
            System.out.println(" " + what + ": done");
        } catch (ExecutionException | PulsarClientException failure) {
            System.out.println(" " + what + ": " + failure.getClass().getName() + ": " + failure.getMessage());
        }
    }

    private interface Checked {
        void run() throws Exception;
    }
}
