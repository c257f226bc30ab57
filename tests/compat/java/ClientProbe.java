import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
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
        // A busy machine makes 3 s, which is the default, too short for a JVM that has just begun.
        producer.setSendMsgTimeout(60_000);
        producer.setMqClientApiTimeout(60_000);
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
        consumer.setMqClientApiTimeout(60_000);
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = patiently(() -> consumer.fetchMessageQueues(topic));
        System.out.println("queues " + queues.size());
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            patiently(() -> {
                consumer.seekToBegin(queue);
                return null;
            });
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

    /**
     * Again until it succeeds. A client whose threads wait for the name server says after 3 s that a
     * broker does not exist; on a busy machine that happens.
     */
    private static <T> T patiently(Callable<T> call) throws Exception {
        long deadline = System.currentTimeMillis() + 60_000;
        while (true) {
            try {
                return call.call();
            } catch (MQClientException error) {
                if (System.currentTimeMillis() > deadline) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
