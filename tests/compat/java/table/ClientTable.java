import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What applications do with rocketmq-client: the same scenarios for 5.3.3 and for 4.9.8. */
public final class ClientTable {
    static final int NO_QUEUE = 10005;
    static final int SUBSCRIPTION_PARSE_FAILED = 23;
    static Harness harness;

    public static void main(String[] arguments) {
        try {
            run(arguments);
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        harness = new Harness(arguments);
        sending();
        pushing();
        failing();
        pulling();
        transactions();
        lookingUp();
        if (arguments[4].equals("5")) {
            // By its name: with the older client it does not compile.
            Class.forName("ClientTableFive").getDeclaredMethod("add", Harness.class).invoke(null, harness);
        }
        harness.runAll(arguments[5], 14);
    }

    // ---- what scenarios start ----

    static DefaultMQProducer producer(Scenario s) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("P_" + s.unique, Keys.producer());
        return started(s, producer);
    }

    /** One that looks at messages, too. */
    static DefaultMQProducer looking(Scenario s) throws Exception {
        return started(s, new DefaultMQProducer("P_" + s.unique, Keys.application()));
    }

    static <P extends DefaultMQProducer> P started(Scenario s, P producer) throws Exception {
        producer.setNamesrvAddr(harness.nameServers);
        producer.setInstanceName("p" + System.nanoTime());
        producer.setSendMsgTimeout(10_000);
        producer.start();
        s.closeLater(producer::shutdown);
        return producer;
    }

