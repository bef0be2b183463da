import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import io.netty.util.HashedWheelTimer;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.RackawareEnsemblePlacementPolicy;
import org.apache.bookkeeper.client.RegionAwareEnsemblePlacementPolicy;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.feature.SettableFeatureProvider;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.net.BookieSocketAddress;
import org.apache.bookkeeper.net.DNSToSwitchMapping;
import org.apache.bookkeeper.stats.NullStatsLogger;

/**
 * What Apache BookKeeper's policies of placement think of ensembles. Reads one question a line:
 * {@code rack|region minRacks enforce writeQuorum ackQuorum id=location,… id,id,…}, the last being an ensemble, or
 * {@code -} for none. Answers with how it keeps the policy, and whether the policy finds an ensemble of that size.
 */
public final class PlacementJudge {
    private static final HashedWheelTimer TIMER = new HashedWheelTimer();

    private record Racks(Map<String, String> locations) implements DNSToSwitchMapping {
        @Override
        public List<String> resolve(List<String> names) {
            return names.stream().map(name -> locations.getOrDefault(name, "/default-rack")).toList();
        }

        @Override
        public boolean useHostName() {
            return false;
        }

        @Override
        public void reloadCachedMappings() {}
    }

    private PlacementJudge() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println("> " + answer(line.split(" ")));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] asked) throws Exception {
        int write = Integer.parseInt(asked[3]);
        int ack = Integer.parseInt(asked[4]);
        Map<String, String> locations = new HashMap<>();
        Set<BookieId> bookies = new HashSet<>();
        for (String each : asked[5].split(",")) {
            String[] parts = each.split("=");
            bookies.add(BookieId.parse(parts[0]));
            if (parts.length > 1) {
                locations.put(parts[0].substring(0, parts[0].indexOf(':')), parts[1]);
            }
        }
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMinNumRacksPerWriteQuorum(Integer.parseInt(asked[1]));
        settings.setEnforceMinNumRacksPerWriteQuorum(Boolean.parseBoolean(asked[2]));
        Class<? extends RackawareEnsemblePlacementPolicy> kind = asked[0].equals("region")
                ? RegionAwareEnsemblePlacementPolicy.class
                : RackawareEnsemblePlacementPolicy.class;
        Constructor<? extends RackawareEnsemblePlacementPolicy> constructor = kind.getDeclaredConstructor();
        constructor.setAccessible(true);
        RackawareEnsemblePlacementPolicy policy = constructor.newInstance();
        policy.initialize(
                settings,
                Optional.of(new Racks(locations)),
                TIMER,
                SettableFeatureProvider.DISABLE_ALL,
                NullStatsLogger.INSTANCE,
                BookieSocketAddress.LEGACY_BOOKIEID_RESOLVER);
        policy.withDefaultRack(asked[0].equals("region") ? "/default-region/default-rack" : "/default-rack");
        policy.onClusterChanged(bookies, Collections.emptySet());
        List<BookieId> ensemble = new ArrayList<>();
        if (!asked[6].equals("-")) {
            Arrays.stream(asked[6].split(",")).map(BookieId::parse).forEach(ensemble::add);
        }
        int size = Integer.parseInt(asked[7]);
        String own;
        try {
            List<BookieId> found = policy.newEnsemble(size, write, ack, Collections.emptyMap(), new HashSet<>())
                    .getResult();
            own = String.valueOf(policy.isEnsembleAdheringToPlacementPolicy(found, write, ack)) + ":" + found;
        } catch (BKException.BKNotEnoughBookiesException none) {
            own = "NONE";
        }
        String verdict = ensemble.isEmpty()
                ? "-"
                : String.valueOf(policy.isEnsembleAdheringToPlacementPolicy(ensemble, write, ack));
        return verdict + " " + own.replace(" ", "");
    }
}
