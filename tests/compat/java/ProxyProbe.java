import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Applications that know only a proxy: rocketmq-client at its remoting port, rocketmq-client-java at
 * its gRPC port. What they have sent is read past the proxy, from the brokers.
 *
 * `scenarios NAME_SERVERS REMOTING GRPC` prints one line each: the name, a tab, `ok` or what went
 * wrong. `loop REMOTING GRPC TOPIC` sends by both ways until there is a line on standard input, and
 * prints one line a send: the way, when it began, how long it took, OK or what was said.
 */
public class ProxyProbe {
    interface Body {
        void run() throws Exception;
    }

    static final long READ_MS_MAX = 40_000;
    /** A proxy keeps for 20 s that there is no retry topic, and the client looks every 20 s. */
    static final long RETRY_MS_MAX = 100_000;
    static final long SCENARIO_SECONDS_MAX = 120;
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Map<String, Body> BODIES = new LinkedHashMap<>();
    static String nameServers;
    static String remoting;
    static String grpc;
    static DefaultMQProducer owner;

    public static void main(String[] arguments) {
        try {
            if (arguments[0].equals("loop")) {
                remoting = arguments[1];
                grpc = arguments[2];
                loop(arguments[3]);
            } else {
                nameServers = arguments[1];
                remoting = arguments[2];
                grpc = arguments[3];
                scenarios();
            }
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void scenarios() throws Exception {
        owner = new DefaultMQProducer("ProxyOwner");
        owner.setNamesrvAddr(nameServers);
        owner.setInstanceName("owner");
        owner.start();
        for (String type : new String[] {"NORMAL", "FIFO", "DELAY", "TRANSACTION"}) {
            create("ProxyR" + type, type);
            create("ProxyG" + type, type);
        }
        create("ProxyROrder", "NORMAL");
        create("ProxyBack", "NORMAL");
        addRemoting();
        addGrpc();
        ExecutorService threads = Executors.newCachedThreadPool();
        for (Map.Entry<String, Body> entry : BODIES.entrySet()) {
            String said;
            try {
                threads.submit(() -> {
                    entry.getValue().run();
                    return null;
                }).get(SCENARIO_SECONDS_MAX, TimeUnit.SECONDS);
                said = "ok";
            } catch (java.util.concurrent.ExecutionException error) {
                said = told(error.getCause());
            } catch (java.util.concurrent.TimeoutException error) {
                said = "not done in " + SCENARIO_SECONDS_MAX + " s";
            }
            System.out.println(entry.getKey() + "\t" + said);
        }
    }

    private static void addRemoting() {
        BODIES.put("remoting: send", () -> {
            DefaultMQProducer producer = producer();
            keep(producer.send(message("ProxyRNORMAL", "one")));
            producer.sendOneway(message("ProxyRNORMAL", "one-way"));
            keep(producer.send(List.of(message("ProxyRNORMAL", "many 0"), message("ProxyRNORMAL", "many 1"))));
            producer.shutdown();
            expect("ProxyRNORMAL", "many 0", "many 1", "one", "one-way");
        });
        BODIES.put("remoting: in order", () -> {
            DefaultMQProducer producer = producer();
            for (int number = 0; number < 5; number++) {
                keep(producer.send(message("ProxyROrder", "" + number),
                    (queues, sent, argument) -> queues.get(0), null));
            }
            producer.shutdown();
            expect("ProxyROrder", "0", "1", "2", "3", "4");
        });
        BODIES.put("remoting: delay level", () -> {
            DefaultMQProducer producer = producer();
            Message message = message("ProxyRDELAY", "later");
            message.setDelayTimeLevel(1);
            keep(producer.send(message));
            producer.shutdown();
            expect("ProxyRDELAY", "later");
        });
        BODIES.put("remoting: a message of another type is refused", () -> {
            DefaultMQProducer producer = producer();
            try {
                producer.send(message("ProxyRDELAY", "now"));
            } catch (org.apache.rocketmq.client.exception.MQBrokerException error) {
                if (error.getMessage().contains("TopicMessageType")) {
                    return;
                }
                throw error;
            } finally {
                producer.shutdown();
            }
            throw new AssertionError("it is taken");
        });
        BODIES.put("remoting: transactions", ProxyProbe::remotingTransactions);
        BODIES.put("remoting: a push consumer", () -> push("ProxyRNORMAL", 4, false));
        BODIES.put("remoting: a push consumer in order", () -> push("ProxyROrder", 5, true));
        BODIES.put("remoting: a pull consumer", () -> {
            List<String> read = read(remoting, "ProxyRNORMAL", 4);
            Collections.sort(read);
            same(read, List.of("many 0", "many 1", "one", "one-way"));
        });
        BODIES.put("remoting: what fails comes back", ProxyProbe::remotingBack);
    }

    private static void remotingTransactions() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("ProxyTransactions");
        producer.setNamesrvAddr(remoting);
        producer.setInstanceName("transactions");
        producer.setSendMsgTimeout(20_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                return body.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE
                    : body.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE
                    : LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return body(message).equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE
                    : LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (String body : new String[] {"rollback", "asked", "commit"}) {
            producer.sendMessageInTransaction(message("ProxyRTRANSACTION", body), null);
        }
        expect("ProxyRTRANSACTION", "asked", "commit");
        producer.shutdown();
    }

    private static void push(String topic, int count, boolean inOrder) throws Exception {
        List<String> seen = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = pushConsumer("push-" + topic, topic);
        if (inOrder) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> seen.add(body(message)));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(message -> seen.add(body(message)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        waitFor(seen, count, READ_MS_MAX);
        consumer.shutdown();
        List<String> sorted = new ArrayList<>(seen);
        if (!inOrder) {
            Collections.sort(sorted);
        }
        same(sorted, inOrder ? List.of("0", "1", "2", "3", "4") : List.of("many 0", "many 1", "one", "one-way"));
    }

    private static void remotingBack() throws Exception {
        DefaultMQProducer producer = producer();
        keep(producer.send(message("ProxyBack", "again")));
        List<String> seen = new CopyOnWriteArrayList<>();
        DefaultMQPushConsumer consumer = pushConsumer("push-back", "ProxyBack");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(body(message) + message.getReconsumeTimes()));
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() > 0 ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        waitFor(seen, 2, RETRY_MS_MAX);
        consumer.shutdown();
        producer.shutdown();
        same(seen, List.of("again0", "again1"));
    }

    private static void addGrpc() {
        BODIES.put("gRPC: send", () -> {
            try (Producer producer = grpcProducer("ProxyGNORMAL").build()) {
                producer.send(built("ProxyGNORMAL", "one").build());
                producer.sendAsync(built("ProxyGNORMAL", "two").build()).get(20, TimeUnit.SECONDS);
            }
            expect("ProxyGNORMAL", "one", "two");
        });
        BODIES.put("gRPC: in order", () -> {
            try (Producer producer = grpcProducer("ProxyGFIFO").build()) {
                for (int number = 0; number < 5; number++) {
                    producer.send(built("ProxyGFIFO", "" + number).setMessageGroup("one").build());
                }
            }
            same(read(nameServers, "ProxyGFIFO", 5), List.of("0", "1", "2", "3", "4"));
        });
        BODIES.put("gRPC: delay", () -> {
            try (Producer producer = grpcProducer("ProxyGDELAY").build()) {
                producer.send(built("ProxyGDELAY", "later")
                    .setDeliveryTimestamp(System.currentTimeMillis() + 3_000).build());
            }
            expect("ProxyGDELAY", "later");
        });
        BODIES.put("gRPC: a message of another type is refused", () -> {
            try (Producer producer = grpcProducer("ProxyGDELAY").build()) {
                producer.send(built("ProxyGDELAY", "now").build());
            } catch (org.apache.rocketmq.client.apis.ClientException | IllegalArgumentException error) {
                if (error.getMessage().contains("type")) {
                    return;
                }
                throw error;
            }
            throw new AssertionError("it is taken");
        });
        BODIES.put("gRPC: transactions", () -> {
            ProducerBuilder builder = grpcProducer("ProxyGTRANSACTION")
                .setTransactionChecker(view -> body(view).equals("rollback")
                    ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT);
            try (Producer producer = builder.build()) {
                for (String body : new String[] {"rollback", "asked", "commit"}) {
                    Transaction transaction = producer.beginTransaction();
                    producer.send(built("ProxyGTRANSACTION", body).build(), transaction);
                    if (body.equals("commit")) {
                        transaction.commit();
                    } else if (body.equals("rollback")) {
                        transaction.rollback();
                    }
                }
                expect("ProxyGTRANSACTION", "asked", "commit");
            }
        });
        BODIES.put("gRPC: a simple consumer", () -> {
            List<String> seen = new ArrayList<>();
            try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup("grpc-simple")
                .setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Map.of("ProxyGNORMAL", FilterExpression.SUB_ALL))
                .build()) {
                long deadline = System.currentTimeMillis() + READ_MS_MAX;
                while (seen.size() < 2 && System.currentTimeMillis() < deadline) {
                    for (MessageView view : consumer.receive(16, Duration.ofSeconds(15))) {
                        seen.add(body(view));
                        consumer.ack(view);
                    }
                }
            }
            Collections.sort(seen);
            same(seen, List.of("one", "two"));
        });
        BODIES.put("gRPC: a push consumer", () -> {
            List<String> seen = new CopyOnWriteArrayList<>();
            try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder()
                .setClientConfiguration(configuration())
                .setConsumerGroup("grpc-push")
                .setSubscriptionExpressions(Map.of("ProxyGNORMAL", FilterExpression.SUB_ALL))
                .setMessageListener(view -> {
                    seen.add(body(view));
                    return ConsumeResult.SUCCESS;
                })
                .build()) {
                waitFor(seen, 2, READ_MS_MAX);
            }
            List<String> sorted = new ArrayList<>(seen);
            Collections.sort(sorted);
            same(sorted, List.of("one", "two"));
        });
    }

    private static void loop(String topic) throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        DefaultMQProducer producer = producer();
        Thread byRemoting = new Thread(() -> each("remoting", isOver, number -> {
            SendResult result = producer.send(message(topic, "remoting " + number));
            return result.getSendStatus() == SendStatus.SEND_OK ? "OK" : result.getSendStatus().name();
        }));
        byRemoting.start();
        Producer overGrpc = grpcProducer(topic).build();
        Thread byGrpc = new Thread(() -> each("gRPC", isOver, number -> {
            overGrpc.send(built(topic, "gRPC " + number).build());
            return "OK";
        }));
        byGrpc.start();
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        isOver.set(true);
        byRemoting.join(30_000);
        byGrpc.join(30_000);
    }

    interface Send {
        String send(int number) throws Exception;
    }

    private static void each(String way, AtomicBoolean isOver, Send send) {
        for (int number = 0; !isOver.get(); number++) {
            long began = System.currentTimeMillis();
            String said;
            try {
                said = send.send(number);
                Thread.sleep(20);
            } catch (Exception error) {
                said = told(error);
            }
            System.out.println(way + " " + began + " " + (System.currentTimeMillis() - began) + " " + said);
        }
    }

    private static void create(String topic, String type) throws Exception {
        MQClientInstance client = owner.getDefaultMQProducerImpl().getMqClientFactory();
        String broker = client.getMQClientAPIImpl().getBrokerClusterInfo(20_000).getBrokerAddrTable()
            .values().iterator().next().selectBrokerAddr();
        TopicConfig config = new TopicConfig(topic, 1, 1, 6);
        config.setAttributes(Map.of("+message.type", type));
        client.getMQClientAPIImpl().createTopic(broker, "TBW102", config, 20_000);
        long deadline = System.currentTimeMillis() + READ_MS_MAX;
        while (!client.updateTopicRouteInfoFromNameServer(topic) && System.currentTimeMillis() < deadline) {
            Thread.sleep(100);
        }
    }

    private static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("ProxyProducers");
        producer.setNamesrvAddr(remoting);
        producer.setInstanceName("" + System.nanoTime());
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer pushConsumer(String group, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(remoting);
        consumer.setInstanceName(group);
        consumer.setPollNameServerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static ProducerBuilder grpcProducer(String topic) {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration()).setTopics(topic);
    }

    private static ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder().setEndpoints(grpc).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
    }

    private static MessageBuilder built(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static Message message(String topic, String body) {
        return new Message(topic, "Tag", body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    private static void keep(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new AssertionError(result.toString());
        }
    }

    /** Read a topic from the brokers, and compare its bodies without their order. */
    private static void expect(String topic, String... bodies) throws Exception {
        List<String> read = read(nameServers, topic, bodies.length);
        Collections.sort(read);
        same(read, List.of(bodies));
    }

    private static void same(List<String> found, List<String> expected) {
        if (!new ArrayList<>(found).equals(expected)) {
            throw new AssertionError("read was " + found + ", not " + expected);
        }
    }

    private static List<String> read(String addresses, String topic, int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("readers" + System.nanoTime());
        consumer.setNamesrvAddr(addresses);
        consumer.setInstanceName("" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        List<String> bodies = new ArrayList<>();
        try {
            // A seek of 5.3.3 may lose the task that pulls, if that has begun.
            consumer.assign(consumer.fetchMessageQueues(topic));
            long deadline = System.currentTimeMillis() + READ_MS_MAX;
            while (bodies.size() < count && System.currentTimeMillis() < deadline) {
                consumer.poll(1_000).forEach(message -> bodies.add(body(message)));
            }
        } finally {
            consumer.shutdown();
        }
        return bodies;
    }

    private static void waitFor(List<String> seen, int count, long millis) throws Exception {
        long deadline = System.currentTimeMillis() + millis;
        while (seen.size() < count && System.currentTimeMillis() < deadline) {
            Thread.sleep(50);
        }
    }

    private static String told(Throwable wrong) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = wrong; one != null; one = one.getCause()) {
            text.append(text.length() == 0 ? "" : " <- ").append(one.getClass().getSimpleName())
                .append(": ").append(one.getMessage());
        }
        return text.toString().replaceAll("\\s+", " ");
    }
}
