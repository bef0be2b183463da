// Lets the classes with which Apache Pulsar balances load decide over load that is told on standard input, round by round.
//
// Lines: "broker ID", "bundle NAME OWNER RATE THROUGHPUT", "go SHEDDER PLACEMENT ROUNDS GRACE_ROUNDS CAPACITY". The
// answer is a line for each round: the number of moves, microseconds of deciding, and the usage of each broker.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageBrokerData;

public class BalanceOfApache {
    static final String PACKAGE = "org.apache.pulsar.broker.loadbalance.impl.";

    final Map<String, NamespaceBundleStats> stats = new TreeMap<>();
    final Map<String, String> owners = new TreeMap<>();
    final List<String> brokers = new ArrayList<>();
    final ServiceConfiguration conf = new ServiceConfiguration();
    final LoadData load = new LoadData();
    double capacity;

    public static void main(String[] arguments) throws Exception {
        BalanceOfApache balance = new BalanceOfApache();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "broker" -> balance.brokers.add(words[1]);
                case "bundle" -> balance.bundle(words);
                default -> balance.go(words);
            }
        }
    }

    void bundle(String[] words) {
        NamespaceBundleStats told = new NamespaceBundleStats();
        told.msgRateIn = Double.parseDouble(words[3]);
        told.msgThroughputIn = Double.parseDouble(words[4]);
        told.topics = 2;
        stats.put(words[1], told);
        owners.put(words[1], words[2]);
    }

    void go(String[] words) throws Exception {
        Object made = Class.forName(PACKAGE + words[1]).getDeclaredConstructor().newInstance();
        LoadSheddingStrategy shedder = (LoadSheddingStrategy) made;
        ModularLoadManagerStrategy placement = words[1].equals(words[2])
                ? (ModularLoadManagerStrategy) made
                : (ModularLoadManagerStrategy) Class.forName(PACKAGE + words[2]).getDeclaredConstructor().newInstance();
        int rounds = Integer.parseInt(words[3]);
        long grace = Long.parseLong(words[4]);
        capacity = Double.parseDouble(words[5]);
        for (long round = 0; round < rounds; round++) {
            report();
            long expired = round - grace;
            load.getRecentlyUnloadedBundles().values().removeIf(when -> when <= expired);
            long began = System.nanoTime();
            int moves = 0;
            for (var wanted : new ArrayList<>(shedder.findBundlesForUnloading(load, conf).entries())) {
                moves += move(wanted.getKey(), wanted.getValue(), placement, round);
            }
            long micros = (System.nanoTime() - began) / 1000;
            StringBuilder told = new StringBuilder(moves + " " + micros);
            usage().values().forEach(used -> told.append(' ').append(used));
            System.out.println(told);
        }
        System.out.flush();
        System.exit(0);
    }

    int move(String source, String bundle, ModularLoadManagerStrategy placement, long round) {
        Set<String> candidates = leastOfNamespace(bundle);
        BundleData data = load.getBundleData().get(bundle);
        String target = placement.selectBroker(candidates, data, load, conf).orElse(source);
        if (target.equals(source)) {
            return 0;
        }
        owners.put(bundle, target);
        load.getBrokerData().get(target).getPreallocatedBundleData().put(bundle, data);
        load.getRecentlyUnloadedBundles().put(bundle, round);
        return 1;
    }

    // What ModularLoadManagerImpl leaves in before it asks for a placement: those with the fewest of the namespace.
    Set<String> leastOfNamespace(String bundle) {
        String namespace = bundle.substring(0, bundle.lastIndexOf('/') + 1);
        Map<String, Integer> counts = new HashMap<>();
        brokers.forEach(broker -> counts.put(broker, 0));
        owners.forEach((each, owner) -> {
            if (each.startsWith(namespace)) {
                counts.merge(owner, 1, Integer::sum);
            }
        });
        int least = counts.values().stream().min(Integer::compare).orElse(0);
        Set<String> found = new HashSet<>();
        counts.forEach((broker, count) -> {
            if (count == least) {
                found.add(broker);
            }
        });
        return found;
    }

    Map<String, Double> usage() {
        Map<String, Double> found = new TreeMap<>();
        brokers.forEach(broker -> found.put(broker, 0.0));
        owners.forEach((bundle, owner) -> found.merge(owner, stats.get(bundle).msgThroughputIn / capacity, Double::sum));
        return found;
    }

    void report() {
        Map<String, Map<String, NamespaceBundleStats>> each = new TreeMap<>();
        brokers.forEach(broker -> each.put(broker, new HashMap<>()));
        owners.forEach((bundle, owner) -> each.get(owner).put(bundle, stats.get(bundle)));
        NamespaceBundleStats unseen = new NamespaceBundleStats();
        stats.forEach((bundle, told) ->
                load.getBundleData().computeIfAbsent(bundle, name -> new BundleData(10, 1000)).update(told));
        each.forEach((broker, served) -> {
            LocalBrokerData local = new LocalBrokerData("http://" + broker, null, "pulsar://" + broker, null);
            double flow = served.values().stream().mapToDouble(told -> told.msgThroughputIn).sum();
            local.setCpu(new ResourceUsage(100 * flow / capacity, 100));
            local.setMsgThroughputIn(flow);
            local.setMsgRateIn(served.values().stream().mapToDouble(told -> told.msgRateIn).sum());
            local.setBundles(new HashSet<>(served.keySet()));
            local.setNumBundles(served.size());
            local.setLastStats(served);
            BrokerData data = load.getBrokerData().computeIfAbsent(broker, name -> new BrokerData(local));
            data.setLocalData(local);
            data.getPreallocatedBundleData().clear();
            TimeAverageBrokerData averages = new TimeAverageBrokerData();
            averages.reset(served.keySet(), load.getBundleData(), unseen);
            data.setTimeAverageData(averages);
        });
    }
}
