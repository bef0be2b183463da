package interop;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** Reports checks as JSON lines on standard output. */
final class Checks {
    /** The broker did something else than it should. */
    static final class Failed extends Exception {
        Failed(String reason) {
            super(reason);
        }
    }

    interface Body {
        void run() throws Exception;
    }

    private Checks() {}

    /** What the command line says: {@code --name value}, as often as there are names. */
    static Map<String, String> options(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index + 1 < arguments.length; index += 2) {
            options.put(arguments[index].substring(2), arguments[index + 1]);
        }
        return options;
    }

    static void expect(boolean condition, String reason) throws Failed {
        if (!condition) {
            throw new Failed(reason);
        }
    }

    /** Runs the body as one check; ends the program with 1 when it fails. */
    static void check(String name, int messages, Body body) {
        long begin = System.nanoTime();
        try {
            body.run();
        } catch (Exception | AssertionError error) {
            say("{\"check\": %s, \"ok\": false, \"reason\": %s}", quote(name), quote(error.toString()));
            Runtime.getRuntime().halt(1);
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        say("{\"check\": %s, \"ok\": true, \"messages\": %d, \"seconds\": %.3f}", quote(name), messages, seconds);
    }

    static void say(String format, Object... values) {
        System.out.println(String.format(Locale.ROOT, format, values));
        System.out.flush();
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                quoted.append('\\').append(each);
            } else if (each < ' ' || each > '~') {
                quoted.append(String.format("\\u%04x", (int) each));
            } else {
                quoted.append(each);
            }
        }
        return quoted.append('"').toString();
    }
}
