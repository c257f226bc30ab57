import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends and reads with RocketMQ's own clients, the way their documentation shows it.
 *
 * Arguments: name server address, topic, number of messages. Prints one line for every answer.
 */
public class ClientProbe {
    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        Set<String> sent = produce(nameServer, topic, count);
        Set<String> read = consume(nameServer, topic, sent.size());
        System.out.println("sent " + sent.size() + " read " + read.size()
            + (sent.equals(read) ? " equal" : " DIFFERENT"));
        System.exit(sent.equals(read) ? 0 : 1);
    }

    private static Set<String> produce(String nameServer, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("probe");
        producer.setNamesrvAddr(nameServer);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        Set<String> sent = new HashSet<>();
        for (int number = 0; number < count; number++) {
            String body = "single " + number;
            Message message = new Message(topic, "TagJ", "key" + number, bytes(body));
            message.putUserProperty("number", Integer.toString(number));
            SendResult result = producer.send(message);
            System.out.println(result.getSendStatus() + " " + result.getOffsetMsgId());
            sent.add(body);
        }
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            String body = "batch " + number;
            batch.add(new Message(topic, "TagB", "batch" + number, bytes(body)));
            sent.add(body);
        }
        SendResult result = producer.send(batch);
        System.out.println(result.getSendStatus() + " " + result.getOffsetMsgId());
        // Larger than compressMsgBodyOverHowmuch: the client compresses it.
        String large = "large ".repeat(2000);
        System.out.println(producer.send(new Message(topic, bytes(large))).getSendStatus());
        sent.add(large);
        producer.shutdown();
        return sent;
    }

    private static Set<String> consume(String nameServer, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("probe");
        consumer.setNamesrvAddr(nameServer);
        consumer.setVipChannelEnabled(false);
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        System.out.println("queues " + queues.size());
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        Set<String> read = new HashSet<>();
        long deadline = System.currentTimeMillis() + 60_000;
        while (read.size() < count && System.currentTimeMillis() < deadline) {
            for (MessageExt message : consumer.poll(1000)) {
                read.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
        }
        consumer.commitSync();
        for (MessageQueue queue : queues) {
            System.out.println("committed " + queue.getQueueId() + " " + consumer.committed(queue));
        }
        consumer.shutdown();
        return read;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
