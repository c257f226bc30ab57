import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Consumers that receive by POP, and what they ask for, one by one. */
final class PopTable {
    private static Harness harness;

    static void add(Harness given) {
        harness = given;
        harness.add("POP", s -> {
            List<MessageExt> seen = ClientTable.taking(popping(s, s.topic()));
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 5);
            ClientTable.awaitBodies(seen, ClientTable.numbered(5));
        });
        harness.add("POP: what was handled never comes again", s -> {
            DefaultMQPushConsumer first = popping(s, s.topic());
            first.setPopInvisibleTime(10_000);
            List<MessageExt> seen = ClientTable.taking(first);
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 5);
            ClientTable.awaitBodies(seen, ClientTable.numbered(5));
            Thread.sleep(1_000);
            first.shutdown();
            List<MessageExt> again = ClientTable.taking(popping(s, s.topic()));
            Thread.sleep(15_000);
            Scenario.equal(Set.of(), ClientTable.bodies(again), "seen again");
        });
        harness.add("POP: two consumers share", s -> {
            List<MessageExt> one = ClientTable.taking(popping(s, s.topic()));
            List<MessageExt> other = ClientTable.taking(popping(s, s.topic()));
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 20);
            Scenario.until(60, () -> one.size() + other.size() >= 20, () -> one.size() + " and " + other.size());
            Set<String> both = new TreeSet<>(ClientTable.bodies(one));
            both.addAll(ClientTable.bodies(other));
            Scenario.equal(ClientTable.numbered(20), both, "bodies");
            Scenario.equal(20, one.size() + other.size(), "messages");
        });
        harness.add("POP: what fails comes again", s -> {
            DefaultMQPushConsumer consumer = popping(s, s.topic());
            List<Integer> times = Collections.synchronizedList(new ArrayList<>());
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                times.add(messages.get(0).getReconsumeTimes());
                return times.size() == 1 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 1);
            Scenario.until(50, () -> times.size() >= 2, () -> "seen with " + times);
            Scenario.equal(List.of(0, 1), new ArrayList<>(times), "reconsume times");
        });
        harness.add("POP: in order", s -> {
            DefaultMQPushConsumer consumer = popping(s, s.topic());
            Map<Integer, List<Long>> seen = new ConcurrentHashMap<>();
            AtomicInteger count = new AtomicInteger();
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    seen.computeIfAbsent(message.getQueueId(), id -> Collections.synchronizedList(new ArrayList<>()))
                        .add(message.getQueueOffset());
                    count.incrementAndGet();
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 12);
            Scenario.until(60, () -> count.get() >= 12, () -> "seen " + seen);
            for (List<Long> offsets : seen.values()) {
                List<Long> sorted = new ArrayList<>(offsets);
                Collections.sort(sorted);
                Scenario.equal(sorted, new ArrayList<>(offsets), "order");
            }
        });
        harness.add("POP: acknowledged, extended, and neither", s -> {
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 3);
            List<MessageExt> popped = popAll(s, 15_000, 3);
            Scenario.equal(AckStatus.OK, ack(s, popped.get(0)).getStatus(), "acknowledged");
            AckResult changed = change(s, popped.get(1), 90_000);
            Scenario.equal(AckStatus.OK, changed.getStatus(), "extended");
            Scenario.check(changed.getExtraInfo() != null, "no new handle");
            String third = Scenario.text(popped.get(2).getBody());
            List<MessageExt> again = popAll(s, 60_000, 1);
            Scenario.equal(Set.of(third), ClientTable.bodies(again), "came again");
            Scenario.equal(1, again.get(0).getReconsumeTimes(), "reconsume times");
            Scenario.equal(s.topic(), again.get(0).getTopic(), "topic");
            Scenario.equal(AckStatus.OK, ack(s, again.get(0)).getStatus(), "acknowledged after it came again");
        });
        harness.add("POP: acknowledged all at once", s -> {
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 5);
            List<String> handles = new ArrayList<>();
            for (MessageExt message : popAll(s, 15_000, 5)) {
                handles.add(message.getProperty(MessageConst.PROPERTY_POP_CK));
            }
            Answer answer = new Answer();
            api().batchAckMessageAsync(harness.masterAddress(), 5_000, answer, s.topic(), s.group(), handles);
            Scenario.equal(AckStatus.OK, answer.get(10, TimeUnit.SECONDS).getStatus(), "acknowledged");
            Thread.sleep(20_000);
            Scenario.equal(PopStatus.POLLING_NOT_FOUND, pop(s, 60_000, 100).getPopStatus(), "what comes then");
        });
        harness.add("POP: waits for a message", s -> {
            s.topic();
            CompletableFuture<PopResult> waiting = popping(s, 60_000, 15_000);
            Thread.sleep(1_000);
            Scenario.check(!waiting.isDone(), "did not wait");
            ClientTable.send(ClientTable.producer(s), s.topic(), "A", 1);
            PopResult result = waiting.get(10, TimeUnit.SECONDS);
            Scenario.equal(PopStatus.FOUND, result.getPopStatus(), "status");
        });
    }

    private static DefaultMQPushConsumer popping(Scenario s, String topic) throws Exception {
        harness.operator().getMQClientAPIImpl().setMessageRequestMode(harness.masterAddress(), topic, s.group(),
            MessageRequestMode.POP, 8, 5_000);
        DefaultMQPushConsumer consumer = ClientTable.push(s, s.group(), topic, "*");
        consumer.setClientRebalance(false);
        return consumer;
    }

    private static MQClientAPIImpl api() throws Exception {
        return harness.operator().getMQClientAPIImpl();
    }

    private static CompletableFuture<PopResult> popping(Scenario s, long invisible, long poll) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(s.group());
        header.setTopic(s.topic());
        header.setQueueId(-1);
        header.setMaxMsgNums(32);
        header.setInvisibleTime(invisible);
        header.setPollTime(poll);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp("*");
        CompletableFuture<PopResult> future = new CompletableFuture<>();
        api().popMessageAsync(harness.broker, harness.masterAddress(), header, poll + 10_000, new PopCallback() {
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

    private static PopResult pop(Scenario s, long invisible, long poll) throws Exception {
        return popping(s, invisible, poll).get(poll + 15_000, TimeUnit.MILLISECONDS);
    }

    /** Pops until so many messages have come. */
    private static List<MessageExt> popAll(Scenario s, long invisible, int count) throws Exception {
        List<MessageExt> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 45_000;
        while (found.size() < count) {
            Scenario.check(System.currentTimeMillis() < deadline, "popped " + ClientTable.bodies(found));
            PopResult result = pop(s, invisible, 2_000);
            if (result.getPopStatus() == PopStatus.FOUND) {
                found.addAll(result.getMsgFoundList());
            }
        }
        return found;
    }

    private static AckResult ack(Scenario s, MessageExt message) throws Exception {
        String[] parts = ExtraInfoUtil.split(message.getProperty(MessageConst.PROPERTY_POP_CK));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, s.topic(), s.group()));
        header.setConsumerGroup(s.group());
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(message.getProperty(MessageConst.PROPERTY_POP_CK));
        Answer answer = new Answer();
        api().ackMessageAsync(harness.masterAddress(), 5_000, answer, header);
        return answer.get(10, TimeUnit.SECONDS);
    }

    private static AckResult change(Scenario s, MessageExt message, long invisible) throws Exception {
        String[] parts = ExtraInfoUtil.split(message.getProperty(MessageConst.PROPERTY_POP_CK));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, s.topic(), s.group()));
        header.setConsumerGroup(s.group());
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setExtraInfo(message.getProperty(MessageConst.PROPERTY_POP_CK));
        header.setInvisibleTime(invisible);
        Answer answer = new Answer();
        api().changeInvisibleTimeAsync(harness.broker, harness.masterAddress(), header, 5_000, answer);
        return answer.get(10, TimeUnit.SECONDS);
    }

    /** What a broker answers to an acknowledgement. */
    private static final class Answer extends CompletableFuture<AckResult> implements AckCallback {
        @Override
        public void onSuccess(AckResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable error) {
            completeExceptionally(error);
        }
    }
}
