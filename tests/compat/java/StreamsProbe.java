import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.remoting.common.RemotingUtil;
import org.apache.rocketmq.streams.core.RocketMQStream;
import org.apache.rocketmq.streams.core.rstream.StreamBuilder;
import org.apache.rocketmq.streams.core.util.Pair;

/**
 * The word count of rocketmq-streams: lines of one topic in, "WORD COUNT" of another one out.
 *
 * Arguments: name servers, job, topic of lines, topic of counts. Counts until its standard input ends; then it
 * stops the stream. What it counted is in RocksDB below /tmp/rocksdb, in a directory of this process alone, and in
 * topics of the broker: there alone it is for the next process.
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
        stream.start();
        answers.println("started");
        answers.flush();
        while (System.in.read() >= 0) { }
        stream.stop();
        delete(ownState);
        answers.println("stopped");
        answers.flush();
        Runtime.getRuntime().halt(0);
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
