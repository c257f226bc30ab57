import java.io.FileWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;

/**
 * Runs scenarios, several at a time, in one process; writes a line of JSON about each to a file.
 *
 * What they share: addresses, topics that are made and known before they are used, and waiting.
 */
final class Harness {
    interface Body {
        void run(Scenario scenario) throws Throwable;
    }

    static final long SECONDS_MAX = 100;

    final String nameServers;
    final String broker;
    final String cluster;
    private final PrintWriter results;
    private final Map<String, Body> bodies = new LinkedHashMap<>();
    private final DefaultMQProducer owner = new DefaultMQProducer("TableOwner", Keys.application());
    private final DefaultMQProducer operator = new DefaultMQProducer("TableOperator", Keys.tools());
    private final List<MQClientInstance> eachServer = new ArrayList<>();

    /** Arguments: name servers, cluster, broker, file for the results, part of the names to run. */
    Harness(String[] arguments) throws Exception {
        nameServers = arguments[0];
        cluster = arguments[1];
        broker = arguments[2];
        results = new PrintWriter(new FileWriter(arguments[3], StandardCharsets.UTF_8), true);
        owner.setNamesrvAddr(nameServers);
        owner.setInstanceName("owner");
        owner.start();
        operator.setNamesrvAddr(nameServers);
        operator.setInstanceName("operator");
        operator.start();
        for (String server : nameServers.split(";")) {
            DefaultMQProducer one = new DefaultMQProducer("TableOwner", Keys.application());
            one.setNamesrvAddr(server);
            one.setInstanceName("owner" + server);
            one.start();
            eachServer.add(MQClientManager.getInstance().getOrCreateMQClientInstance(one));
        }
    }

    void add(String name, Body body) {
        bodies.put(name, body);
    }

    void runAll(String part, int atOnce) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        ExecutorService rows = Executors.newFixedThreadPool(atOnce);
        List<Future<?>> pending = new ArrayList<>();
        for (Map.Entry<String, Body> entry : bodies.entrySet()) {
            if (entry.getKey().contains(part)) {
                pending.add(rows.submit(() -> run(threads, entry.getKey(), entry.getValue())));
            }
        }
        for (Future<?> one : pending) {
            one.get();
        }
    }

    private void run(ExecutorService threads, String name, Body body) {
        Scenario scenario = new Scenario(this, name);
        long begun = System.nanoTime();
        Throwable wrong = null;
        Future<?> running = threads.submit(() -> {
            try {
                body.run(scenario);
                return null;
            } catch (Throwable error) {
                throw new Exception(error);
            }
        });
        try {
            running.get(SECONDS_MAX, TimeUnit.SECONDS);
        } catch (java.util.concurrent.TimeoutException error) {
            running.cancel(true);
            wrong = new AssertionError("not done in " + SECONDS_MAX + " s");
        } catch (Exception error) {
            wrong = error.getCause() == null ? error : error.getCause().getCause();
        }
        report(name, wrong, System.nanoTime() - begun, scenario.said);
        threads.submit(scenario::close);
    }

    void report(String name, Throwable wrong, long nanos, String said) {
        double seconds = Math.round(nanos / 1e7) / 100.0;
        write("{\"name\":" + quoted(name) + ",\"ok\":" + (wrong == null) + ",\"seconds\":" + seconds
            + ",\"reason\":" + quoted(wrong == null ? "" : told(wrong))
            + ",\"output\":" + quoted(said) + "}");
    }

    void write(String line) {
        synchronized (results) {
            results.println(line);
        }
    }

    static String told(Throwable wrong) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = wrong; one != null && text.length() < 600; one = one.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ");
            text.append(one instanceof AssertionError ? "" : one.getClass().getSimpleName() + ": ");
            text.append(one.getMessage());
            StackTraceElement[] at = one.getStackTrace();
            if (!(one instanceof AssertionError) && one.getMessage() == null && at.length > 0) {
                text.append(" at ").append(at[0]);
            }
        }
        return text.length() > 600 ? text.substring(0, 600) : text.toString();
    }

    static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char letter : String.valueOf(text).toCharArray()) {
            if (letter == '"' || letter == '\\') {
                json.append('\\').append(letter);
            } else if (letter < 32 || letter > 126) {
                json.append(String.format("\\u%04x", (int) letter));
            } else {
                json.append(letter);
            }
        }
        return json.append('"').toString();
    }

    MQClientInstance instance() {
        return MQClientManager.getInstance().getOrCreateMQClientInstance(owner);
    }

    /** For what an application may not do. */
    MQClientInstance operator() {
        return MQClientManager.getInstance().getOrCreateMQClientInstance(operator);
    }

    String masterAddress() throws InterruptedException {
        Scenario.until(20, () -> {
            instance().updateTopicRouteInfoFromNameServer("TBW102");
            return instance().findBrokerAddressInPublish(broker) != null;
        }, () -> "no master of " + broker);
        return instance().findBrokerAddressInPublish(broker);
    }

    /** Make a topic and wait until the name server tells of it. */
    void makeTopic(String topic, int queues, int perm) throws Exception {
        makeTopic(instance(), topic, queues, perm);
    }

    void makeTopic(MQClientInstance by, String topic, int queues, int perm) throws Exception {
        TopicConfig config = new TopicConfig(topic, queues, queues, perm);
        by.getMQClientAPIImpl().createTopic(masterAddress(), "TBW102", config, 10_000);
        Scenario.until(20, () -> isKnown(topic), () -> "topic " + topic + " is in no route");
    }

    private boolean isKnown(String topic) {
        try {
            // A client may ask any of them.
            for (MQClientInstance one : eachServer) {
                one.getMQClientAPIImpl().getTopicRouteInfoFromNameServer(topic, 3_000);
            }
            return true;
        } catch (Exception error) {
            return false;
        }
    }
}

/** One row: its names, what it has started, and what it expects. */
final class Scenario {
    private interface Closing {
        void close() throws Exception;
    }

    final Harness harness;
    final String name;
    final String unique;
    /** What is to be compared, in lines. */
    volatile String said = "";
    private final List<Closing> started = Collections.synchronizedList(new ArrayList<>());

    Scenario(Harness harness, String name) {
        this.harness = harness;
        this.name = name;
        this.unique = name.replaceAll("[^A-Za-z0-9]", "_") + "_" + Long.toString(System.nanoTime() & 0xffffff, 36);
    }

    void closeLater(AutoCloseable what) {
        started.add(what::close);
    }

    void close() {
        for (Closing one : started) {
            try {
                one.close();
            } catch (Exception error) {
                // It has been reported, or it is not this scenario's subject.
            }
        }
    }

    String topic() throws Exception {
        return topic("T_" + unique, 4, 6);
    }

    String topic(String topic, int queues, int perm) throws Exception {
        harness.makeTopic(topic, queues, perm);
        return topic;
    }

    String group() {
        return "G_" + unique;
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object expected, Object actual, String what) {
        check(Objects.equals(expected, actual), what + ": " + actual + ", expected " + expected);
    }

    static void until(double seconds, BooleanSupplier holds, Supplier<String> otherwise)
        throws InterruptedException {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        while (!holds.getAsBoolean()) {
            check(System.nanoTime() < deadline, "after " + seconds + " s: " + otherwise.get());
            Thread.sleep(50);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
