import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;

/** A push consumer in POP mode: says what it handles, until a line comes. Looks for routes often. */
public class PopProbe {
    public static void main(String[] arguments) throws Exception {
        String nameServers = arguments[0];
        String topic = arguments[1];
        String group = arguments[2];
        String master = arguments[3];
        DefaultMQProducer operator = new DefaultMQProducer("pop-operator");
        operator.setNamesrvAddr(nameServers);
        operator.setInstanceName("operator" + System.nanoTime());
        operator.start();
        operator.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().setMessageRequestMode(
            master, topic, group, MessageRequestMode.POP, 0, 10_000);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(500);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPopInvisibleTime(10_000);
        consumer.setClientRebalance(false);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            say(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.in.read();
        consumer.shutdown();
        operator.shutdown();
        System.exit(0);
    }

    private static synchronized void say(List<MessageExt> messages) {
        for (MessageExt message : messages) {
            System.out.println(new String(message.getBody()) + " " + message.getReconsumeTimes());
        }
        System.out.flush();
    }
}
