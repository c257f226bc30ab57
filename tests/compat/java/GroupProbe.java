import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Push consumers of RocketMQ's own client that cannot handle a message, and that read in order.
 *
 * Arguments: name server address, topic. Prints what each consumer saw, one line for each.
 */
public class GroupProbe {
    private static final long MILLIS_MAX = 120_000;

    public static void main(String[] arguments) {
        try {
            produce(arguments[0], arguments[1]);
            retry(arguments[0], arguments[1]);
            dead(arguments[0], arguments[1]);
            ordered(arguments[0], arguments[1]);
            System.exit(0);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void produce(String nameServer, String topic) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("probe");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(60_000);
        producer.start();
        for (int number = 0; number < 5; number++) {
            byte[] body = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, "Tag", "key" + number, body);
            producer.send(message, (queues, one, chosen) -> queues.get(0), null);
        }
        producer.shutdown();
    }

    /** The third time is good; message 3 is given up at once. */
    private static void retry(String nameServer, String topic) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = consumer(nameServer, "retry", topic);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            seen.add(body(message) + "/" + message.getReconsumeTimes() + "/" + message.getTopic());
            boolean isGivenUp = body(message).equals("3");
            context.setDelayLevelWhenNextConsume(isGivenUp ? -1 : 1);
            return message.getReconsumeTimes() < 2
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        run(consumer, () -> seen.size() >= 13);
        Collections.sort(seen);
        System.out.println("retry " + String.join(" ", seen));
    }

    private static void dead(String nameServer, String topic) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = consumer(nameServer, "dead", "%DLQ%retry");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.add(body(messages.get(0)) + "/" + messages.get(0).getProperty("RETRY_TOPIC"));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        run(consumer, () -> !seen.isEmpty());
        System.out.println("dead " + String.join(" ", seen));
    }

    /** Message 2 is not taken the first time: those behind it wait. */
    private static void ordered(String nameServer, String topic) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = consumer(nameServer, "ordered", topic);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            String body = body(messages.get(0));
            boolean isFirst = !seen.contains(body);
            seen.add(body);
            return body.equals("2") && isFirst
                ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        run(consumer, () -> seen.size() >= 6);
        System.out.println("ordered " + String.join(" ", seen));
    }

    private static DefaultMQPushConsumer consumer(String nameServer, String group, String topic)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setMqClientApiTimeout(60_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void run(DefaultMQPushConsumer consumer, BooleanSupplier isDone) throws Exception {
        consumer.start();
        long deadline = System.currentTimeMillis() + MILLIS_MAX;
        while (!isDone.getAsBoolean() && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
        }
        Thread.sleep(1_000);  // for what should not come
        consumer.shutdown();
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
