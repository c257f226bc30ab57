import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's producer as a load, for as long as standard input is open. Arguments: servers, topic.
 *
 * A line "LINGER_MS BATCH_BYTES DEPTH SECONDS" keeps DEPTH sends in flight for SECONDS; a fifth of
 * the time goes before, uncounted. LINGER_MS -1 leaves linger and batch as they are by default. The
 * answer is a line of JSON. Bodies are 1,024 bytes, each record has a key of its own and is waited for
 * with acks=all.
 */
public class KafkaBench {
    static final byte[] BODY = new byte[1024];
    static final double WARM_SHARE = 0.2;
    static final int PARTITIONS = 4;

    static final AtomicReference<String> failure = new AtomicReference<>();
    static final AtomicLong done = new AtomicLong();
    static volatile boolean running;

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        String topic = arguments[1];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 3))).all().get();
        }
        Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
        System.out.println("READY");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(
                words[0] + " " + words[1], key -> producer(arguments[0], words[0], words[1]));
            load(producer, topic, Integer.parseInt(words[2]), Double.parseDouble(words[3]));
        }
        Runtime.getRuntime().halt(0);
    }

    static KafkaProducer<byte[], byte[]> producer(String servers, String linger, String batch) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", servers);
        settings.put("acks", "all");
        settings.put("buffer.memory", 64 << 20);
        if (!linger.equals("-1")) {
            settings.put("linger.ms", linger);
            settings.put("batch.size", batch);
        }
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static void load(KafkaProducer<byte[], byte[]> producer, String topic, int depth, double seconds)
        throws Exception {
        long all = done.get();
        running = true;
        Thread sender = new Thread(() -> send(producer, topic, depth));
        sender.start();
        Thread.sleep((long) (WARM_SHARE * seconds * 1000));
        long first = done.get();
        long begun = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        long messages = done.get() - first;
        double lasted = (System.nanoTime() - begun) / 1e9;
        running = false;
        sender.join();
        String failed = failure.getAndSet(null);
        String words = failed == null ? "" : failed.replaceAll("[^ -~]|[\"\\\\]", " ");
        System.out.println(String.format("{\"messages\": %d, \"seconds\": %.6f, \"messages_in_all\":"
            + " %d, \"failure\": \"%s\"}", messages, lasted, done.get() - all, words));
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, int depth) {
        Semaphore free = new Semaphore(depth);
        try {
            for (long number = 0; running; number++) {
                free.acquire();
                byte[] key = ("order-" + number).getBytes();
                producer.send(new ProducerRecord<>(topic, key, BODY), (metadata, error) -> {
                    if (error == null) {
                        done.incrementAndGet();
                    } else {
                        failure.set(error.toString());
                    }
                    free.release();
                });
            }
            producer.flush();
            free.acquire(depth);
        } catch (InterruptedException error) {
            failure.set(error.toString());
        }
    }
}
