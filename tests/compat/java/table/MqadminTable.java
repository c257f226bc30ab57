import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.DefaultParser;
import org.apache.commons.cli.Options;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.srvutil.ServerUtil;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Runs commands of mqadmin in one process and writes down what each prints.
 *
 * Argument 4 is a file of commands: lane, name, command and arguments with tabs between. Those of a lane run one
 * after the other, lanes side by side, for many commands end with three seconds of waiting; the lane `last` is last. Argument 5 is part of
 * the names to run, or empty.
 */
public final class MqadminTable {
    private static final int AT_ONCE = 8;

    /** The list of commands is for its heirs. */
    private static final class Tools extends MQAdminStartup {
        static List<SubCommand> all() {
            return SUB_COMMANDS;
        }
    }

    public static void main(String[] arguments) {
        try {
            run(arguments);
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", arguments[0]);
        System.setProperty("rocketmq.client.logUseSlf4j", "true");
        Harness harness = new Harness(arguments);
        Map<String, String> words = words(harness, new ToolWorld(harness));
        MQAdminStartup.initCommand();
        divertOutput();
        Map<String, List<String[]>> lanes = new LinkedHashMap<>();
        for (String line : Files.readAllLines(Path.of(arguments[4]))) {
            String[] parts = line.split("\t");
            lanes.computeIfAbsent(parts[0], lane -> new ArrayList<>()).add(parts);
        }
        List<String[]> last = lanes.getOrDefault("last", List.of());
        lanes.remove("last");
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE);
        for (List<String[]> lane : lanes.values()) {
            threads.submit(() -> runLane(harness, words, lane, arguments[5]));
        }
        threads.shutdown();
        threads.awaitTermination(Harness.SECONDS_MAX * 4, TimeUnit.SECONDS);
        runLane(harness, words, last, arguments[5]);
    }

    private static void runLane(Harness harness, Map<String, String> words, List<String[]> lane, String part) {
        for (String[] parts : lane) {
            if (parts[1].contains(part)) {
                run(harness, words, parts[1], parts[2], Arrays.copyOfRange(parts, 3, parts.length));
            }
        }
    }

    /** Where the command prints that this thread runs. */
    private static final InheritableThreadLocal<ByteArrayOutputStream> PRINTED = new InheritableThreadLocal<>();

    private static void divertOutput() {
        OutputStream each = new OutputStream() {
            @Override
            public void write(int one) {
                write(new byte[] {(byte) one}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int from, int count) {
                ByteArrayOutputStream printed = PRINTED.get();
                if (printed != null) {
                    printed.write(bytes, from, count);
                }
            }
        };
        PrintStream both = new PrintStream(each, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
    }

    private static Map<String, String> words(Harness harness, ToolWorld world) throws Exception {
        Map<String, String> words = new LinkedHashMap<>();
        String unique = world.topic.substring("World_".length());
        words.put("{cluster}", harness.cluster);
        words.put("{broker}", harness.broker);
        words.put("{address}", world.address);
        words.put("{topic}", world.topic);
        words.put("{online}", world.online);
        words.put("{offline}", world.offline);
        words.put("{producers}", world.producers);
        words.put("{client}", world.clientId());
        words.put("{new}", "New_" + unique);
        words.put("{offset_id}", world.sent.get(0).getOffsetMsgId());
        words.put("{unique_key}", world.sent.get(1).getMsgId());
        words.put("{now}", Long.toString(System.currentTimeMillis()));
        Path home = Files.createTempDirectory("mqadmin");
        words.put("{directory}", home.toString());
        Path topics = home.resolve("topics.json");
        Files.writeString(topics, "[{\"topicName\":\"New_" + unique + "x\",\"readQueueNums\":2,\"writeQueueNums\":2,"
            + "\"perm\":6,\"order\":false,\"topicFilterType\":\"SINGLE_TAG\",\"topicSysFlag\":0}]");
        words.put("{topics_file}", topics.toString());
        Path groups = home.resolve("groups.json");
        Files.writeString(groups, "[{\"groupName\":\"New_" + unique + "x\",\"consumeEnable\":true,\"retryMaxTimes\":5}]");
        words.put("{groups_file}", groups.toString());
        String traces = "Traces_" + unique;
        harness.makeTopic(traces, 1, 6);
        DefaultMQProducer producer = new DefaultMQProducer("Traced_" + unique, Keys.producer(), true, traces);
        producer.setNamesrvAddr(harness.nameServers);
        producer.setInstanceName("traced");
        producer.start();
        SendResult sent = producer.send(new Message(world.topic, "TagT", "traced", Scenario.bytes("traced")), world.queue(1));
        producer.shutdown();
        words.put("{traces}", traces);
        words.put("{traced_id}", sent.getMsgId());
        Thread.sleep(1_500);
        return words;
    }

    private static void run(Harness harness, Map<String, String> words, String name, String command, String[] given) {
        long begun = System.nanoTime();
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        String wrong = "";
        for (int time = 0; time < 5; time++) {
            wrong = "";
            said.reset();
            PRINTED.set(said);
            try {
                execute(command, Arrays.stream(given).map(word -> replaced(words, word)).toArray(String[]::new));
            } catch (Throwable error) {
                wrong = Harness.told(error);
            }
            // A tool's name is the millisecond of its start.
            if (!(wrong + said.toString(StandardCharsets.UTF_8)).contains("has created already")) {
                break;
            }
        }
        double seconds = Math.round((System.nanoTime() - begun) / 1e7) / 100.0;
        String output = said.toString(StandardCharsets.UTF_8);
        harness.write("{\"name\":" + Harness.quoted(name) + ",\"ok\":" + wrong.isEmpty() + ",\"seconds\":" + seconds
            + ",\"reason\":" + Harness.quoted(wrong) + ",\"output\":"
            + Harness.quoted(output + exported(output)) + "}");
    }

    /** The files that a command says it has written: what is in them counts, and not that it says so. */
    private static String exported(String output) {
        StringBuilder found = new StringBuilder();
        Matcher said = Pattern.compile("export (\\S+\\.json) success").matcher(output);
        while (said.find()) {
            try {
                found.append(Files.readString(Path.of(said.group(1))));
            } catch (IOException error) {
                found.append("cannot be read: ").append(error);
            }
        }
        return found.toString();
    }

    private static void execute(String command, String[] arguments) throws Exception {
        for (SubCommand known : Tools.all()) {
            if (known.commandName().equals(command)) {
                // Some keep a client that they have shut down.
                SubCommand one = known.getClass().getDeclaredConstructor().newInstance();
                Options options = one.buildCommandlineOptions(ServerUtil.buildCommandlineOptions(new Options()));
                CommandLine line = new DefaultParser().parse(options, arguments);
                one.execute(line, options, Keys.tools());
                return;
            }
        }
        throw new AssertionError("mqadmin has no " + command);
    }

    private static String replaced(Map<String, String> words, String text) {
        for (Map.Entry<String, String> word : words.entrySet()) {
            text = text.replace(word.getKey(), word.getValue());
        }
        return text;
    }
}
