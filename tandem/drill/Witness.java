import java.io.PrintStream;
import java.util.List;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic with RocketMQ's own client, and says what it was given, a line for each message:
 * queue, offset, CRC-32 of the body, how often it was given again, keys.
 *
 * Arguments: name servers, topic, group. Ends when its standard input does. One thread consumes, so
 * that the messages of a queue are given in their order.
 */
public class Witness {
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) {
        // What the client prints is not of the ledger.
        System.setOut(System.err);
        try {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[2]);
            consumer.setNamesrvAddr(arguments[0]);
            consumer.setVipChannelEnabled(false);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMin(1);
            consumer.setConsumeThreadMax(1);
            consumer.setConsumeMessageBatchMaxSize(1);
            consumer.subscribe(arguments[1], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                note(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            OUT.println("ready");
            OUT.flush();
            while (System.in.read() >= 0) {
                continue;
            }
            consumer.shutdown();
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        // RocketMQ's threads would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private static synchronized void note(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            CRC32 crc = new CRC32();
            crc.update(message.getBody());
            OUT.println(message.getQueueId() + " " + message.getQueueOffset() + " " + crc.getValue()
                + " " + message.getReconsumeTimes() + " " + message.getKeys());
        }
        OUT.flush();
    }
}
