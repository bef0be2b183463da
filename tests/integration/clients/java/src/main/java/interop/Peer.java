package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.Time;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Date;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.impl.DefaultCryptoKeyReader;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * A client that does what a test tells it, one line after another: the other end of tests of Magnetar's client. A
 * request and its answer are lines of the form {@code name=value&name=value}, encoded as HTML forms are.
 */
public final class Peer {
    private static final int SECONDS = 30;

    /** The record of the tests. */
    public static final class Order {
        public int number;
        public String item;
    }

    private final PulsarClient client;
    private final Map<String, Producer<Object>> producers = new HashMap<>();
    private final Map<String, Consumer<Object>> consumers = new HashMap<>();
    private final Map<String, TableView<Object>> views = new HashMap<>();
    private final Map<String, String> schemas = new HashMap<>();
    private final Map<String, Message<Object>> received = new HashMap<>();
    private final List<CompletableFuture<MessageId>> sent = new ArrayList<>();

    private Peer(String url) throws Exception {
        client = PulsarClient.builder().serviceUrl(url).startingBackoffInterval(50, TimeUnit.MILLISECONDS).build();
    }

    public static void main(String[] arguments) throws Exception {
        Peer peer = new Peer(Checks.options(arguments).get("url"));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, String> answer = new LinkedHashMap<>();
            try {
                answer.put("ok", "true");
                peer.answer(decoded(line), answer);
            } catch (Exception error) {
                answer.clear();
                answer.put("error", error.getClass().getSimpleName());
                answer.put("reason", String.valueOf(error.getMessage()));
            }
            System.out.println(encoded(answer));
            System.out.flush();
        }
        // Closing the client would wait for the threads of its network for seconds.
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, String> decoded(String line) {
        Map<String, String> found = new LinkedHashMap<>();
        for (String pair : line.split("&")) {
            int split = pair.indexOf('=');
            found.put(
                    URLDecoder.decode(pair.substring(0, split), StandardCharsets.UTF_8),
                    URLDecoder.decode(pair.substring(split + 1), StandardCharsets.UTF_8));
        }
        return found;
    }

    private static String encoded(Map<String, String> values) {
        StringBuilder line = new StringBuilder();
        values.forEach((name, value) -> line.append(line.length() == 0 ? "" : "&")
                .append(URLEncoder.encode(name, StandardCharsets.UTF_8))
                .append('=')
                .append(URLEncoder.encode(value, StandardCharsets.UTF_8)));
        return line.toString();
    }

