import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A producer and a push consumer that go on through a change of master. Nothing in here retries:
 * what is tried again, RocketMQ's client tries.
 *
 * Arguments: name servers, topic, milliseconds between two looks for routes (RocketMQ: 30000).
 * Prints a line per send. A line on standard input ends the sending; then it waits until everything
 * that was SEND_OK was consumed and committed, and prints what was not.
 */
public class SwitchProbe {
    static final Set<String> READ = ConcurrentHashMap.newKeySet();
    static final AtomicInteger AGAIN = new AtomicInteger();

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        String topic = arguments[1];
        int pollMs = Integer.parseInt(arguments[2]);
        DefaultMQProducer producer = new DefaultMQProducer("switch-p");
        producer.setNamesrvAddr(arguments[0]);
        producer.setPollNameServerInterval(pollMs);
        producer.start();
        Set<String> kept = new HashSet<>();
        send(producer, topic, 0, kept);
        DefaultMQPushConsumer consumer = consumer(arguments[0], topic, pollMs);
        // It looks for its queues when it starts; if that fails, again after 20 s.
        while (READ.isEmpty()) {
            Thread.sleep(10);
        }
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (int number = 1; !orders.ready(); number++) {
            send(producer, topic, number, kept);
            Thread.sleep(5);
        }
        producer.shutdown();
        long deadline = System.currentTimeMillis() + 60_000;
        while (!READ.containsAll(kept) && System.currentTimeMillis() < deadline) {
            Thread.sleep(10);
        }
        Set<String> missing = new HashSet<>(kept);
        missing.removeAll(READ);
        System.out.println("kept " + kept.size() + " read " + READ.size() + " again " + AGAIN.get()
            + " missing " + missing);
        // One-way commits begin 10 s after the start of the client.
        Map<MessageQueue, String> behind = new HashMap<>();
        deadline = System.currentTimeMillis() + 20_000;
        do {
            Thread.sleep(100);
            behind.clear();
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                long committed = consumer.getDefaultMQPushConsumerImpl().getOffsetStore()
                    .readOffset(queue, ReadOffsetType.READ_FROM_STORE);
                if (committed != consumer.maxOffset(queue)) {
                    behind.put(queue, committed + " of " + consumer.maxOffset(queue));
                }
            }
        } while (!behind.isEmpty() && System.currentTimeMillis() < deadline);
        System.out.println("not committed " + behind);
        consumer.shutdown();
        System.exit(missing.isEmpty() ? 0 : 1);
    }

    private static void send(DefaultMQProducer producer, String topic, int number, Set<String> kept)
        throws InterruptedException {
        String body = "message " + number;
        long began = System.currentTimeMillis();
        String said;
        try {
            SendResult result =
                producer.send(new Message(topic, "Tag", body.getBytes(StandardCharsets.UTF_8)));
            said = result.getSendStatus().name();
            if (result.getSendStatus() == SendStatus.SEND_OK) {
                kept.add(body);
            }
        } catch (MQBrokerException error) {
            said = "code " + error.getResponseCode() + " " + error.getErrorMessage();
        } catch (MQClientException error) {
            said = "code " + error.getResponseCode() + " " + error.getMessage()
                + " Because: " + error.getCause();
        } catch (InterruptedException error) {
            throw error;
        } catch (Exception error) {
            said = error.getClass().getSimpleName() + " " + error.getMessage();
        }
        System.out.println(began + " " + (System.currentTimeMillis() - began) + " "
            + said.replace('\n', ' '));
    }

    private static DefaultMQPushConsumer consumer(String nameServers, String topic, int pollMs)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("switch-c");
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(pollMs);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                if (!READ.add(new String(message.getBody(), StandardCharsets.UTF_8))) {
                    AGAIN.incrementAndGet();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
