import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * An application with rocketmq-client-java that does what it is asked to: the orders of
 * python/agent.py.
 */
public class GrpcAgent {
    static class Given {
        String topic;
        String body;
        int times = 1;
        String tag;
        List<String> keys;
        Map<String, String> properties = Map.of();
        String group;
        Long deliver_at_ms;
    }

    static class Order {
        int id;
        String op;
        String name;
        String endpoints;
        List<String> keys;
        int timeout_s = 3;
        List<String> topics;
        String topic;
        String group;
        String tags;
        String sql;
        int await_s = 5;
        String check;
        Given message;
        int half;
        String how;
        String recall_handle;
        int max;
        int invisible_s;
        int n;
        Map<String, Integer> failures = Map.of();
        Map<String, Double> hold_s = Map.of();
    }

    static class Settings {
        boolean tls;
    }

    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final Gson GSON = new Gson();
    static final Map<String, AutoCloseable> CLIENTS = new ConcurrentHashMap<>();
    static final List<MessageView> RECEIVED = new ArrayList<>();
    static final List<Transaction> HALVES = new ArrayList<>();
    static Settings settings;

    public static void main(String[] arguments) throws Exception {
        settings = GSON.fromJson(arguments[0], Settings.class);
        ExecutorService threads = Executors.newCachedThreadPool();
        say(new LinkedHashMap<>(Map.of("ready", true)));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Order order = GSON.fromJson(line, Order.class);
            threads.submit(() -> serve(order));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(Order order) {
        Map<String, Object> result;
        try {
            result = new LinkedHashMap<>(done(order));
        } catch (Throwable error) {
            StringBuilder words = new StringBuilder();
            for (Throwable one = error; one != null; one = one.getCause()) {
                words.append(words.length() == 0 ? "" : " <- ").append(one);
            }
            result = new LinkedHashMap<>(Map.of("error", words.toString()));
        }
        result.put("id", order.id);
        say(result);
    }

    private static synchronized void say(Map<String, Object> line) {
        System.out.println(GSON.toJson(line));
        System.out.flush();
    }

    private static Map<String, Object> done(Order order) throws Exception {
        switch (order.op) {
            case "producer":
                CLIENTS.put(order.name, producer(order));
                return Map.of();
            case "send":
                SendReceipt receipt = ((Producer) CLIENTS.get(order.name)).send(message(order.message));
                return Map.of("message_id", receipt.getMessageId().toString(), "recall_handle", handle(receipt));
            case "half":
                return half(order);
            case "end":
                Transaction transaction = at(HALVES, order.half);
                if (order.how.equals("commit")) {
                    transaction.commit();
                } else {
                    transaction.rollback();
                }
                return Map.of();
            case "recall":
                return Map.of("message_id", ((Producer) CLIENTS.get(order.name))
                    .recallMessage(order.topic, order.recall_handle).getMessageId().toString());
            case "simple":
                CLIENTS.put(order.name, PROVIDER.newSimpleConsumerBuilder()
                    .setClientConfiguration(configuration(order))
                    .setConsumerGroup(order.group)
                    .setAwaitDuration(Duration.ofSeconds(order.await_s))
                    .setSubscriptionExpressions(filters(order))
                    .build());
                return Map.of();
            case "receive":
                return receive(order);
            case "ack":
                simple(order).ack(at(RECEIVED, order.n));
                return Map.of();
            case "change":
                simple(order).changeInvisibleDuration(at(RECEIVED, order.n), Duration.ofSeconds(order.invisible_s));
                return Map.of("handle", receiptHandle(at(RECEIVED, order.n)));
            case "push":
                CLIENTS.put(order.name, push(order));
                return Map.of();
            case "close":
                CLIENTS.remove(order.name).close();
                return Map.of();
            default:
                throw new IllegalArgumentException(order.op);
        }
    }

    private static ClientConfiguration configuration(Order order) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(order.endpoints)
            .setRequestTimeout(Duration.ofSeconds(order.timeout_s));
        // By default it speaks TLS alone; who wants something else says so.
        if (!settings.tls) {
            builder.enableSsl(false);
        }
        if (order.keys != null) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(order.keys.get(0), order.keys.get(1)));
        }
        return builder.build();
    }

    private static Map<String, FilterExpression> filters(Order order) {
        FilterExpression expression = order.sql != null && !order.sql.isEmpty()
            ? new FilterExpression(order.sql, FilterExpressionType.SQL92)
            : new FilterExpression(order.tags == null || order.tags.isEmpty() ? "*" : order.tags);
        return Map.of(order.topic, expression);
    }

    private static Message message(Given given) {
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(given.topic)
            .setBody(given.body.repeat(given.times).getBytes(StandardCharsets.UTF_8));
        if (given.tag != null) {
            builder.setTag(given.tag);
        }
        if (given.keys != null) {
            builder.setKeys(given.keys.toArray(new String[0]));
        }
        given.properties.forEach(builder::addProperty);
        if (given.group != null) {
            builder.setMessageGroup(given.group);
        }
        if (given.deliver_at_ms != null) {
            builder.setDeliveryTimestamp(given.deliver_at_ms);
        }
        return builder.build();
    }

    private static String handle(SendReceipt receipt) {
        return receipt.getRecallHandle() == null ? "" : receipt.getRecallHandle();
    }

    private static Producer producer(Order order) throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration(order))
            .setTopics(order.topics.toArray(new String[0]));
        if (order.check != null && !order.check.isEmpty()) {
            builder.setTransactionChecker(view -> {
                String body = (String) shown(view).get("body");
                say(new LinkedHashMap<>(Map.of("event", "check", "name", order.name, "body", body)));
                return TransactionResolution.valueOf(
                    body.contains("rollback") ? "ROLLBACK" : order.check.toUpperCase());
            });
        }
        return builder.build();
    }

    private static Map<String, Object> half(Order order) throws Exception {
        Producer producer = (Producer) CLIENTS.get(order.name);
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message(order.message), transaction);
        return Map.of("message_id", receipt.getMessageId().toString(), "half", kept(HALVES, transaction));
    }

    private static SimpleConsumer simple(Order order) {
        return (SimpleConsumer) CLIENTS.get(order.name);
    }

    private static Map<String, Object> receive(Order order) throws Exception {
        List<Map<String, Object>> messages = new ArrayList<>();
        for (MessageView view : simple(order).receive(order.max, Duration.ofSeconds(order.invisible_s))) {
            Map<String, Object> one = shown(view);
            one.put("n", kept(RECEIVED, view));
            messages.add(one);
        }
        return Map.of("messages", messages);
    }

    private static AutoCloseable push(Order order) throws Exception {
        Map<String, Integer> failures = new HashMap<>(order.failures);
        return PROVIDER.newPushConsumerBuilder()
            .setClientConfiguration(configuration(order))
            .setConsumerGroup(order.group)
            .setSubscriptionExpressions(filters(order))
            .setMessageListener(view -> {
                Map<String, Object> seen = shown(view);
                String body = (String) seen.get("body");
                int left;
                synchronized (failures) {
                    left = failures.getOrDefault(body, 0);
                    failures.put(body, left - 1);
                }
                seen.put("event", "message");
                seen.put("name", order.name);
                seen.put("ok", left <= 0);
                say(seen);
                try {
                    Thread.sleep((long) (order.hold_s.getOrDefault(body, 0.0) * 1000));
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
                return left > 0 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
    }

    private static Map<String, Object> shown(MessageView view) {
        ByteBuffer buffer = view.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("message_id", view.getMessageId().toString());
        seen.put("topic", view.getTopic());
        seen.put("body", new String(body, 0, Math.min(200, body.length), StandardCharsets.UTF_8));
        seen.put("size", body.length);
        seen.put("tag", view.getTag().orElse(""));
        seen.put("keys", new TreeSet<>(view.getKeys()));
        seen.put("properties", view.getProperties());
        seen.put("group", view.getMessageGroup().orElse(""));
        seen.put("attempt", view.getDeliveryAttempt());
        seen.put("handle", receiptHandle(view));
        seen.put("at_ms", System.currentTimeMillis());
        return seen;
    }

    /** Applications do not see it: it is looked up where this library keeps it. */
    private static String receiptHandle(MessageView view) {
        try {
            return (String) view.getClass().getMethod("getReceiptHandle").invoke(view);
        } catch (ReflectiveOperationException error) {
            return "";
        }
    }

    private static <T> int kept(List<T> table, T value) {
        synchronized (table) {
            table.add(value);
            return table.size() - 1;
        }
    }

    private static <T> T at(List<T> table, int number) {
        synchronized (table) {
            return table.get(number);
        }
    }
}
