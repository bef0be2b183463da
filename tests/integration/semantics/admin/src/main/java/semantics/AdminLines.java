package semantics;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;

/**
 * Runs many command lines of Apache Pulsar's pulsar-admin in one process.
 *
 * <p>Arguments: the address of the broker's HTTP interface, then lines of a client.conf. Each line of the input is a command line, its words in
 * Base64 and separated by spaces. Each line of the output is the exit code, what was written to standard output and
 * what to standard error, the last two in Base64.
 */
public final class AdminLines {

    private static final class Tool extends PulsarAdminTool {
        Tool(Properties properties) throws Exception {
            super(properties);
        }

        boolean runLine(String[] words) {
            return run(words);
        }
    }

    /** What runs one command line; it tells whether that went well. */
    interface Line {
        boolean run(String[] words) throws Exception;
    }

    /** Made once standard streams are what is recorded: tools keep the streams that they find. */
    interface Tools {
        Line made() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = properties("webServiceUrl", arguments);
        runAll(() -> {
            Tool tool = new Tool(properties);
            return tool::runLine;
        });
    }

    /** Those of a client.conf: an address under this key, then lines. */
    static Properties properties(String key, String[] arguments) {
        Properties properties = new Properties();
        properties.setProperty(key, arguments[0]);
        for (int index = 1; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            properties.setProperty(pair[0], pair[1]);
        }
        return properties;
    }

    /** Answers each line of the input, and ends the process. */
    static void runAll(Tools tools) throws Exception {
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Line tool = tools.made();
        String line;
        while ((line = lines.readLine()) != null) {
            out.reset();
            err.reset();
            boolean good = tool.run(words(line));
            System.out.flush();
            System.err.flush();
            answers.println((good ? 0 : 1) + " " + encoded(out) + " " + encoded(err));
            answers.flush();
        }
        System.exit(0);
    }

    private static String[] words(String line) {
        String[] words = line.split(" ");
        for (int index = 0; index < words.length; index++) {
            words[index] = new String(Base64.getDecoder().decode(words[index]), StandardCharsets.UTF_8);
        }
        return words;
    }

    private static String encoded(ByteArrayOutputStream stream) {
        return "=" + Base64.getEncoder().encodeToString(stream.toByteArray());
    }
}
