package interop;

import static interop.Checks.check;
import static interop.Checks.expect;
import static interop.Checks.say;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.EncryptionKeyInfo;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.TableView;

/** Topics that are compacted, by whoever runs this, each time it asks for it. */
public final class Compaction {
    private static final int SECONDS = 30;

    private final PulsarClient client;
    private final BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));

    private Compaction(String url) throws PulsarClientException {
        client = PulsarClient.builder().serviceUrl(url).build();
    }

    public static void main(String[] arguments) throws Exception {
        Compaction run = new Compaction(Checks.options(arguments).get("url"));
        check("batches", 40, run::batches);
        check("null-values", 4, run::nullValues);
        check("table-view", 20, run::tableView);
        check("encrypted", 9, run::encrypted);
        check("subscription", 30, run::subscription);
        run.client.close();
    }

    private static String topic(String name) {
        return "persistent://public/default/java-" + name;
    }

    /** All topics that there are. */
    private void compact() throws Exception {
        say("{\"event\": \"restart\"}");
        expect("back".equals(answers.readLine()), "nobody compacts");
    }

    private ProducerBuilder<byte[]> batching(String topic, int size) {
        return client.newProducer()
                .topic(topic)
                .enableBatching(true)
                .batchingMaxMessages(size)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS);
    }

    private static byte[] bytes(long number) {
        return Long.toString(number).getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private ReaderBuilder<byte[]> compacted(String topic) {
        return client.newReader().topic(topic).startMessageId(MessageId.earliest).readCompacted(true);
    }

    private static List<String> read(ReaderBuilder<byte[]> builder) throws Exception {
        List<String> found = new ArrayList<>();
        try (Reader<byte[]> reader = builder.create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(SECONDS, TimeUnit.SECONDS);
                expect(message != null, "nothing after " + found);
                found.add(message.getKey() + "=" + text(message.getData()));
            }
        }
        return found;
    }

    private static void same(Object found, Object wanted) throws Checks.Failed {
        expect(found.equals(wanted), found + " in place of " + wanted);
    }

    /** What is gone from a batch is not handed out, and what is left keeps its id. */
    private void batches() throws Exception {
        String topic = topic("batches");
        Map<String, MessageId> ids = new HashMap<>();
        try (Producer<byte[]> producer = batching(topic, 7).create()) {
            for (int number = 0; number < 40; number++) {
                int last = number;
                producer.newMessage()
                        .key("k" + number % 5)
                        .value(bytes(number))
                        .sendAsync()
                        .thenAccept(id -> ids.put(Integer.toString(last), id));
            }
            producer.newMessage().value(bytes(99)).sendAsync();
            producer.flush();
        }
        compact();
        same(read(compacted(topic)), List.of("k0=35", "k1=36", "k2=37", "k3=38", "k4=39"));
        try (Reader<byte[]> reader = compacted(topic).create()) {
            Message<byte[]> first = reader.readNext(SECONDS, TimeUnit.SECONDS);
            same(first.getMessageId(), ids.get("35"));
            reader.seek(ids.get("37"));
            same(text(reader.readNext(SECONDS, TimeUnit.SECONDS).getData()), "38");
        }
    }

    private void nullValues() throws Exception {
        String topic = topic("nulls");
        for (boolean together : new boolean[] {true, false}) {
            try (Producer<byte[]> producer = batching(topic, 10).enableBatching(together).create()) {
                producer.newMessage().key("stays").value(bytes(1)).sendAsync();
                producer.newMessage().key("goes").value(bytes(2)).sendAsync();
                producer.newMessage().key("goes").value(null).sendAsync();
                producer.flush();
            }
            compact();
            same(read(compacted(topic)), List.of("stays=1"));
        }
    }

    private void tableView() throws Exception {
        String topic = topic("table");
        try (Producer<byte[]> producer = batching(topic, 6).create()) {
            for (int number = 0; number < 20; number++) {
                producer.newMessage().key("k" + number % 4).value(bytes(number)).sendAsync();
            }
            producer.flush();
            compact();
            producer.newMessage().key("k0").value(bytes(77)).send();
            producer.newMessage().key("k1").value(null).send();
            try (TableView<byte[]> view = client.newTableView(Schema.BYTES).topic(topic).create()) {
                Map<String, String> found = new HashMap<>();
                view.forEach((key, value) -> found.put(key, text(value)));
                same(found, Map.of("k0", "77", "k2", "18", "k3", "19"));
            }
        }
    }

    private static final class Keys implements CryptoKeyReader {
        private final KeyPair pair;

        Keys() throws Exception {
            KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
            generator.initialize(2048);
            pair = generator.generateKeyPair();
        }

        private static EncryptionKeyInfo info(String kind, byte[] encoded) {
            String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(encoded);
            String pem = "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n";
            return new EncryptionKeyInfo(pem.getBytes(StandardCharsets.US_ASCII), new HashMap<>());
        }

        @Override
        public EncryptionKeyInfo getPublicKey(String name, Map<String, String> metadata) {
            return info("PUBLIC KEY", pair.getPublic().getEncoded());
        }

        @Override
        public EncryptionKeyInfo getPrivateKey(String name, Map<String, String> metadata) {
            return info("PRIVATE KEY", pair.getPrivate().getEncoded());
        }
    }

    /** A batch that the broker cannot open stays as it is; single messages have their key outside. */
    private void encrypted() throws Exception {
        String topic = topic("encrypted");
        Keys keys = new Keys();
        try (Producer<byte[]> producer =
                batching(topic, 3).cryptoKeyReader(keys).addEncryptionKey("key").create()) {
            for (int number = 0; number < 6; number++) {
                producer.newMessage().key("k").value(bytes(number)).sendAsync();
            }
            producer.flush();
        }
        try (Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .enableBatching(false)
                .cryptoKeyReader(keys)
                .addEncryptionKey("key")
                .create()) {
            for (int number = 6; number < 9; number++) {
                producer.newMessage().key("k").value(bytes(number)).send();
            }
        }
        compact();
        same(
                read(compacted(topic).cryptoKeyReader(keys)),
                List.of("k=0", "k=1", "k=2", "k=3", "k=4", "k=5", "k=8"));
    }

    private void subscription() throws Exception {
        String topic = topic("subscription");
        try (Producer<byte[]> producer = batching(topic, 4).create()) {
            for (int number = 0; number < 30; number++) {
                producer.newMessage().key("k" + number % 3).value(bytes(number)).sendAsync();
            }
            producer.flush();
        }
        compact();
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .readCompacted(true)
                .subscribe()) {
            for (int number = 27; number < 30; number++) {
                Message<byte[]> message = consumer.receive(SECONDS, TimeUnit.SECONDS);
                expect(message != null, number + " did not arrive");
                same(text(message.getData()), Integer.toString(number));
                consumer.acknowledgeCumulative(message);
            }
        }
    }
}
