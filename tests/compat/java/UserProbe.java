import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * An application of one user: it sends to its own topic and consumes from it, tries another one's, and goes on
 * until its standard input ends. Arguments: name servers, access key, secret key, own topic, other topic, group.
 *
 * Prints `sent`, `consumed`, `refused CODE` or `not refused`; then a line for every message that it sends and gets.
 */
public class UserProbe {
    public static void main(String[] arguments) throws Exception {
        String nameServers = arguments[0], own = arguments[3], other = arguments[4], group = arguments[5];
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
        try {
            producer.send(new Message(other, "not mine".getBytes()));
            System.out.println("not refused");
        } catch (MQBrokerException error) {
            System.out.println("refused " + error.getResponseCode());
        } catch (MQClientException error) {
            System.out.println("refused " + error.getResponseCode());
        }
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
}
