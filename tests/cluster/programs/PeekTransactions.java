import java.util.ArrayList;
import java.util.List;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.TransactionIsolationLevel;

/**
 * What `pulsar-admin topics peek-messages` shows, with each isolation level, with and without markers:
 * {@code PeekTransactions URL COUNT TOPIC/SUBSCRIPTION...}.
 */
public final class PeekTransactions {
    public static void main(String[] arguments) throws Exception {
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0]).build()) {
            for (int i = 2; i < arguments.length; i++) {
                String[] names = arguments[i].split("/");
                for (TransactionIsolationLevel level : TransactionIsolationLevel.values()) {
                    for (boolean markers : new boolean[] {false, true}) {
                        String answer = peek(admin, names, Integer.parseInt(arguments[1]), markers, level);
                        System.out.println(arguments[i] + "\t" + level + "\t" + markers + "\t" + answer);
                    }
                }
            }
        }
    }

    private static String peek(
            PulsarAdmin admin, String[] names, int count, boolean markers, TransactionIsolationLevel level) {
        List<String> found = new ArrayList<>();
        try {
            String topic = "persistent://public/default/" + names[0];
            for (Message<byte[]> message : admin.topics().peekMessages(topic, names[1], count, markers, level)) {
                found.add(message.getMessageId() + " " + new String(message.getData()) + " " + message.getProperties());
            }
        } catch (PulsarAdminException failure) {
            found.add(failure.getStatusCode() + " " + failure.getMessage());
        }
        return String.join("; ", found);
    }
}
