import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeper.DigestType;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

/** BookKeeper's own client: a line in is a command, a line out what came of it. */
public class LedgerClient {
    private static final byte[] PASSWORD = new byte[0];
    private static final int UNACKNOWLEDGED = 100;

    private final BookKeeper bookkeeper;
    private final Map<Long, Load> loads = new HashMap<>();
    private final Map<Long, LedgerHandle> written = new HashMap<>();

    LedgerClient(String metadata, boolean second) throws Exception {
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(metadata);
        settings.setUseV2WireProtocol(second);
        bookkeeper = new BookKeeper(settings);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        LedgerClient client = new LedgerClient(arguments[0], arguments[1].equals("2"));
        out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok " + client.done(line.split(" "));
            } catch (BKException error) {
                answer = "failed " + BKException.getMessage(error.getCode()).replace(' ', '-');
            } catch (Exception error) {
                answer = "failed " + error.toString().replace(' ', '-').replace('\n', ' ');
            }
            out.println(answer.trim());
            out.flush();
        }
        System.exit(0);
    }

    /** The payload of an entry, as the tests have it. */
    static byte[] payload(long entry) {
        return ("entry " + entry + " ").repeat(10).getBytes(StandardCharsets.US_ASCII);
    }

    private String done(String[] words) throws Exception {
        DigestType digest = DigestType.CRC32C;
        switch (words[0]) {
            case "create" -> {
                LedgerHandle made = bookkeeper.createLedger(
                    Integer.parseInt(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]),
                    DigestType.valueOf(words[4]), PASSWORD);
                written.put(made.getId(), made);
                return "" + made.getId();
            }
            case "add" -> {
                LedgerHandle ledger = written.get(Long.parseLong(words[1]));
                long last = -1;
                for (int count = Integer.parseInt(words[2]); count > 0; count--) {
                    last = ledger.addEntry(payload(ledger.getLastAddPushed() + 1));
                }
                return "" + last;
            }
            case "close" -> {
                written.remove(Long.parseLong(words[1])).close();
                return "";
            }
            case "load" -> {
                long id = Long.parseLong(words[1]);
                loads.put(id, new Load(written.get(id)));
                return "";
            }
            case "acknowledged" -> {
                return loads.remove(Long.parseLong(words[1])).stopped();
            }
            case "recover", "look" -> {
                long id = Long.parseLong(words[1]);
                LedgerHandle found = words[0].equals("recover")
                    ? bookkeeper.openLedger(id, digest, PASSWORD)
                    : bookkeeper.openLedgerNoRecovery(id, digest, PASSWORD);
                String told = found.getLastAddConfirmed() + " " + found.getLength() + " " + read(found);
                found.close();
                return told;
            }
            case "list" -> {
                List<Long> ids = new ArrayList<>();
                try (var result = bookkeeper.newListLedgersOp().execute().get()) {
                    for (long id : result.toIterable()) {
                        ids.add(id);
                    }
                }
                return ids.toString().replaceAll("[\\[\\],]", "");
            }
            case "delete" -> {
                bookkeeper.deleteLedger(Long.parseLong(words[1]));
                return "";
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** A digest of all that may be read. */
    private static String read(LedgerHandle ledger) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (long first = 0; first <= ledger.getLastAddConfirmed(); first += 500) {
            long last = Math.min(first + 499, ledger.getLastAddConfirmed());
            for (Enumeration<LedgerEntry> found = ledger.readEntries(first, last); found.hasMoreElements();) {
                digest.update(found.nextElement().getEntry());
            }
        }
        StringBuilder text = new StringBuilder();
        for (byte each : digest.digest()) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    /** Adds all the time, until it is stopped or fails. */
    private static class Load extends Thread {
        private final LedgerHandle ledger;
        private final Semaphore room = new Semaphore(UNACKNOWLEDGED);
        private final AtomicLong acknowledged = new AtomicLong(-1);
        private volatile boolean ends;

        Load(LedgerHandle ledger) {
            this.ledger = ledger;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            for (long entry = ledger.getLastAddPushed() + 1; !ends; entry++) {
                room.acquireUninterruptibly();
                ledger.asyncAddEntry(payload(entry), (code, handle, id, context) -> {
                    if (code == BKException.Code.OK) {
                        acknowledged.accumulateAndGet(id, Math::max);
                    } else {
                        ends = true;
                    }
                    room.release();
                }, null);
            }
        }

        String stopped() throws InterruptedException {
            ends = true;
            join();
            room.acquireUninterruptibly(UNACKNOWLEDGED);
            return "" + acknowledged.get();
        }
    }
}
