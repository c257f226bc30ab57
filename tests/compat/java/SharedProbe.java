import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A member of a group that others are in as well.
 *
 * Arguments: name servers, group, topic, `orderly` or `concurrent`. Prints a line for each message,
 * its queue and its body, until its standard input ends; then it leaves the group in good order.
 */
public class SharedProbe {
    public static void main(String[] arguments) {
        try {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
            consumer.setNamesrvAddr(arguments[0]);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeMessageBatchMaxSize(1);
            consumer.subscribe(arguments[2], "*");
            if (arguments[3].equals("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    messages.forEach(SharedProbe::print);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    messages.forEach(SharedProbe::print);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
            while (System.in.read() >= 0) { }
            consumer.shutdown();
            System.exit(0);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static synchronized void print(MessageExt message) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        System.out.println(message.getQueueId() + " " + body);
        System.out.flush();
    }
}
