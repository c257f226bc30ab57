import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.remoting.common.RemotingUtil;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.streams.core.RocketMQStream;
import org.apache.rocketmq.streams.core.rstream.StreamBuilder;
import org.apache.rocketmq.streams.core.util.Pair;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The word count of rocketmq-streams: lines of one topic in, "WORD COUNT" of another one out.
 *
 * Arguments: name servers, job, topic of lines, topic of counts. Says "started" when its group has a member, and counts
 * until its standard input ends; then it stops the stream. What it counted is in RocksDB below /tmp/rocksdb, in a directory
 * of this process alone, and in topics of the broker: there alone it is for the next process.
 *
 * A stream gives up at the first request that takes longer than its client waits, which may be a second: status 3.
 */
public class StreamsProbe {
    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        // Its tools print what they do.
        java.io.PrintStream answers = System.out;
        System.setOut(System.err);
        // Another process may have had this number.
        Path ownState = Path.of("/tmp/rocksdb", RemotingUtil.getLocalAddress(), String.valueOf(UtilAll.getPid()));
        delete(ownState);
        StreamBuilder builder = new StreamBuilder(arguments[1]);
        builder.source(arguments[2], body -> new Pair<>(null, new String(body, StandardCharsets.UTF_8)))
            .flatMap(line -> (List<String>) Arrays.asList(line.split(" ")))
            .keyBy(word -> word)
            .count()
            .sink(arguments[3], (word, count) -> (word + " " + count).getBytes(StandardCharsets.UTF_8));
        Properties properties = new Properties();
        properties.put(MixAll.NAMESRV_ADDR_PROPERTY, arguments[0]);
        RocketMQStream stream = new RocketMQStream(builder.build(), properties);
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            if (thread.getName().startsWith("worker_thread")) {
                error.printStackTrace();
                Runtime.getRuntime().halt(3);
            }
        });
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000);
        admin.setInstanceName("probe");
        admin.setNamesrvAddr(arguments[0]);
        admin.start();
        // Java needs a while for the first request of a kind; the stream's own may take a second.
        untilAnswered(() -> admin.examineTopicRouteInfo(arguments[2]));
        untilAnswered(admin::examineBrokerClusterInfo);
        stream.start();
        String group = arguments[1] + "_rocketmq_streams_consumer_group";
        untilAnswered(() -> admin.examineConsumerConnectionInfo(group));
        admin.shutdown();
        answers.println("started");
        answers.flush();
        while (System.in.read() >= 0) { }
        stream.stop();
        delete(ownState);
        answers.println("stopped");
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void untilAnswered(Callable<?> request) throws Exception {
        while (true) {
            try {
                request.call();
                return;
            } catch (MQClientException | MQBrokerException | RemotingException notYet) {
                Thread.sleep(100);
            }
        }
    }

    private static void delete(Path directory) throws Exception {
        if (!Files.exists(directory)) {
            return;
        }
        try (Stream<Path> found = Files.walk(directory)) {
            found.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }
}
