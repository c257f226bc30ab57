import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A TandemMQ cluster for the tests of a class: JUnit 5, Linux, and {@code pip install tandem-mq}.
 *
 * <pre>{@code
 * @RegisterExtension
 * static final TandemCluster cluster = TandemCluster.fenced().topic("Orders");
 *
 * producer.setNamesrvAddr(cluster.nameServers());
 * cluster.killMaster();
 * }</pre>
 *
 * Copy this file to your tests; it needs JUnit alone. The cluster is a process of `tandem testing
 * serve`, which ends with this JVM, however that ends. The program is `tandem`, or what the system
 * property `tandem.command` or the variable TANDEM_COMMAND names. After each test every fault is
 * undone and dead nodes are started; messages stay.
 */
public final class TandemCluster implements BeforeAllCallback, AfterEachCallback, AfterAllCallback {
    private static final long END_SECONDS_MAX = 60;

    private final List<String> options = new ArrayList<>();
    private Process process;
    private BufferedReader answers;
    private Writer orders;
    private String ready;
    private boolean isHurt;

    private TandemCluster() {}

    /** A fenced group of three nodes: they elect another master when one is lost. */
    public static TandemCluster fenced() {
        return new TandemCluster();
    }

    /** RocketMQ's master, and a slave that it waits for. */
    public static TandemCluster classic() {
        return new TandemCluster().option("--classic");
    }

    /** How many nodes, 1 to 9. */
    public TandemCluster nodes(int count) {
        return option("--nodes", Integer.toString(count));
    }

    /** A topic that is there from the start, with four queues. */
    public TandemCluster topic(String name) {
        return option("--topic", name);
    }

    /** Sections of a cluster file, as JSON: {@code {"broker": {"auto_create_topic_enable": false}}}. */
    public TandemCluster settings(String json) {
        return option("--settings", json);
    }

    /** Any options of `tandem testing serve`. */
    public TandemCluster option(String... words) {
        options.addAll(List.of(words));
        return this;
    }

    /** What clients take: {@code setNamesrvAddr(cluster.nameServers())}. */
    public String nameServers() {
        return text(ready, "name_servers");
    }

    /** Creates a topic that no other test has; returns its name. */
    public String newTopic() {
        return text(order("topic", "{}"), "topic");
    }

    /** Ends the master with SIGKILL; returns its name. */
    public String killMaster() {
        return text(order("kill_master", "{}"), "node");
    }

    /** The node that is master now; empty if there is none. */
    public String master() {
        return text(order("master", "{}"), "node");
    }

    /** Waits until there is a master other than that node; returns its name. */
    public String waitForMaster(String otherThan) {
        return text(order("wait_for_master", "{\"other_than\": " + quoted(otherThan) + "}"), "node");
    }

    /** Ends a node with SIGKILL. */
    public void kill(String node) {
        order("kill", ofNode(node));
    }

    /** Starts a node that is down; it serves when this returns. */
    public void start(String node) {
        order("start", ofNode(node));
    }

    /** Stops a node in an orderly way and starts it. */
    public void restart(String node) {
        order("restart", ofNode(node));
    }

    /** SIGSTOP: its connections stay open and silent. */
    public void freeze(String node) {
        order("freeze", ofNode(node));
    }

    /** Lets a frozen node go on. */
    public void thaw(String node) {
        order("thaw", ofNode(node));
    }

    /** Cuts nodes off from all other nodes. Clients still reach them. */
    public void partition(String... nodes) {
        List<String> names = new ArrayList<>();
        for (String node : nodes) {
            names.add(quoted(node));
        }
        order("partition", "{\"nodes\": [" + String.join(", ", names) + "]}");
    }

    /** Ends every fault, starts what is down, and waits until all nodes are in sync. */
    public void recover() {
        order("recover", "{}");
        isHurt = false;
    }

    /**
     * Gives any order, with its arguments as JSON; returns the line that answers it.
     *
     * @throws IllegalStateException it was not carried out; the message has the code and the text
     */
    public synchronized String order(String name, String arguments) {
        isHurt = true;
        try {
            orders.write("{" + quoted(name) + ": " + arguments.replace('\n', ' ') + "}\n");
            orders.flush();
            return answered(name);
        } catch (IOException error) {
            throw new UncheckedIOException("the cluster is gone; its words are above", error);
        }
    }

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        String named = System.getProperty("tandem.command", System.getenv("TANDEM_COMMAND"));
        List<String> command = new ArrayList<>(List.of((named == null ? "tandem" : named).split(" ")));
        command.addAll(List.of("testing", "serve"));
        command.addAll(options);
        process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        answers = process.inputReader(StandardCharsets.UTF_8);
        orders = process.outputWriter(StandardCharsets.UTF_8);
        ready = answered("start of the cluster");
        isHurt = false;
    }

    @Override
    public void afterEach(ExtensionContext context) {
        if (isHurt) {
            recover();
        }
    }

    @Override
    public void afterAll(ExtensionContext context) throws IOException, InterruptedException {
        if (process == null) {
            return;
        }
        orders.close();
        if (!process.waitFor(END_SECONDS_MAX, TimeUnit.SECONDS)) {
            process.destroyForcibly();
        }
    }

    private String answered(String what) throws IOException {
        String line = answers.readLine();
        if (line == null) {
            throw new IllegalStateException(what + ": the cluster has ended; its words are above");
        }
        if (line.startsWith("{\"error\":")) {
            throw new IllegalStateException(what + ": " + text(line, "code") + ": " + text(line, "text"));
        }
        return line;
    }

    private static String ofNode(String node) {
        return "{\"node\": " + quoted(node) + "}";
    }

    /** The text of a field. No line has a name of a field twice where it is looked for here. */
    private static String text(String line, String field) {
        Matcher found = Pattern.compile("\"" + field + "\":\"((?:[^\"\\\\]|\\\\.)*)\"").matcher(line);
        if (!found.find()) {
            throw new IllegalStateException("no " + field + " in " + line);
        }
        return found.group(1).replaceAll("\\\\([\"\\\\/])", "$1");
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }
}
