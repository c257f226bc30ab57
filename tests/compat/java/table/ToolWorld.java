import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What tools look at: a topic of ten messages in two queues, a group that has consumed them and is there,
 * one that has and is gone, and a producer.
 */
final class ToolWorld {
    final Harness harness;
    final String address;
    final String topic;
    final String online;
    final String offline;
    final String producers;
    final List<SendResult> sent = new ArrayList<>();
    final DefaultMQPushConsumer consumer;
    final DefaultMQProducer producer;
    final String wrong;

    ToolWorld(Harness harness) throws Exception {
        this.harness = harness;
        String unique = Long.toString(System.nanoTime() & 0xffffff, 36);
        address = harness.masterAddress();
        topic = "World_" + unique;
        online = "Online_" + unique;
        offline = "Offline_" + unique;
        producers = "Producers_" + unique;
        harness.makeTopic(topic, 2, 6);
        producer = new DefaultMQProducer(producers, Keys.producer());
        producer.setNamesrvAddr(harness.nameServers);
        producer.setInstanceName("world");
        producer.start();
        for (int number = 0; number < 10; number++) {
            MessageQueue queue = new MessageQueue(topic, harness.broker, number % 2);
            sent.add(producer.send(new Message(topic, "TagA", "key" + number, Scenario.bytes("body" + number)), queue));
        }
        List<MessageExt> seenByOffline = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer gone = consumer(offline, seenByOffline);
        List<MessageExt> seen = Collections.synchronizedList(new ArrayList<>());
        consumer = consumer(online, seen);
        String otherwise = "";
        try {
            Scenario.until(60, () -> seen.size() == 10 && seenByOffline.size() == 10,
                () -> "the consumers have seen " + seen.size() + " and " + seenByOffline.size());
        } catch (AssertionError error) {
            otherwise = error.getMessage();
        }
        wrong = otherwise;
        Thread.sleep(500);  // what was seen counts as consumed a moment later
        gone.shutdown();
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        Thread.sleep(1_500);  // statistics and index
    }

    private DefaultMQPushConsumer consumer(String group, List<MessageExt> seen) throws Exception {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group, Keys.consumer());
        made.setNamesrvAddr(harness.nameServers);
        made.setInstanceName(group);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setConsumeThreadMin(2);
        made.setConsumeThreadMax(2);
        made.subscribe(topic, "TagA");
        made.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        made.start();
        return made;
    }

    String clientId() {
        return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
    }

    MessageQueue queue(int number) {
        return new MessageQueue(topic, harness.broker, number);
    }

    /** Everything that reads. */
    void check() {
        Scenario.check(wrong.isEmpty(), wrong);
    }
}