    private void answer(Map<String, String> asked, Map<String, String> answer) throws Exception {
        String id = asked.get("id");
        switch (asked.get("do")) {
            case "produce" -> produce(id, asked);
            case "send" -> send(id, asked);
            case "flush" -> flush(id, answer);
            case "consume" -> consume(id, asked);
            case "receive" -> receive(id, asked, answer);
            case "acknowledge" -> consumers.get(id).acknowledge(received.remove(id));
            case "negative-acknowledge" -> consumers.get(id).negativeAcknowledge(received.remove(id));
            case "reconsume" -> consumers.get(id)
                    .reconsumeLater(received.remove(id), Long.parseLong(asked.get("ms")), TimeUnit.MILLISECONDS);
            case "view" -> views.put(id, client.newTableView(schema(asked.getOrDefault("schema", "bytes")))
                    .topic(asked.get("topic"))
                    .create());
            case "contents" -> views.get(id).forEach((key, value) -> answer.put("." + key, text(value)));
            case "close" -> close(id);
            default -> throw new IllegalArgumentException(asked.get("do"));
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Schema<Object> schema(String name) {
        Schema found =
                switch (name) {
                    case "bytes" -> Schema.BYTES;
                    case "string" -> Schema.STRING;
                    case "int64" -> Schema.INT64;
                    case "json" -> Schema.JSON(Order.class);
                    case "avro" -> Schema.AVRO(Order.class);
                    case "separated" -> Schema.KeyValue(Schema.STRING, Schema.INT64, KeyValueEncodingType.SEPARATED);
                    case "inline" -> Schema.KeyValue(Schema.STRING, Schema.INT64, KeyValueEncodingType.INLINE);
                    case "separated-records" -> Schema.KeyValue(
                            Schema.AVRO(Order.class), Schema.JSON(Order.class), KeyValueEncodingType.SEPARATED);
                    case "inline-records" -> Schema.KeyValue(
                            Schema.JSON(Order.class), Schema.AVRO(Order.class), KeyValueEncodingType.INLINE);
                    case "DATE" -> Schema.DATE;
                    case "TIME" -> Schema.TIME;
                    case "TIMESTAMP" -> Schema.TIMESTAMP;
                    case "INSTANT" -> Schema.INSTANT;
                    case "LOCAL_DATE" -> Schema.LOCAL_DATE;
                    case "LOCAL_TIME" -> Schema.LOCAL_TIME;
                    case "LOCAL_DATE_TIME" -> Schema.LOCAL_DATE_TIME;
                    default -> throw new IllegalArgumentException(name);
                };
        return found;
    }

    private static Object value(String schema, String text) {
        return switch (schema) {
            case "bytes" -> Base64.getDecoder().decode(text);
            case "string" -> text;
            case "int64" -> Long.valueOf(text);
            case "separated", "inline" -> pair("string", "int64", text);
            case "separated-records", "inline-records" -> pair("json", "json", text);
            case "DATE" -> new Date(Long.parseLong(text));
            case "TIME" -> new Time(Long.parseLong(text));
            case "TIMESTAMP" -> new Timestamp(Long.parseLong(text));
            case "INSTANT" -> Instant.parse(text);
            case "LOCAL_DATE" -> LocalDate.parse(text);
            case "LOCAL_TIME" -> LocalTime.parse(text);
            case "LOCAL_DATE_TIME" -> LocalDateTime.parse(text);
            default -> {
                String[] parts = text.split("[:/]");
                Order order = new Order();
                order.number = Integer.parseInt(parts[0]);
                order.item = parts.length > 1 ? parts[1] : null;
                yield order;
            }
        };
    }

    /** Both parts with a colon between them; a part may be "null". */
    private static KeyValue<Object, Object> pair(String key, String value, String text) {
        String[] parts = text.split(":");
        return new KeyValue<>(
                parts[0].equals("null") ? null : value(key, parts[0]),
                parts[1].equals("null") ? null : value(value, parts[1]));
    }

    private static String text(Object value) {
        if (value instanceof byte[] bytes) {
            return Base64.getEncoder().encodeToString(bytes);
        }
        if (value instanceof Order order) {
            return order.item == null ? "" + order.number : order.number + ":" + order.item;
        }
        if (value instanceof KeyValue<?, ?> pair) {
            return text(pair.getKey()).replace(':', '/') + ":" + text(pair.getValue()).replace(':', '/');
        }
        if (value instanceof Date date) {
            return String.valueOf(date.getTime());
        }
        return String.valueOf(value);
    }

    private static CryptoKeyReader keys(Map<String, String> asked) {
        return DefaultCryptoKeyReader.builder()
                .defaultPublicKey("file://" + asked.get("public"))
                .defaultPrivateKey("file://" + asked.get("private"))
                .build();
    }

    private void produce(String id, Map<String, String> asked) throws Exception {
        String schema = asked.getOrDefault("schema", "bytes");
        String batching = asked.getOrDefault("batching", "none");
        ProducerBuilder<Object> builder = client.newProducer(schema(schema))
                .topic(asked.get("topic"))
                .enableBatching(!batching.equals("none"))
                .batchingMaxMessages(Integer.parseInt(asked.getOrDefault("batch", "1000")))
                .batchingMaxPublishDelay(10, TimeUnit.SECONDS)
                .compressionType(CompressionType.valueOf(asked.getOrDefault("compression", "NONE")));
        if (batching.equals("key")) {
            builder.batcherBuilder(BatcherBuilder.KEY_BASED);
        }
        if (asked.containsKey("chunk")) {
            builder.enableChunking(true).chunkMaxMessageSize(Integer.parseInt(asked.get("chunk")));
        }
        if (asked.containsKey("public")) {
            builder.addEncryptionKey("app.key").cryptoKeyReader(keys(asked));
        }
        producers.put(id, builder.create());
        schemas.put(id, schema);
    }

    /** Sends without waiting; flush waits. */
    private void send(String id, Map<String, String> asked) throws Exception {
        String schema = schemas.get(id);
        TypedMessageBuilder<Object> message = producers.get(id).newMessage();
        message.value(value(schema, asked.get("value")));
        if (asked.containsKey("key")) {
            message.key(asked.get("key"));
        }
        if (asked.containsKey("ordering")) {
            message.orderingKey(asked.get("ordering").getBytes(StandardCharsets.UTF_8));
        }
        if (asked.containsKey("event")) {
            message.eventTime(Long.parseLong(asked.get("event")));
        }
        asked.forEach((name, value) -> {
            if (name.startsWith(".")) {
                message.property(name.substring(1), value);
            }
        });
        sent.add(message.sendAsync());
    }

    /** Waits for all receipts; tells how many entries the messages are in. */
    private void flush(String id, Map<String, String> answer) throws Exception {
        producers.get(id).flush();
        Map<String, Integer> entries = new HashMap<>();
        for (CompletableFuture<MessageId> each : sent) {
            MessageIdAdv found = (MessageIdAdv) each.get(SECONDS, TimeUnit.SECONDS);
            entries.merge(found.getLedgerId() + ":" + found.getEntryId(), 1, Integer::sum);
        }
        answer.put("messages", String.valueOf(sent.size()));
        answer.put("entries", String.valueOf(entries.size()));
        sent.clear();
    }

    private void consume(String id, Map<String, String> asked) throws Exception {
        String schema = asked.getOrDefault("schema", "bytes");
        ConsumerBuilder<Object> builder = client.newConsumer(schema(schema))
                .topic(asked.get("topic"))
                .subscriptionName(asked.getOrDefault("subscription", "s"))
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscriptionType(SubscriptionType.valueOf(asked.getOrDefault("type", "Exclusive")))
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                .enableRetry(asked.containsKey("retry"));
        if (asked.containsKey("redeliver")) {
            builder.deadLetterPolicy(DeadLetterPolicy.builder()
                    .maxRedeliverCount(Integer.parseInt(asked.get("redeliver")))
                    .initialSubscriptionName("kept")
                    .build());
        }
        if (asked.containsKey("private")) {
            builder.cryptoKeyReader(keys(asked));
        }
        consumers.put(id, builder.subscribe());
    }

    private void receive(String id, Map<String, String> asked, Map<String, String> answer) throws Exception {
        int ms = Integer.parseInt(asked.get("ms"));
        Message<Object> message = consumers.get(id).receive(ms, TimeUnit.MILLISECONDS);
        if (message == null) {
            answer.put("error", "Timeout");
            return;
        }
        received.put(id, message);
        answer.put("value", text(message.getValue()));
        answer.put("topic", message.getTopicName());
        answer.put("redeliveries", String.valueOf(message.getRedeliveryCount()));
        answer.put("event", String.valueOf(message.getEventTime()));
        MessageIdAdv found = (MessageIdAdv) message.getMessageId();
        answer.put("position", found.getLedgerId() + ":" + found.getEntryId());
        answer.put("index", String.valueOf(found.getBatchIndex()));
        if (message.hasKey()) {
            answer.put("key", message.getKey());
        }
        if (message.hasOrderingKey()) {
            answer.put("ordering", new String(message.getOrderingKey(), StandardCharsets.UTF_8));
        }
        message.getProperties().forEach((name, value) -> answer.put("." + name, value));
    }

    private void close(String id) throws Exception {
        if (producers.containsKey(id)) {
            producers.remove(id).close();
        }
        if (consumers.containsKey(id)) {
            consumers.remove(id).close();
        }
        if (views.containsKey(id)) {
            views.remove(id).close();
        }
    }
}
