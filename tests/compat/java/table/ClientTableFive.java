import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What only the client 5.x can do. */
final class ClientTableFive {
    static void add(Harness harness) {
        PopTable.add(harness);
        harness.add("timer: after some milliseconds", s -> {
            Message message = new Message(s.topic(), Scenario.bytes("body0"));
            message.setDelayTimeMs(4_000);
            timed(s, message, 4_000);
        });
        harness.add("timer: after some seconds", s -> {
            Message message = new Message(s.topic(), Scenario.bytes("body0"));
            message.setDelayTimeSec(4);
            timed(s, message, 4_000);
        });
        harness.add("timer: at a time", s -> {
            Message message = new Message(s.topic(), Scenario.bytes("body0"));
            message.setDeliverTimeMs(System.currentTimeMillis() + 5_000);
            timed(s, message, 3_000);
        });
        harness.add("timer: recalled", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = ClientTable.producer(s);
            Message message = new Message(topic, Scenario.bytes("never"));
            message.setDelayTimeMs(6_000);
            SendResult sent = producer.send(message);
            Scenario.check(sent.getRecallHandle() != null, "no handle");
            producer.recallMessage(topic, sent.getRecallHandle());
            Message other = new Message(topic, Scenario.bytes("body0"));
            other.setDelayTimeMs(9_000);
            producer.send(other);
            Scenario.equal(Set.of("body0"), ClientTable.bodies(ClientTable.readAll(s, topic, 1)), "bodies");
        });
        harness.add("compressed with LZ4", s -> compressed(s, CompressionType.LZ4));
        harness.add("compressed with ZSTD", s -> compressed(s, CompressionType.ZSTD));
        harness.add("heartbeats of version 2", s -> {
            String topic = s.topic();
            DefaultMQPushConsumer consumer = ClientTable.push(s, s.group(), topic, "*");
            consumer.setUseHeartbeatV2(true);
            List<MessageExt> seen = ClientTable.taking(consumer);
            ClientTable.send(ClientTable.producer(s), topic, "A", 5);
            ClientTable.awaitBodies(seen, ClientTable.numbered(5));
        });
        harness.add("queues assigned by the broker", s -> {
            String topic = s.topic();
            DefaultMQPushConsumer consumer = ClientTable.push(s, s.group(), topic, "*");
            consumer.setClientRebalance(false);
            List<MessageExt> seen = ClientTable.taking(consumer);
            ClientTable.send(ClientTable.producer(s), topic, "A", 5);
            ClientTable.awaitBodies(seen, ClientTable.numbered(5));
        });
        harness.add("namespace of version 2", s -> {
            String topic = s.topic();
            DefaultMQProducer producer = new DefaultMQProducer("P_" + s.unique, Keys.producer());
            producer.setNamespaceV2("nsv2");
            ClientTable.started(s, producer);
            ClientTable.send(producer, topic, "A", 3);
            ClientTable.awaitBodies(ClientTable.readAll(s, topic, 3), ClientTable.numbered(3));
        });
        harness.add("transaction, then its message by unique key", s -> {
            String topic = s.topic();
            TransactionMQProducer producer = ClientTable.transactional(s, LocalTransactionState.COMMIT_MESSAGE, null);
            SendResult sent = producer.sendMessageInTransaction(new Message(topic, Scenario.bytes("body0")), null);
            ClientTable.readAll(s, topic, 1);
            Thread.sleep(1_500);
            Scenario.equal("body0", Scenario.text(ClientTable.looking(s).viewMessage(topic, sent.getMsgId()).getBody()), "body");
        });
    }

    private static void timed(Scenario s, Message message, long millisMin) throws Exception {
        long begun = System.currentTimeMillis();
        ClientTable.producer(s).send(message);
        MessageExt seen = ClientTable.readAll(s, message.getTopic(), 1).get(0);
        long took = System.currentTimeMillis() - begun;
        Scenario.equal("body0", Scenario.text(seen.getBody()), "body");
        Scenario.equal(message.getTopic(), seen.getTopic(), "topic");
        Scenario.check(took > millisMin - 1_000 && took < 14_000, "came after " + took + " ms");
    }

    private static void compressed(Scenario s, CompressionType type) throws Exception {
        String topic = s.topic();
        DefaultMQProducer producer = new DefaultMQProducer("P_" + s.unique, Keys.producer());
        producer.setCompressType(type);
        ClientTable.started(s, producer);
        byte[] body = "compressible ".repeat(20_000).getBytes();
        producer.send(new Message(topic, body));
        MessageExt seen = ClientTable.readAll(s, topic, 1).get(0);
        Scenario.check(Arrays.equals(body, seen.getBody()), "body differs");
        Scenario.check(seen.getStoreSize() < 20_000, "stored in " + seen.getStoreSize() + " bytes");
    }
}
