package semantics;

import java.util.Properties;
import org.apache.pulsar.client.cli.PulsarClientTool;

/**
 * Runs many command lines of Apache Pulsar's pulsar-client in one process, as {@link AdminLines} does those of
 * pulsar-admin; the first argument is the brokers' address.
 */
public final class ClientLines {

    public static void main(String[] arguments) throws Exception {
        Properties properties = AdminLines.properties("brokerServiceUrl", arguments);
        // A tool of its own for each: it keeps what the line before it gave.
        AdminLines.runAll(() -> words -> new PulsarClientTool(properties).run(words) == 0);
    }
}
