import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * An application of one user: it sends to its own topic and consumes from it, tries another one's, and goes on
 * until its standard input ends. Arguments: name servers, access key, secret key, own topic and group, the other's.
 *
 * Prints `sent`, `consumed`, then `refused CODE` or `not refused` for a send to the other's topic, a pull from it,
 * and a pull by the other's group; then a line for every message that it sends and gets.
 */
public class UserProbe {
    public static void main(String[] arguments) throws Exception {
        String nameServers = arguments[0], own = arguments[3], group = arguments[4];
        String otherTopic = arguments[5], otherGroup = arguments[6];
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(arguments[1], arguments[2]));
        DefaultMQProducer producer = new DefaultMQProducer("P_" + group, hook);
        producer.setNamesrvAddr(nameServers);
        producer.start();
        producer.send(new Message(own, "first".getBytes()));
        System.out.println("sent");
        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServers);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(own, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                String body = new String(message.getBody());
                if (seen.add(body) && !body.equals("first")) {
                    System.out.println("got " + body);
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (!seen.contains("first")) {
            Thread.sleep(50);
        }
        System.out.println("consumed");
        tryOut(() -> producer.send(new Message(otherTopic, "not mine".getBytes())));
        String broker = producer.fetchPublishMessageQueues(own).get(0).getBrokerName();
        tryOut(() -> pull(nameServers, hook, own, group, new MessageQueue(otherTopic, broker, 0)));
        tryOut(() -> pull(nameServers, hook, own, otherGroup, new MessageQueue(own, broker, 0)));
        System.out.flush();
        while (System.in.read() >= 0) {
            // Each byte is a message.
            try {
                producer.send(new Message(own, ("m" + System.nanoTime()).getBytes()));
                System.out.println("sent");
            } catch (Exception error) {
                System.out.println("failed " + error.getClass().getSimpleName());
            }
        }
        System.exit(0);
    }

    private static void tryOut(Callable<Object> action) throws Exception {
        try {
            action.call();
            System.out.println("not refused");
        } catch (MQBrokerException error) {
            System.out.println("refused " + error.getResponseCode());
        } catch (MQClientException error) {
            System.out.println("refused " + error.getResponseCode());
        }
    }

    private static Object pull(String nameServers, RPCHook hook, String own, String group, MessageQueue queue)
        throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(nameServers);
        // A client of its own: its heartbeats name what it may not.
        consumer.setInstanceName("pull" + System.nanoTime());
        consumer.start();
        try {
            // So it knows where the broker is.
            consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                .updateTopicRouteInfoFromNameServer(own);
            return consumer.pull(queue, "*", 0, 32);
        } finally {
            consumer.shutdown();
        }
    }
}
