import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's producer at a fixed rate, whatever becomes of its sends. Arguments: servers, topic, replicas.
 *
 * A line "RATE SECONDS INTERVAL BODY_BYTES IN_FLIGHT" sends RATE records a second for SECONDS; what could not leave by
 * then, for the producer had no room, does not leave. With an IN_FLIGHT above 0 a send waits until fewer have no answer.
 * A latency counts from the
 * intended time of a send. Each INTERVAL is a line of JSON: how many were sent and failed, the counts of latencies
 * by step (64 for each doubling of a microsecond), the longest, how many sends have no answer, and how many
 * replicas the partition has in sync that has the fewest. The last line says that it is the last. The producer is
 * Kafka's default with acks=all, and 256 MiB for what waits.
 */
public class KafkaOpenLoop {
    static final int PARTITIONS = 4;
    static final int STEPS = 64;
    static final int BUCKETS = 40 * STEPS;
    static final long REST_SECONDS = 30;

    static final AtomicLongArray counts = new AtomicLongArray(BUCKETS);
    static final AtomicLong sent = new AtomicLong();
    static final AtomicLong failed = new AtomicLong();
    static final AtomicLong answered = new AtomicLong();
    static final AtomicLong maxNanos = new AtomicLong();
    static volatile int inSync = -1;
    static long saidSent;
    static long saidFailed;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]));
        short replicas = Short.parseShort(arguments[2]);
        admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, replicas))).all().get();
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("buffer.memory", 256L << 20);
        settings.put("max.request.size", 8 << 20);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        Thread watch = new Thread(() -> watch(admin, topic));
        watch.setDaemon(true);
        watch.start();
        System.out.println("READY");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            run(producer, topic, Double.parseDouble(words[0]), Double.parseDouble(words[1]),
                Double.parseDouble(words[2]), Integer.parseInt(words[3]), Long.parseLong(words[4]));
        }
        Runtime.getRuntime().halt(0);
    }

    static void watch(Admin admin, String topic) {
        while (true) {
            try {
                inSync = admin.describeTopics(List.of(topic)).allTopicNames().get(5, TimeUnit.SECONDS).get(topic)
                    .partitions().stream().map(TopicPartitionInfo::isr).mapToInt(List::size).min().orElse(0);
                Thread.sleep(200);
            } catch (InterruptedException error) {
                return;
            } catch (Exception error) {
                inSync = -1;
            }
        }
    }

    static void run(KafkaProducer<byte[], byte[]> producer, String topic, double rate, double seconds,
        double interval, int bodyBytes, long inFlight) throws Exception {
        byte[] body = new byte[bodyBytes];
        new Random(1).nextBytes(body);
        Thread sender = new Thread(() -> send(producer, topic, rate, seconds, body, inFlight));
        long begin = System.nanoTime();
        sender.start();
        for (double next = interval; next <= seconds; next += interval) {
            LockSupport.parkNanos(begin + (long) (next * 1e9) - System.nanoTime());
            say((System.nanoTime() - begin) / 1e9, false);
        }
        sender.join();
        long end = System.nanoTime() + REST_SECONDS * 1_000_000_000L;
        while (sent.get() > answered.get() && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        say((System.nanoTime() - begin) / 1e9, true);
    }

    static void send(KafkaProducer<byte[], byte[]> producer, String topic, double rate, double seconds, byte[] body,
        long inFlight) {
        long begin = System.nanoTime();
        long end = begin + (long) (seconds * 1e9);
        long count = (long) (rate * seconds);
        for (long number = 0; number < count && System.nanoTime() < end; number++) {
            long due = begin + (long) (number / rate * 1e9);
            for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            while (inFlight > 0 && sent.get() - answered.get() >= inFlight) {
                LockSupport.parkNanos(100_000);
            }
            byte[] key = ("order-" + number).getBytes();
            sent.incrementAndGet();
            producer.send(new ProducerRecord<>(topic, key, body), (metadata, error) -> {
                long took = System.nanoTime() - due;
                if (error == null) {
                    double micros = Math.max(took / 1e3, 1.0);
                    int step = (int) Math.ceil(Math.log(micros) / Math.log(2) * STEPS);
                    counts.incrementAndGet(Math.min(step, BUCKETS - 1));
                    maxNanos.accumulateAndGet(took, Math::max);
                } else {
                    failed.incrementAndGet();
                }
                answered.incrementAndGet();
            });
        }
    }

    /** Says what came since the last line, and forgets it. */
    static void say(double at, boolean isLast) {
        StringBuilder steps = new StringBuilder();
        for (int step = 0; step < BUCKETS; step++) {
            long count = counts.getAndSet(step, 0);
            if (count > 0) {
                steps.append(steps.length() == 0 ? "" : ", ").append(String.format("\"%d\": %d", step, count));
            }
        }
        long allSent = sent.get();
        long allFailed = failed.get();
        System.out.println(String.format(
            "{\"at\": %.3f, \"sent\": %d, \"failed\": %d, \"steps\": {%s}, \"max_seconds\": %.6f, \"unanswered\": %d,"
                + " \"in_sync\": %d, \"is_last\": %b}",
            at, allSent - saidSent, allFailed - saidFailed, steps, maxNanos.getAndSet(0) / 1e9,
            allSent - answered.get(), inSync, isLast));
        saidSent = allSent;
        saidFailed = allFailed;
    }
}
