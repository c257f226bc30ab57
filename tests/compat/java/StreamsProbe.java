import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.streams.core.RocketMQStream;
import org.apache.rocketmq.streams.core.function.ValueMapperAction;
import org.apache.rocketmq.streams.core.rstream.StreamBuilder;
import org.apache.rocketmq.streams.core.util.Pair;

/**
 * Words counted by rocketmq-streams, whose state is in topics.
 *
 * Arguments: name server address, source topic, and lines of text to send. Sends them, counts the
 * words, and waits until nothing has changed for some seconds. Prints the counts as word=number.
 */
public class StreamsProbe {
    private static final long MILLIS_MAX = 75_000;
    private static final long QUIET_MILLIS = 12_000;
    private static final String READY = "#";

    public static void main(String[] arguments) {
        try {
            System.out.println(counted(arguments[0], arguments[1],
                Arrays.asList(arguments).subList(2, arguments.length)));
            System.out.flush();
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static Map<String, Integer> counted(String nameServer, String topic, List<String> lines)
        throws Exception {
        Map<String, Integer> counts = new ConcurrentSkipListMap<>();
        StreamBuilder builder = new StreamBuilder("wordCount");
        builder.source(topic, bytes -> new Pair<Void, String>(null, new String(bytes, StandardCharsets.UTF_8)))
            .flatMap((ValueMapperAction<String, List<String>>) line -> Arrays.asList(line.split(" ")))
            .keyBy(word -> word)
            .count()
            .toRStream()
            .print();
        Properties properties = new Properties();
        properties.put(MixAll.NAMESRV_ADDR_PROPERTY, nameServer);
        // What it prints is all that there is of a key and its count.
        java.io.PrintStream real = System.out;
        java.io.ByteArrayOutputStream printed = new java.io.ByteArrayOutputStream();
        System.setOut(new java.io.PrintStream(printed, true));
        RocketMQStream stream = new RocketMQStream(builder.build(), properties);
        stream.start();
        // A consumer without an offset begins at the end: nothing counts before it is there.
        long end = System.currentTimeMillis() + MILLIS_MAX;
        while (!printed.toString().contains("(key=" + READY)) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("nothing is counted: " + printed);
            }
            send(nameServer, topic, List.of(READY));
            Thread.sleep(3_000);
        }
        send(nameServer, topic, lines);
        int size = 0;
        long changed = System.currentTimeMillis();
        while (System.currentTimeMillis() < end && System.currentTimeMillis() - changed < QUIET_MILLIS) {
            Thread.sleep(200);
            if (printed.size() != size) {
                size = printed.size();
                changed = System.currentTimeMillis();
            }
        }
        stream.stop();
        System.setOut(real);
        System.err.println(printed);
        for (String line : printed.toString().split("\n")) {
            // (key=word, value=number)
            if (line.startsWith("(key=")) {
                String[] parts = line.substring(5, line.length() - 1).split(", value=");
                counts.put(parts[0], Integer.parseInt(parts[1].trim()));
            }
        }
        counts.remove(READY);
        return new TreeMap<>(counts);
    }

    private static void send(String nameServer, String topic, List<String> lines) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("words");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        for (String line : lines) {
            producer.send(new Message(topic, line.getBytes(StandardCharsets.UTF_8)));
        }
        producer.shutdown();
    }
}
