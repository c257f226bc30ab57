import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer and a push consumer that know nothing of traces: OpenTelemetry's agent watches them.
 *
 * Arguments: name servers, topic to send to, topic to consume, milliseconds between two looks for
 * routes. Sends each line of standard input until it is SEND_OK. A message that begins with `later`
 * is consumed the second time that it comes. Prints `SENT body id` and `GOT body tries`.
 */
public class AgentProbe {
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
        int pollMs = Integer.parseInt(arguments[3]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("agent-c");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setPollNameServerInterval(pollMs);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            String body = new String(messages.get(0).getBody(), StandardCharsets.UTF_8);
            int tries = messages.get(0).getReconsumeTimes();
            System.out.println("GOT " + body + " " + tries);
            context.setDelayLevelWhenNextConsume(1);
            return tries == 0 && body.startsWith("later")
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("agent-p");
        producer.setNamesrvAddr(arguments[0]);
        producer.setPollNameServerInterval(pollMs);
        producer.start();
        System.out.println("READY");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String body; (body = orders.readLine()) != null; ) {
            System.out.println("SENT " + body + " " + send(producer, arguments[1], body));
        }
        producer.shutdown();
        consumer.shutdown();
        System.exit(0);
    }

    private static String send(DefaultMQProducer producer, String topic, String body)
        throws InterruptedException {
        while (true) {
            try {
                SendResult result =
                    producer.send(new Message(topic, body.getBytes(StandardCharsets.UTF_8)));
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    return result.getMsgId();
                }
            } catch (InterruptedException error) {
                throw error;
            } catch (Exception error) {
                System.err.println(error);
            }
            Thread.sleep(100);
        }
    }
}