    static DefaultMQPushConsumer push(Scenario s, String group, String topic, String tags) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, Keys.consumer(), Keys.averagely());
        consumer.setNamesrvAddr(harness.nameServers);
        consumer.setInstanceName("c" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        if (topic != null) {
            consumer.subscribe(topic, tags);
        }
        s.closeLater(consumer::shutdown);
        return consumer;
    }

    /** Starts a consumer that takes everything; what it has seen. */
    static List<MessageExt> taking(DefaultMQPushConsumer consumer) throws Exception {
        List<MessageExt> seen = Collections.synchronizedList(new ArrayList<>());
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return seen;
    }

    static DefaultLitePullConsumer lite(Scenario s, String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group, Keys.consumer());
        consumer.setNamesrvAddr(harness.nameServers);
        consumer.setInstanceName("l" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        s.closeLater(consumer::shutdown);
        return consumer;
    }

    static DefaultMQPullConsumer pull(Scenario s) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(s.group(), Keys.consumer());
        consumer.setNamesrvAddr(harness.nameServers);
        consumer.setInstanceName("o" + System.nanoTime());
        consumer.start();
        s.closeLater(consumer::shutdown);
        return consumer;
    }

    static List<SendResult> send(DefaultMQProducer producer, String topic, String tags, int count) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            results.add(producer.send(new Message(topic, tags, "key" + number, Scenario.bytes("body" + number))));
        }
        return results;
    }

    static Set<String> bodies(List<? extends Message> messages) {
        Set<String> bodies = new TreeSet<>();
        synchronized (messages) {
            messages.forEach(message -> bodies.add(Scenario.text(message.getBody())));
        }
        return bodies;
    }

    static Set<String> numbered(int count) {
        Set<String> bodies = new TreeSet<>();
        for (int number = 0; number < count; number++) {
            bodies.add("body" + number);
        }
        return bodies;
    }

    static void awaitBodies(List<? extends Message> seen, Set<String> expected) throws Exception {
        Scenario.until(60, () -> bodies(seen).containsAll(expected), () -> "seen " + bodies(seen));
        Thread.sleep(300);  // for what should not come
        Scenario.equal(expected, bodies(seen), "bodies");
    }

    /** All of a topic, read without a group. */
    static List<MessageExt> readAll(Scenario s, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = lite(s, "R_" + s.unique + "_" + System.nanoTime() % 1000);
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        List<MessageExt> seen = new ArrayList<>();
        Scenario.until(30, () -> {
            seen.addAll(consumer.poll(300));
            return seen.size() >= count;
        }, () -> "read " + bodies(seen));
        return seen;
    }

    // ---- scenarios ----

    static void sending() {
        harness.add("send sync", s -> {
            String topic = s.topic();
            List<SendResult> results = send(producer(s), topic, "A", 8);
            for (SendResult result : results) {
                Scenario.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
                Scenario.check(result.getOffsetMsgId().length() == 32, "offset id " + result.getOffsetMsgId());
                Scenario.equal("DefaultRegion", result.getRegionId(), "region");
                Scenario.check(result.getQueueOffset() < 2, "offset " + result.getQueueOffset());
            }
            Scenario.equal(numbered(8), bodies(readAll(s, topic, 8)), "bodies");
        });
        harness.add("send async", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            CountDownLatch done = new CountDownLatch(20);
            AtomicReference<Throwable> wrong = new AtomicReference<>();
            for (int number = 0; number < 20; number++) {
                producer.send(new Message(topic, Scenario.bytes("body" + number)), new SendCallback() {
                    public void onSuccess(SendResult result) {
                        done.countDown();
                    }

                    public void onException(Throwable error) {
                        wrong.set(error);
                        done.countDown();
                    }
                });
            }
            Scenario.check(done.await(20, TimeUnit.SECONDS), "not all answered");
            Scenario.check(wrong.get() == null, "failed: " + wrong.get());
            Scenario.equal(numbered(20), bodies(readAll(s, topic, 20)), "bodies");
        });
        harness.add("send one-way", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            for (int number = 0; number < 10; number++) {
                producer.sendOneway(new Message(topic, Scenario.bytes("body" + number)));
            }
            Scenario.equal(numbered(10), bodies(readAll(s, topic, 10)), "bodies");
        });
        harness.add("send batch", s -> {
            String topic = s.topic();
            List<Message> messages = new ArrayList<>();
            for (int number = 0; number < 5; number++) {
                messages.add(new Message(topic, "A", "k" + number, Scenario.bytes("body" + number)));
            }
            SendResult result = producer(s).send(messages);
            Scenario.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
            Scenario.equal(5, result.getOffsetMsgId().split(",").length, "ids");
            List<MessageExt> seen = readAll(s, topic, 5);
            Scenario.equal(numbered(5), bodies(seen), "bodies");
            for (int number = 0; number < 5; number++) {
                Scenario.equal((long) number, seen.get(number).getQueueOffset(), "offset");
                Scenario.equal("k" + number, seen.get(number).getKeys(), "keys");
            }
        });
        harness.add("send to a queue", s -> {
            String topic = s.topic();
            MessageQueue queue = new MessageQueue(topic, harness.broker, 2);
            SendResult result = producer(s).send(new Message(topic, Scenario.bytes("body0")), queue);
            Scenario.equal(queue, result.getMessageQueue(), "queue");
            Scenario.equal(2, readAll(s, topic, 1).get(0).getQueueId(), "queue read");
        });
        harness.add("send with a selector", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            for (int number = 0; number < 12; number++) {
                int wanted = number % 4;
                SendResult result = producer.send(new Message(topic, Scenario.bytes("body" + number)),
                    (queues, message, argument) -> queues.get((Integer) argument), wanted);
                Scenario.equal((long) number / 4, result.getQueueOffset(), "offset");
                Scenario.equal(wanted, result.getMessageQueue().getQueueId(), "queue");
            }
            Scenario.equal(numbered(12), bodies(readAll(s, topic, 12)), "bodies");
        });
        harness.add("send to a queue that is not there is refused", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            producer.setRetryTimesWhenSendFailed(0);
            try {
                producer.send(new Message(topic, Scenario.bytes("x")), new MessageQueue(topic, harness.broker, 99));
            } catch (MQBrokerException error) {
                Scenario.equal(29, error.getResponseCode(), "code");
                return;
            }
            throw new AssertionError("was taken");
        });
        harness.add("compressed body", s -> {
            String topic = s.topic();
            byte[] body = "compressible ".repeat(20_000).getBytes();
            producer(s).send(new Message(topic, body));
            MessageExt seen = readAll(s, topic, 1).get(0);
            Scenario.check(Arrays.equals(body, seen.getBody()), "body differs");
            Scenario.check(seen.getStoreSize() < 10_000, "stored in " + seen.getStoreSize() + " bytes");
        });
        harness.add("body of nearly 4 MiB", s -> {
            String topic = s.topic();
            byte[] body = new byte[4_000_000];
            new Random(1).nextBytes(body);
            producer(s).send(new Message(topic, body));
            Scenario.check(Arrays.equals(body, readAll(s, topic, 1).get(0).getBody()), "body differs");
        });
        harness.add("body above 4 MiB is refused", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            producer.setMaxMessageSize(12_000_000);
            byte[] body = new byte[5_000_000];
            new Random(1).nextBytes(body);
            try {
                producer.send(new Message(topic, body));
            } catch (MQBrokerException error) {
                Scenario.equal(13, error.getResponseCode(), "code");
                return;
            }
            throw new AssertionError("was taken");
        });
        harness.add("properties, flag, keys and tags arrive", s -> {
            String topic = s.topic();
            Message message = new Message(topic, "Tag\u00e4", "k1 k2", 77, Scenario.bytes("b\u00f6dy"), true);
            message.putUserProperty("color", "bl\u00e4u");
            message.setBuyerId("buyer");
            producer(s).send(message);
            MessageExt seen = readAll(s, topic, 1).get(0);
            Scenario.equal("Tag\u00e4", seen.getTags(), "tags");
            Scenario.equal("k1 k2", seen.getKeys(), "keys");
            Scenario.equal(77, seen.getFlag(), "flag");
            Scenario.equal("bl\u00e4u", seen.getUserProperty("color"), "property");
            Scenario.equal("buyer", seen.getBuyerId(), "buyer");
            Scenario.equal("b\u00f6dy", Scenario.text(seen.getBody()), "body");
            Scenario.equal("DefaultRegion", seen.getProperty("MSG_REGION"), "region");
            Scenario.equal("true", seen.getProperty("TRACE_ON"), "trace");
            Scenario.equal(harness.cluster, seen.getProperty("CLUSTER"), "cluster");
        });
        harness.add("topic is made by the first message", s -> {
            String topic = "Auto_" + s.unique;
            SendResult result = send(producer(s), topic, "A", 1).get(0);
            Scenario.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
            Scenario.until(10, () -> routes(topic) == 4, () -> routes(topic) + " queues");
        });
        harness.add("a created topic is at once in every route", s -> {
            for (int time = 0; time < 5; time++) {
                String topic = "Once" + time + "_" + s.unique;
                harness.instance().getMQClientAPIImpl().createTopic(harness.masterAddress(), "TBW102",
                    new org.apache.rocketmq.common.TopicConfig(topic, 3, 3, 6), 10_000);
                for (String server : harness.nameServers.split(";")) {
                    DefaultMQProducer producer = new DefaultMQProducer("P_" + s.unique, Keys.producer());
                    producer.setNamesrvAddr(server);
                    producer.setInstanceName("once" + System.nanoTime());
                    producer.start();
                    s.closeLater(producer::shutdown);
                    Scenario.equal(3, producer.fetchPublishMessageQueues(topic).size(), "queues at " + server);
                }
            }
        });
        harness.add("topic without write permission", s -> {
            String topic = s.topic("RO_" + s.unique, 4, 4);
            DefaultMQProducer producer = producer(s);
            try {
                producer.send(new Message(topic, Scenario.bytes("x")));
            } catch (MQClientException error) {
                Scenario.equal(NO_QUEUE, error.getResponseCode(), "code");
                return;
            }
            throw new AssertionError("was taken");
        });
        harness.add("delay level", s -> {
            String topic = s.topic();
            Message message = new Message(topic, Scenario.bytes("body0"));
            message.setDelayTimeLevel(2);
            DefaultMQProducer producer = producer(s);
            long begun = System.currentTimeMillis();
            producer.send(message);
            Scenario.equal(numbered(1), bodies(readAll(s, topic, 1)), "bodies");
            long took = System.currentTimeMillis() - begun;
            Scenario.check(took > 4_500 && took < 12_000, "came after " + took + " ms");
        });
        harness.add("unit mode", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = new DefaultMQProducer("P_" + s.unique, Keys.producer());
            producer.setUnitMode(true);
            producer.setUnitName("unit");
            started(s, producer);
            send(producer, topic, "A", 3);
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.setUnitMode(true);
            consumer.setUnitName("unit");
            awaitBodies(taking(consumer), numbered(3));
        });
        harness.add("namespace", s -> {
            s.topic("ns" + s.unique + "%T", 4, 6);
            DefaultMQProducer producer = new DefaultMQProducer("ns" + s.unique, "P", Keys.producer());
            started(s, producer);
            send(producer, "T", "A", 4);
            DefaultMQPushConsumer consumer = push(s, "G", null, null);
            consumer.setNamespace("ns" + s.unique);
            consumer.subscribe("T", "*");
            List<MessageExt> seen = taking(consumer);
            awaitBodies(seen, numbered(4));
            Scenario.equal("T", seen.get(0).getTopic(), "topic");
        });
        accessKeys();
        harness.add("message trace of a producer", s -> {
            String topic = s.topic();
            String traces = s.topic("Trace_" + s.unique, 1, 6);
            DefaultMQProducer producer = new DefaultMQProducer("P_" + s.unique, Keys.producer(), true, traces);
            started(s, producer);
            SendResult result = send(producer, topic, "A", 1).get(0);
            String trace = Scenario.text(readAll(s, traces, 1).get(0).getBody());
            Scenario.check(trace.startsWith("Pub") && trace.contains(result.getMsgId()), "trace " + trace);
        });
        harness.add("message trace of a consumer", s -> {
            String topic = s.topic();
            String traces = s.topic("Trace_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 1);
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(s.group(), Keys.application(), Keys.averagely(),
                true, traces);
            consumer.setNamesrvAddr(harness.nameServers);
            consumer.setInstanceName("c" + System.nanoTime());
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            s.closeLater(consumer::shutdown);
            awaitBodies(taking(consumer), numbered(1));
            String trace = Scenario.text(readAll(s, traces, 1).get(0).getBody());
            Scenario.check(trace.startsWith("SubBefore"), "trace " + trace);
        });
    }

    static void accessKeys() {
        if (Keys.areAskedFor()) {
            harness.add("a secret key that is wrong is refused", s -> refused(s, Keys.hook("table", "not the secret")));
            harness.add("an access key of nobody is refused", s -> refused(s, Keys.hook("nobody", "not the secret")));
            harness.add("who does not sign is refused", s -> refused(s, null));
            harness.add("what a user may not do is refused", s -> {
                String topic = s.topic();
                DefaultMQProducer producer = producer(s);
                try {
                    api(producer).deleteTopicInBroker(harness.masterAddress(), topic, 10_000);
                } catch (MQClientException error) {
                    Scenario.equal(16, error.getResponseCode(), "code");
                    Scenario.equal(4, producer.fetchPublishMessageQueues(topic).size(), "queues");
                    return;
                }
                throw new AssertionError("was taken");
            });
            return;
        }
        harness.add("access keys are sent and not checked", s -> {
            String topic = s.topic();
            RPCHook hook = new RPCHook() {
                public void doBeforeRequest(String address, RemotingCommand request) {
                    request.addExtField("AccessKey", "nobody");
                    request.addExtField("Signature", "LHK0WYsWa63xtyCDHCqoKKzoJ1s=");
                }

                public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
                }
            };
            DefaultMQProducer producer = new DefaultMQProducer("P_" + s.unique, hook);
            started(s, producer);
            send(producer, topic, "A", 3);
            Scenario.equal(numbered(3), bodies(readAll(s, topic, 3)), "bodies");
        });
    }

    /** A broker says no to whoever signs so. */
    static void refused(Scenario s, RPCHook hook) throws Exception {
        DefaultMQProducer producer = started(s, new DefaultMQProducer("P_" + s.unique, hook));
        try {
            api(producer).createTopic(harness.masterAddress(), "TBW102",
                new org.apache.rocketmq.common.TopicConfig("T_" + s.unique, 4, 4, 6), 10_000);
        } catch (MQClientException error) {
            Scenario.equal(16, error.getResponseCode(), "code");
            Scenario.equal(-1, routes("T_" + s.unique), "queues");
            return;
        }
        throw new AssertionError("was taken");
    }

    static MQClientAPIImpl api(DefaultMQProducer producer) {
        return producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    static int routes(String topic) {
        try {
            return harness.instance().getMQClientAPIImpl().getTopicRouteInfoFromNameServer(topic, 3_000)
                .getQueueDatas().get(0).getWriteQueueNums();
        } catch (Exception error) {
            return -1;
        }
    }

    static void pushing() {
        harness.add("push concurrently", s -> {
            String topic = s.topic();
            List<MessageExt> seen = taking(push(s, s.group(), topic, "*"));
            send(producer(s), topic, "A", 20);
            awaitBodies(seen, numbered(20));
        });
        harness.add("push with tags", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            for (String tag : List.of("A", "B", "C")) {
                producer.send(new Message(topic, tag, Scenario.bytes("body" + tag)));
            }
            producer.send(new Message(topic, Scenario.bytes("none")));
            awaitBodies(taking(push(s, s.group(), topic, "A || C")), Set.of("bodyA", "bodyC"));
        });
        harness.add("push with SQL92", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            for (int number = 0; number < 10; number++) {
                Message message = new Message(topic, number % 2 == 0 ? "A" : "B", Scenario.bytes("body" + number));
                message.putUserProperty("a", Integer.toString(number));
                producer.send(message);
            }
            DefaultMQPushConsumer consumer = push(s, s.group(), null, null);
            consumer.subscribe(topic, MessageSelector.bySql("a BETWEEN 2 AND 6 AND TAGS IN ('A')"));
            awaitBodies(taking(consumer), Set.of("body2", "body4", "body6"));
        });
        harness.add("SQL92 that is wrong is told at the start", s -> {
            DefaultMQPushConsumer consumer = push(s, s.group(), null, null);
            consumer.subscribe(s.topic(), MessageSelector.bySql("a BETWEEN"));
            try {
                taking(consumer);
            } catch (MQClientException error) {
                Scenario.equal(SUBSCRIPTION_PARSE_FAILED, error.getResponseCode(), "code");
                return;
            }
            throw new AssertionError("was taken");
        });
        harness.add("push in batches", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 24);
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.setConsumeMessageBatchMaxSize(8);
            AtomicInteger largest = new AtomicInteger();
            List<MessageExt> seen = Collections.synchronizedList(new ArrayList<>());
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                largest.accumulateAndGet(messages.size(), Math::max);
                seen.addAll(messages);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            awaitBodies(seen, numbered(24));
            Scenario.equal(8, largest.get(), "largest batch");
        });
        harness.add("two topics, one consumer", s -> {
            String one = s.topic("T1_" + s.unique, 2, 6);
            String two = s.topic("T2_" + s.unique, 2, 6);
            DefaultMQPushConsumer consumer = push(s, s.group(), one, "*");
            consumer.subscribe(two, "B");
            List<MessageExt> seen = taking(consumer);
            DefaultMQProducer producer = producer(s);
            producer.send(new Message(one, "A", Scenario.bytes("one")));
            producer.send(new Message(two, "A", Scenario.bytes("no")));
            producer.send(new Message(two, "B", Scenario.bytes("two")));
            awaitBodies(seen, Set.of("one", "two"));
        });
        harness.add("two groups, each gets all", s -> {
            String topic = s.topic();
            List<MessageExt> one = taking(push(s, s.group() + "a", topic, "*"));
            List<MessageExt> two = taking(push(s, s.group() + "b", topic, "*"));
            send(producer(s), topic, "A", 10);
            awaitBodies(one, numbered(10));
            awaitBodies(two, numbered(10));
        });
        harness.add("broadcast", s -> {
            String topic = s.topic();
            List<List<MessageExt>> all = new ArrayList<>();
            for (int number = 0; number < 2; number++) {
                DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
                // The old package and the new one: by its name.
                Class<?> parameter = Arrays.stream(DefaultMQPushConsumer.class.getMethods())
                    .filter(method -> method.getName().equals("setMessageModel")).findFirst().get()
                    .getParameterTypes()[0];
                DefaultMQPushConsumer.class.getMethod("setMessageModel", parameter)
                    .invoke(consumer, Arrays.stream(parameter.getEnumConstants())
                        .filter(model -> model.toString().equals("BROADCASTING")).findFirst().get());
                all.add(taking(consumer));
            }
            Thread.sleep(1_500);  // a broadcast consumer begins where the topic ends
            send(producer(s), topic, "A", 10);
            awaitBodies(all.get(0), numbered(10));
            awaitBodies(all.get(1), numbered(10));
        });
        harness.add("two consumers share the queues", s -> {
            String topic = s.topic();
            DefaultMQPushConsumer one = push(s, s.group(), topic, "*");
            DefaultMQPushConsumer two = push(s, s.group(), topic, "*");
            List<MessageExt> first = taking(one);
            List<MessageExt> second = taking(two);
            Scenario.until(60, () -> held(one, topic) == 2 && held(two, topic) == 2,
                () -> held(one, topic) + " and " + held(two, topic) + " queues");
            send(producer(s), topic, "A", 12);
            Scenario.until(60, () -> first.size() + second.size() >= 12, () -> first.size() + " and " + second.size());
            Scenario.check(!first.isEmpty() && !second.isEmpty(), "not shared");
            two.shutdown();
            Scenario.until(30, () -> held(one, topic) == 4, () -> held(one, topic) + " queues after one has left");
        });
        harness.add("consumer goes on where its group was", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            DefaultMQPushConsumer one = push(s, s.group(), topic, "*");
            List<MessageExt> first = taking(one);
            send(producer, topic, "A", 8);
            awaitBodies(first, numbered(8));
            one.shutdown();
            producer.send(new Message(topic, Scenario.bytes("later")));
            awaitBodies(taking(push(s, s.group(), topic, "*")), Set.of("later"));
        });
        harness.add("consume from first", s -> {
            String topic = s.topic();
            send(producer(s), topic, "A", 5);
            awaitBodies(taking(push(s, s.group(), topic, "*")), numbered(5));
        });
        harness.add("consume from last, of a young topic", s -> {
            // RocketMQ begins at 0 while the first message is in memory.
            String topic = s.topic();
            send(producer(s), topic, "A", 5);
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
            awaitBodies(taking(consumer), numbered(5));
        });
        harness.add("consume from a time, of a young topic", s -> {
            // As from the last: RocketMQ begins at 0 while the first message is in memory.
            String topic = s.topic();
            send(producer(s), topic, "A", 5);
            Thread.sleep(2_000);  // the time has no parts of a second
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
            consumer.setConsumeTimestamp(
                java.time.LocalDateTime.now().format(java.time.format.DateTimeFormatter.ofPattern("yyyyMMddHHmmss")));
            awaitBodies(taking(consumer), numbered(5));
        });
        harness.add("consumer suspended and resumed", s -> {
            String topic = s.topic();
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            List<MessageExt> seen = taking(consumer);
            DefaultMQProducer producer = producer(s);
            producer.send(new Message(topic, Scenario.bytes("first")));
            awaitBodies(seen, Set.of("first"));
            consumer.suspend();
            Thread.sleep(1_000);
            consumer.resume();
            producer.send(new Message(topic, Scenario.bytes("second")));
            awaitBodies(seen, Set.of("first", "second"));
        });
        harness.add("subscription changed while it runs", s -> {
            String topic = s.topic();
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "A");
            List<MessageExt> seen = taking(consumer);
            DefaultMQProducer producer = producer(s);
            producer.send(new Message(topic, "A", Scenario.bytes("a")));
            awaitBodies(seen, Set.of("a"));
            consumer.subscribe(topic, "B");
            Thread.sleep(22_000);  // until no pull waits with the old one
            producer.send(new Message(topic, "A", Scenario.bytes("not any more")));
            producer.send(new Message(topic, "B", Scenario.bytes("b")));
            awaitBodies(seen, Set.of("a", "b"));
        });
        harness.add("push in order", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            for (int number = 0; number < 40; number++) {
                producer.send(new Message(topic, Scenario.bytes(Integer.toString(number))),
                    (queues, message, argument) -> queues.get((Integer) argument), number % 4);
            }
            ConcurrentHashMap<Integer, List<Integer>> seen = new ConcurrentHashMap<>();
            AtomicInteger count = new AtomicInteger();
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                for (MessageExt message : messages) {
                    seen.computeIfAbsent(message.getQueueId(), queue -> Collections.synchronizedList(new ArrayList<>()))
                        .add(Integer.parseInt(Scenario.text(message.getBody())));
                    count.incrementAndGet();
                }
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            Scenario.until(60, () -> count.get() >= 40, () -> "seen " + seen);
            seen.forEach((queue, numbers) -> {
                List<Integer> sorted = new ArrayList<>(numbers);
                Collections.sort(sorted);
                Scenario.equal(sorted, numbers, "order of queue " + queue);
            });
        });
    }

    static int held(DefaultMQPushConsumer consumer, String topic) {
        return (int) consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()
            .stream().filter(queue -> queue.getTopic().equals(topic)).count();
    }

    static void failing() {
        harness.add("retry, then success", s -> {
            String topic = s.topic();
            send(producer(s), topic, "A", 2);
            List<MessageExt> seen = Collections.synchronizedList(new ArrayList<>());
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                seen.addAll(messages);
                context.setDelayLevelWhenNextConsume(1);
                return messages.get(0).getReconsumeTimes() < 2
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            Scenario.until(70, () -> seen.size() >= 6, () -> seen.size() + " deliveries");
            MessageExt last = seen.get(5);
            Scenario.equal(2, last.getReconsumeTimes(), "times");
            Scenario.equal(topic, last.getTopic(), "topic");
            Scenario.check(last.getProperty("ORIGIN_MESSAGE_ID") != null, "no origin");
            Scenario.equal("A", last.getTags(), "tags");
        });
        harness.add("an exception of a listener is a retry", s -> {
            String topic = s.topic();
            send(producer(s), topic, "A", 1);
            AtomicInteger times = new AtomicInteger();
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                if (times.getAndIncrement() == 0) {
                    throw new IllegalStateException("the first time");
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            Scenario.until(70, () -> times.get() >= 2, () -> times + " deliveries");
        });
        harness.add("dead letter after the last retry", s -> {
            String topic = s.topic();
            send(producer(s), topic, "A", 1);
            AtomicInteger times = new AtomicInteger();
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.setMaxReconsumeTimes(1);
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                times.incrementAndGet();
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
            consumer.start();
            Scenario.until(70, () -> times.get() >= 2, () -> times + " deliveries");
            String dead = "%DLQ%" + s.group();
            Scenario.until(20, () -> routes(dead) == 1, () -> "no " + dead);
            MessageExt letter = readDead(s, dead);
            Scenario.equal("body0", Scenario.text(letter.getBody()), "body");
            Scenario.equal(topic, letter.getProperty("RETRY_TOPIC"), "topic");
            Scenario.equal(2, times.get(), "deliveries");
        });
        harness.add("in order: suspended, then taken", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 4);
            List<String> seen = Collections.synchronizedList(new ArrayList<>());
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                String body = Scenario.text(messages.get(0).getBody());
                boolean isFirst = !seen.contains(body);
                seen.add(body);
                return body.equals("body1") && isFirst
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            Scenario.until(60, () -> seen.size() >= 5, () -> "seen " + seen);
            Scenario.equal(List.of("body0", "body1", "body1", "body2", "body3"), seen, "order");
        });
        harness.add("in order: dead letter after the last try", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 2);
            List<String> seen = Collections.synchronizedList(new ArrayList<>());
            DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
            consumer.setMaxReconsumeTimes(1);
            consumer.setSuspendCurrentQueueTimeMillis(200);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                String body = Scenario.text(messages.get(0).getBody());
                seen.add(body);
                return body.equals("body0")
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            Scenario.until(60, () -> seen.contains("body1"), () -> "seen " + seen);
            String dead = "%DLQ%" + s.group();
            Scenario.until(20, () -> routes(dead) == 1, () -> "no " + dead);
            Scenario.equal("body0", Scenario.text(readDead(s, dead).getBody()), "body");
        });
        harness.add("pull consumer sends a message back", s -> {
            String topic = s.topic();
            SendResult sent = send(producer(s), topic, "A", 1).get(0);
            DefaultMQPullConsumer consumer = pull(s);
            MessageExt message = consumer.pull(sent.getMessageQueue(), "*", 0, 1).getMsgFoundList().get(0);
            // Heartbeats make the group known.
            awaitBodies(taking(push(s, s.group() + "x", topic, "*")), numbered(1));
            consumer.sendMessageBack(message, 1, harness.broker, s.group() + "x");
            Scenario.until(20, () -> routes("%RETRY%" + s.group() + "x") == 1, () -> "no retry topic");
            MessageExt again = readAll(s, "%RETRY%" + s.group() + "x", 1).get(0);
            Scenario.equal(1, again.getReconsumeTimes(), "times");
        });
    }

    /** Dead letters can be written and not read, until an operator allows it; the log has them. */
    static MessageExt readDead(Scenario s, String dead) throws Exception {
        harness.makeTopic(harness.operator(), dead, 1, 6);
        return readAll(s, dead, 1).get(0);
    }

    static void pulling() {
        harness.add("lite pull: subscribe and poll", s -> {
            String topic = s.topic();
            send(producer(s), topic, "A", 10);
            DefaultLitePullConsumer consumer = lite(s, s.group());
            consumer.subscribe(topic, "*");
            consumer.start();
            List<MessageExt> seen = new ArrayList<>();
            Scenario.until(60, () -> {
                seen.addAll(consumer.poll(500));
                return seen.size() >= 10;
            }, () -> "seen " + bodies(seen));
            Scenario.equal(numbered(10), bodies(seen), "bodies");
        });
        harness.add("lite pull: SQL92", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = producer(s);
            for (int number = 0; number < 6; number++) {
                Message message = new Message(topic, Scenario.bytes("body" + number));
                message.putUserProperty("a", Integer.toString(number));
                producer.send(message);
            }
            DefaultLitePullConsumer consumer = lite(s, s.group());
            consumer.subscribe(topic, MessageSelector.bySql("a > 3"));
            consumer.start();
            List<MessageExt> seen = new ArrayList<>();
            Scenario.until(60, () -> {
                seen.addAll(consumer.poll(500));
                return seen.size() >= 2;
            }, () -> "seen " + bodies(seen));
            Scenario.equal(Set.of("body4", "body5"), bodies(seen), "bodies");
        });
        harness.add("lite pull: assign and seek", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 10);
            DefaultLitePullConsumer consumer = lite(s, s.group());
            consumer.start();
            MessageQueue queue = consumer.fetchMessageQueues(topic).iterator().next();
            consumer.assign(List.of(queue));
            consumer.seek(queue, 7);
            List<MessageExt> seen = new ArrayList<>();
            Scenario.until(30, () -> {
                seen.addAll(consumer.poll(300));
                return seen.size() >= 3;
            }, () -> "seen " + bodies(seen));
            Scenario.equal(Set.of("body7", "body8", "body9"), bodies(seen), "bodies");
        });
        harness.add("lite pull: commit and read it back", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 6);
            DefaultLitePullConsumer consumer = lite(s, s.group());
            consumer.setAutoCommit(false);
            consumer.start();
            MessageQueue queue = consumer.fetchMessageQueues(topic).iterator().next();
            consumer.assign(List.of(queue));
            consumer.seekToBegin(queue);
            AtomicInteger count = new AtomicInteger();
            Scenario.until(30, () -> count.addAndGet(consumer.poll(300).size()) >= 6, () -> count + " messages");
            consumer.commitSync();
            Scenario.until(20, () -> {
                try {
                    return pullOffset(s, queue) == 6;
                } catch (Exception error) {
                    return false;
                }
            }, () -> "not committed");
            Scenario.equal(6L, consumer.committed(queue), "committed");
        });
        harness.add("lite pull: offset of a time", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            DefaultMQProducer producer = producer(s);
            send(producer, topic, "A", 3);
            Thread.sleep(300);
            long between = System.currentTimeMillis();
            Thread.sleep(300);
            send(producer, topic, "A", 2);
            DefaultLitePullConsumer consumer = lite(s, s.group());
            consumer.start();
            MessageQueue queue = consumer.fetchMessageQueues(topic).iterator().next();
            Scenario.equal(3L, consumer.offsetForTimestamp(queue, between), "offset");
        });
        harness.add("pull: found, none new, beyond the end", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 4);
            DefaultMQPullConsumer consumer = pull(s);
            MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
            PullResult found = consumer.pull(queue, "*", 1, 32);
            Scenario.equal(PullStatus.FOUND, found.getPullStatus(), "status");
            Scenario.equal(3, found.getMsgFoundList().size(), "messages");
            Scenario.equal(4L, found.getNextBeginOffset(), "next");
            Scenario.equal(0L, found.getMinOffset(), "min");
            Scenario.equal(4L, found.getMaxOffset(), "max");
            Scenario.equal(PullStatus.NO_NEW_MSG, consumer.pull(queue, "*", 4, 32).getPullStatus(), "at the end");
            PullResult beyond = consumer.pull(queue, "*", 9, 32);
            Scenario.equal(PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus(), "beyond");
            Scenario.equal(4L, beyond.getNextBeginOffset(), "next from beyond");
            Scenario.equal(PullStatus.NO_MATCHED_MSG, consumer.pull(queue, "B", 0, 32).getPullStatus(), "tag");
        });
        harness.add("pull: with SQL92", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            DefaultMQProducer producer = producer(s);
            for (int number = 0; number < 4; number++) {
                Message message = new Message(topic, Scenario.bytes("body" + number));
                message.putUserProperty("a", Integer.toString(number));
                producer.send(message);
            }
            DefaultMQPullConsumer consumer = pull(s);
            MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
            AtomicReference<String> found = new AtomicReference<>();
            // The client asks only brokers whose version a heartbeat has told it.
            Scenario.until(60, () -> {
                try {
                    found.set("" + bodies(consumer.pull(queue, MessageSelector.bySql("a <> 2"), 0, 32).getMsgFoundList()));
                    return true;
                } catch (Exception error) {
                    found.set(error.getMessage());
                    return false;
                }
            }, found::get);
            Scenario.equal("[body0, body1, body3]", found.get(), "bodies");
        });
        harness.add("pull: waits for a message", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            DefaultMQPullConsumer consumer = pull(s);
            DefaultMQProducer producer = producer(s);
            MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
            new Thread(() -> {
                try {
                    Thread.sleep(2_000);
                    send(producer, topic, "A", 1);
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }).start();
            long begun = System.currentTimeMillis();
            PullResult found = consumer.pullBlockIfNotFound(queue, "*", 0, 32);
            long took = System.currentTimeMillis() - begun;
            Scenario.equal(PullStatus.FOUND, found.getPullStatus(), "status");
            Scenario.check(took > 1_500 && took < 4_500, "woken after " + took + " ms");
        });
        harness.add("pull: offsets kept by the broker", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            send(producer(s), topic, "A", 4);
            DefaultMQPullConsumer consumer = pull(s);
            MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
            consumer.pull(queue, "*", 0, 3);  // makes the group known
            consumer.updateConsumeOffset(queue, 3);
            consumer.getDefaultMQPullConsumerImpl().persistConsumerOffset();
            consumer.getOffsetStore().persist(queue);
            Scenario.until(15, () -> {
                try {
                    return pullOffset(s, queue) == 3;
                } catch (Exception error) {
                    return false;
                }
            }, () -> "not kept");
        });
    }

    static long pullOffset(Scenario s, MessageQueue queue) throws Exception {
        DefaultMQPullConsumer other = pull(s);
        return other.fetchConsumeOffset(queue, true);
    }

    static void transactions() {
        harness.add("transaction committed", s -> {
            String topic = s.topic();
            List<MessageExt> seen = taking(push(s, s.group(), topic, "*"));
            TransactionMQProducer producer = transactional(s, LocalTransactionState.COMMIT_MESSAGE, null);
            SendResult result = producer.sendMessageInTransaction(
                new Message(topic, "A", "key0", Scenario.bytes("body0")), null);
            Scenario.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
            awaitBodies(seen, numbered(1));
            Scenario.equal(result.getTransactionId(), seen.get(0).getTransactionId(), "transaction id");
            Scenario.equal("A", seen.get(0).getTags(), "tags");
        });
        harness.add("transaction rolled back", s -> {
            String topic = s.topic();
            List<MessageExt> seen = taking(push(s, s.group(), topic, "*"));
            AtomicInteger checks = new AtomicInteger();
            TransactionMQProducer producer = new TransactionMQProducer("P_" + s.unique, Keys.producer());
            // RocketMQ may ask before it has written down the end; it goes on asking who does not know.
            producer.setTransactionListener(listener(LocalTransactionState.ROLLBACK_MESSAGE,
                LocalTransactionState.ROLLBACK_MESSAGE, checks));
            started(s, producer).sendMessageInTransaction(new Message(topic, Scenario.bytes("never")), null);
            send(producer, topic, "A", 1);
            awaitBodies(seen, numbered(1));
            noMoreChecks(checks);
            Scenario.equal(numbered(1), bodies(seen), "bodies");
        });
        harness.add("transaction checked and committed", s -> {
            String topic = s.topic();
            List<MessageExt> seen = taking(push(s, s.group(), topic, "*"));
            transactional(s, LocalTransactionState.UNKNOW, LocalTransactionState.COMMIT_MESSAGE)
                .sendMessageInTransaction(new Message(topic, Scenario.bytes("body0")), null);
            awaitBodies(seen, numbered(1));
        });
        harness.add("transaction checked and rolled back", s -> {
            String topic = s.topic();
            AtomicInteger checks = new AtomicInteger();
            List<MessageExt> seen = taking(push(s, s.group(), topic, "*"));
            TransactionMQProducer producer = new TransactionMQProducer("P_" + s.unique, Keys.producer());
            producer.setTransactionListener(listener(LocalTransactionState.UNKNOW,
                LocalTransactionState.ROLLBACK_MESSAGE, checks));
            started(s, producer).sendMessageInTransaction(new Message(topic, Scenario.bytes("never")), null);
            Scenario.until(60, () -> checks.get() > 0, () -> "no check");
            send(producer, topic, "A", 1);
            noMoreChecks(checks);
            awaitBodies(seen, numbered(1));
        });
        harness.add("request and reply", s -> {
            String topic = replier(s);
            Message reply = producer(s).request(new Message(topic, Scenario.bytes("question")), 20_000);
            Scenario.equal("answer to question", Scenario.text(reply.getBody()), "reply");
        });
        harness.add("request and reply, asynchronously", s -> {
            String topic = replier(s);
            AtomicReference<String> told = new AtomicReference<>();
            producer(s).request(new Message(topic, Scenario.bytes("question")), new RequestCallback() {
                public void onSuccess(Message reply) {
                    told.set(Scenario.text(reply.getBody()));
                }

                public void onException(Throwable error) {
                    told.set(error.toString());
                }
            }, 20_000);
            Scenario.until(25, () -> told.get() != null, () -> "no reply");
            Scenario.equal("answer to question", told.get(), "reply");
        });
    }

    /** A transaction has ended: RocketMQ may ask a few times until it has written that down, and then no more. */
    static void noMoreChecks(AtomicInteger checks) throws Exception {
        Thread.sleep(15_000);
        int asked = checks.get();
        Thread.sleep(9_000);
        Scenario.equal(asked, checks.get(), "checks");
    }

    static String replier(Scenario s) throws Exception {
        String topic = s.topic();
        DefaultMQProducer replies = producer(s);
        DefaultMQPushConsumer consumer = push(s, s.group(), topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            try {
                byte[] answer = Scenario.bytes("answer to " + Scenario.text(messages.get(0).getBody()));
                replies.send(MessageUtil.createReplyMessage(messages.get(0), answer), 3_000);
            } catch (Exception error) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Scenario.until(60, () -> held(consumer, topic) == 4, () -> "no queues");
        return topic;
    }

    static TransactionMQProducer transactional(Scenario s, LocalTransactionState first, LocalTransactionState later)
        throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("P_" + s.unique, Keys.producer());
        producer.setTransactionListener(listener(first, later, new AtomicInteger()));
        return started(s, producer);
    }

    static TransactionListener listener(LocalTransactionState first, LocalTransactionState later, AtomicInteger checks) {
        return new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return first;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checks.incrementAndGet();
                return later;
            }
        };
    }

    static void lookingUp() {
        harness.add("query by key", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = looking(s);
            send(producer, topic, "A", 5);
            long now = System.currentTimeMillis();
            Thread.sleep(1_500);
            List<MessageExt> found = producer.queryMessage(topic, "key3", 32, now - 60_000, now + 60_000)
                .getMessageList();
            Scenario.equal(Set.of("body3"), bodies(found), "bodies");
        });
        harness.add("query of a key that is not there", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = looking(s);
            send(producer, topic, "A", 1);
            try {
                producer.queryMessage(topic, "nokey", 32, 0, Long.MAX_VALUE);
            } catch (MQClientException error) {
                Scenario.check(error.getMessage().contains("no message"), error.getMessage());
                return;
            }
            throw new AssertionError("was found");
        });
        harness.add("view by unique key", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = looking(s);
            SendResult sent = send(producer, topic, "A", 1).get(0);
            Thread.sleep(1_500);
            Scenario.equal("body0", Scenario.text(producer.viewMessage(topic, sent.getMsgId()).getBody()), "body");
        });
        harness.add("view by offset id", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = looking(s);
            SendResult sent = send(producer, topic, "A", 1).get(0);
            MessageExt seen = producer.viewMessage(topic, sent.getOffsetMsgId());
            Scenario.equal("body0", Scenario.text(seen.getBody()), "body");
            Scenario.equal(sent.getQueueOffset(), seen.getQueueOffset(), "offset");
        });
        harness.add("offsets: max, min, of a time, earliest", s -> {
            String topic = s.topic("T_" + s.unique, 1, 6);
            DefaultMQProducer producer = looking(s);
            long before = System.currentTimeMillis();
            MessageQueue queue = send(producer, topic, "A", 5).get(0).getMessageQueue();
            Thread.sleep(200);
            Scenario.equal(5L, producer.maxOffset(queue), "max");
            Scenario.equal(0L, producer.minOffset(queue), "min");
            Scenario.equal(0L, producer.searchOffset(queue, before - 1_000), "of a time before");
            Scenario.equal(5L, producer.searchOffset(queue, System.currentTimeMillis() + 1_000), "of a time after");
            long earliest = producer.earliestMsgStoreTime(queue);
            Scenario.check(earliest >= before - 50 && earliest <= before + 10_000, "earliest " + earliest);
        });
        harness.add("queues of a topic", s -> {
            String topic = s.topic();
            Scenario.equal(4, producer(s).fetchPublishMessageQueues(topic).size(), "to send");
            Scenario.equal(4, pull(s).fetchSubscribeMessageQueues(topic).size(), "to read");
        });
    }
}
