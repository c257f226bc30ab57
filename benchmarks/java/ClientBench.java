import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * RocketMQ's client as a load, for as long as standard input is open. Arguments: name server, topic.
 *
 * A line "threads 64 1.0" has 64 threads send and wait for 1.0 s, "async 256 1.0" keeps 256 sends in
 * flight; a fifth of the time goes before, uncounted. The answer is a line of JSON. Bodies are 1,024
 * bytes, each message has a key of its own. Every result has to be SEND_OK.
 */
public class ClientBench {
    static final byte[] BODY = new byte[1024];
    static final double WARM_SHARE = 0.2;

    static final AtomicReference<String> failure = new AtomicReference<>();
    static final AtomicLong done = new AtomicLong();
    static final AtomicLong number = new AtomicLong();
    static volatile boolean running;

    static DefaultMQProducer producer;
    static String topic;

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        topic = arguments[1];
        producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(arguments[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        producer.start();
        System.out.println("READY");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            int depth = Integer.parseInt(words[1]);
            Thread[] threads = words[0].equals("threads") ? threads(depth) : sender(depth);
            load(threads, Double.parseDouble(words[2]));
        }
        Runtime.getRuntime().halt(0);
    }

    static void load(Thread[] threads, double seconds) throws Exception {
        long all = done.get();
        running = true;
        for (Thread thread : threads) {
            thread.start();
        }
        Thread.sleep((long) (WARM_SHARE * seconds * 1000));
        long first = done.get();
        long begun = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        long messages = done.get() - first;
        double lasted = (System.nanoTime() - begun) / 1e9;
        running = false;
        for (Thread thread : threads) {
            thread.join();
        }
        String failed = failure.getAndSet(null);
        String words = failed == null ? "" : failed.replaceAll("[^ -~]|[\"\\\\]", " ");
        System.out.println(String.format("{\"messages\": %d, \"seconds\": %.6f, \"messages_in_all\":"
            + " %d, \"failure\": \"%s\"}", messages, lasted, done.get() - all, words));
    }

    static Message message() {
        return new Message(topic, null, "order-" + number.incrementAndGet(), BODY);
    }

    static void count(SendResult result) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            done.incrementAndGet();
        } else {
            failure.set(result.toString());
        }
    }

    static Thread[] threads(int count) {
        Thread[] threads = new Thread[count];
        for (int index = 0; index < count; index++) {
            threads[index] = new Thread(() -> {
                while (running) {
                    try {
                        count(producer.send(message()));
                    } catch (Exception error) {
                        failure.set(error + " because of " + error.getCause());
                    }
                }
            });
        }
        return threads;
    }

    static Thread[] sender(int depth) {
        Semaphore free = new Semaphore(depth);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                count(result);
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error + " because of " + error.getCause());
                free.release();
            }
        };
        Thread thread = new Thread(() -> {
            try {
                while (running) {
                    free.acquire();
                    producer.send(message(), callback);
                }
                free.acquire(depth);
            } catch (Exception error) {
                failure.set(error + " because of " + error.getCause());
            }
        });
        return new Thread[] {thread};
    }
}
