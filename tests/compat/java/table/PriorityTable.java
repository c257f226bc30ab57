import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Messages with priorities, which RocketMQ has since 5.4: for its client of 5.5 and brokers that know them. */
final class PriorityTable {
    private static final int QUEUES = 8;
    private static Harness harness;

    public static void main(String[] arguments) {
        try {
            harness = new Harness(arguments);
            ClientTable.harness = harness;
            add();
            harness.runAll(arguments[4], 6);
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void add() {
        harness.add("priority: it chooses the queue", s -> {
            String topic = topic(s);
            DefaultMQProducer producer = ClientTable.producer(s);
            for (int priority : new int[] {0, 3, QUEUES - 1, QUEUES, 1_000}) {
                SendResult sent = send(producer, topic, priority);
                Scenario.equal(Math.min(priority, QUEUES - 1), sent.getMessageQueue().getQueueId(), "queue of " + priority);
            }
        });
        harness.add("priority: the highest comes first", s -> {
            String topic = topic(s);
            group(s, "100");
            DefaultMQProducer producer = ClientTable.producer(s);
            for (int round = 0; round < 3; round++) {
                for (int priority : shuffled()) {
                    send(producer, topic, priority);
                }
            }
            List<Integer> seen = new ArrayList<>();
            for (int wanted = QUEUES - 1; wanted >= 0; wanted--) {
                for (int round = 0; round < 3; round++) {
                    seen.add(popOne(s).getPriority());
                }
            }
            List<Integer> expected = new ArrayList<>(seen);
            expected.sort(Collections.reverseOrder());
            Scenario.equal(expected, seen, "order");
            Scenario.equal(3 * QUEUES, seen.size(), "messages");
        });
        harness.add("priority: a group with the factor 0 takes turns", s -> {
            String topic = topic(s);
            group(s, "0");
            DefaultMQProducer producer = ClientTable.producer(s);
            for (int round = 0; round < 4; round++) {
                for (int priority = 0; priority < QUEUES; priority++) {
                    send(producer, topic, priority);
                }
            }
            Set<Integer> seen = new HashSet<>();
            for (int at = 0; at < 16; at++) {
                seen.add(popOne(s).getPriority());
            }
            Scenario.check(seen.size() >= 3, "only " + seen);
        });
        harness.add("priority: not beside a sharding key, a delay or a transaction", s -> {
            String topic = topic(s);
            DefaultMQProducer producer = ClientTable.producer(s);
            Message keyed = message(topic, 3);
            MessageAccessor.putProperty(keyed, MessageConst.PROPERTY_SHARDING_KEY, "key");
            producer.send(keyed);
            Message delayed = message(topic, 3);
            delayed.setDelayTimeLevel(1);
            producer.send(delayed);
            for (MessageExt message : ClientTable.readAll(s, topic, 2)) {
                Scenario.equal(-1, message.getPriority(), "priority");
            }
        });
        harness.add("priority: a push consumer by POP gets all", s -> {
            String topic = topic(s);
            group(s, "100");
            harness.operator().getMQClientAPIImpl().setMessageRequestMode(
                harness.masterAddress(), topic, s.group(), MessageRequestMode.POP, 8, 5_000);
            DefaultMQPushConsumer consumer = ClientTable.push(s, s.group(), topic, "*");
            consumer.setClientRebalance(false);
            List<MessageExt> seen = ClientTable.taking(consumer);
            DefaultMQProducer producer = ClientTable.producer(s);
            for (int priority : shuffled()) {
                send(producer, topic, priority);
            }
            Scenario.until(50, () -> seen.size() >= QUEUES, () -> seen.size() + " have come");
            Set<Integer> priorities = new HashSet<>();
            seen.forEach(message -> priorities.add(message.getPriority()));
            Scenario.equal(QUEUES, priorities.size(), "priorities");
        });
        harness.add("priority: attributes of a group", s -> {
            group(s, "50");
            Scenario.equal(Map.of("priority.factor", "50"), attributes(s), "attributes");
            change(s, Map.of());
            Scenario.equal(Map.of("priority.factor", "50"), attributes(s), "attributes after another change");
            refused(s, Map.of("+priority.factor", "101"));
            refused(s, Map.of("+nonsense", "1"));
            refused(s, Map.of("priority.factor", "1"));
            Map<String, String> none = new HashMap<>();
            none.put("-priority.factor", "");
            change(s, none);
            Scenario.equal(Map.of(), attributes(s), "attributes in the end");
        });
    }

    private static String topic(Scenario s) throws Exception {
        // Made twice: the one that others wait for, and then what is of it alone.
        String topic = s.topic("T_" + s.unique, QUEUES, 6);
        TopicConfig config = new TopicConfig(topic, QUEUES, QUEUES, 6);
        config.setAttributes(Map.of("+message.type", "PRIORITY"));
        api().createTopic(harness.masterAddress(), "TBW102", config, 10_000);
        return topic;
    }

    private static void group(Scenario s, String factor) throws Exception {
        change(s, Map.of("+priority.factor", factor));
    }

    private static void change(Scenario s, Map<String, String> attributes) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(s.group());
        config.setAttributes(attributes);
        api().createSubscriptionGroup(harness.masterAddress(), config, 10_000);
    }

    private static void refused(Scenario s, Map<String, String> attributes) throws Exception {
        try {
            change(s, attributes);
        } catch (org.apache.rocketmq.client.exception.MQClientException | MQBrokerException error) {
            return;
        }
        throw new AssertionError("taken: " + attributes);
    }

    private static Map<String, String> attributes(Scenario s) throws Exception {
        return api().getSubscriptionGroupConfig(harness.masterAddress(), s.group(), 10_000).getAttributes();
    }

    private static List<Integer> shuffled() {
        return Arrays.asList(4, 0, 7, 2, 5, 1, 6, 3);
    }

    private static Message message(String topic, int priority) {
        Message message = new Message(topic, Scenario.bytes("body" + priority));
        message.setPriority(priority);
        return message;
    }

    private static SendResult send(DefaultMQProducer producer, String topic, int priority) throws Exception {
        return producer.send(message(topic, priority));
    }

    private static MQClientAPIImpl api() throws Exception {
        return harness.operator().getMQClientAPIImpl();
    }

    private static MessageExt popOne(Scenario s) throws Exception {
        long deadline = System.currentTimeMillis() + 45_000;
        while (System.currentTimeMillis() < deadline) {
            PopResult result = pop(s).get(30, TimeUnit.SECONDS);
            if (result.getPopStatus() == PopStatus.FOUND) {
                Scenario.equal(1, result.getMsgFoundList().size(), "messages of one pop");
                return result.getMsgFoundList().get(0);
            }
        }
        throw new AssertionError("nothing was popped");
    }

    private static CompletableFuture<PopResult> pop(Scenario s) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(s.group());
        header.setTopic("T_" + s.unique);
        header.setQueueId(-1);
        header.setMaxMsgNums(1);
        header.setInvisibleTime(120_000);
        header.setPollTime(5_000);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp("*");
        CompletableFuture<PopResult> future = new CompletableFuture<>();
        api().popMessageAsync(harness.broker, harness.masterAddress(), header, 20_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                future.completeExceptionally(error);
            }
        });
        return future;
    }
}
