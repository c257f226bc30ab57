import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactions of RocketMQ's own client: committed, rolled back, asked about, and one that is open while somebody
 * kills the master.
 *
 * Arguments: name server address, topic. Prints "half" when the last half is stored and waits for a line; then what
 * the consumer saw, and which messages the producer was asked about.
 */
public class TransactionProbe {
    private static final long MILLIS_MAX = 120_000;
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    private static final List<String> ASKED = Collections.synchronizedList(new ArrayList<>());

    public static void main(String[] arguments) {
        try {
            run(arguments[0], arguments[1]);
            System.exit(0);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String nameServer, String topic) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("transactions");
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(60_000);
        producer.setPollNameServerInterval(1_000);
        producer.setHeartbeatBrokerInterval(1_000);
        producer.setTransactionListener(new Decisions());
        producer.start();
        producer.send(new Message(topic, "plain".getBytes(StandardCharsets.UTF_8)));
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = consumer(nameServer, topic, seen);
        for (String kind : List.of("commit", "rollback", "ask", "refuse")) {
            for (int number = 0; number < 3; number++) {
                send(producer, topic, kind + number);
            }
        }
        waitFor(seen, 7);
        send(producer, topic, "late");
        waitFor(seen, 8);
        Thread.sleep(5_000);  // for what should not come
        Collections.sort(seen);
        System.out.println("seen " + String.join(" ", seen));
        System.out.println("asked " + String.join(" ", ASKED.stream().distinct().sorted().toList()));
        consumer.shutdown();
        producer.shutdown();
    }

    private static void send(TransactionMQProducer producer, String topic, String body) throws Exception {
        Message message = new Message(topic, "Tag", body, body.getBytes(StandardCharsets.UTF_8));
        TransactionSendResult result = producer.sendMessageInTransaction(message, null);
        if (result.getTransactionId() == null) {
            throw new IllegalStateException("no transaction id: " + result);
        }
    }

    /** The first letters of a body say what becomes of it. */
    private static class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            if (body.equals("late")) {
                try {
                    System.out.println("half");
                    INPUT.readLine();
                } catch (java.io.IOException error) {
                    throw new IllegalStateException(error);
                }
            }
            return body.startsWith("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE
                : body.startsWith("ask") || body.startsWith("refuse") ? LocalTransactionState.UNKNOW
                : LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            ASKED.add(body);
            return body.startsWith("refuse") || body.startsWith("rollback")
                ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private static DefaultMQPushConsumer consumer(String nameServer, String topic, List<String> seen)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("readers");
        consumer.setNamesrvAddr(nameServer);
        consumer.setMqClientApiTimeout(60_000);
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void waitFor(List<String> seen, int count) throws Exception {
        long deadline = System.currentTimeMillis() + MILLIS_MAX;
        while (seen.stream().distinct().count() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
        }
    }
}
