import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** A producer and a consumer of one topic: publishes each line that it reads, and prints it once it has come back. */
public final class FollowingClient {
    private FollowingClient() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Producer<byte[]> producer = client.newProducer().topic(arguments[1]).enableBatching(false).create();
                Consumer<byte[]> consumer =
                        client.newConsumer().topic(arguments[1]).subscriptionName("java").subscribe()) {
            System.out.println("ready");
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                producer.send(line.getBytes(StandardCharsets.UTF_8));
                String received = "";
                while (!received.equals(line)) {
                    Message<byte[]> message = consumer.receive(30, TimeUnit.SECONDS);
                    if (message == null) {
                        throw new IllegalStateException("nothing came back: " + line);
                    }
                    consumer.acknowledge(message);
                    received = new String(message.getData(), StandardCharsets.UTF_8);
                }
                System.out.println(line);
            }
        }
    }
}
