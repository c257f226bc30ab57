import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** RocketMQ's client at a cluster whose master is killed. */
class OrdersTest {
    private static final int ORDERS = 60;
    private static final long PATIENCE_SECONDS = 150;

    /** Of a question for routes. The client's 3 s are little on a machine that is busy. */
    private static final int API_TIMEOUT_MS = 60_000;

    @RegisterExtension
    static final TandemCluster cluster = TandemCluster.fenced().topic("Orders");

    @Test
    void everyOrderIsConsumedAlthoughTheMasterIsKilled() throws Exception {
        Set<String> consumed = new ConcurrentSkipListSet<>();
        CountDownLatch all = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = startedConsumer(consumed, all);
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(cluster.nameServers());
        producer.setMqClientApiTimeout(API_TIMEOUT_MS);
        producer.start();
        Set<String> sent = new TreeSet<>();
        String killed = "";
        for (int number = 0; number < ORDERS; number++) {
            if (number == ORDERS / 3) {
                killed = cluster.killMaster();
            }
            sendUntilItIsSafe(producer, "order " + number);
            sent.add("order " + number);
        }
        assertNotEquals(killed, cluster.waitForMaster(killed));
        all.await(PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertEquals(sent, new TreeSet<>(consumed));
        producer.shutdown();
        consumer.shutdown();
    }

    @Test
    void anOrderThatMakesNoSenseIsRefusedAndTheClusterLivesOn() {
        assertThrows(IllegalStateException.class, () -> cluster.kill("broker-a-\"7\""));
        assertNotEquals("", cluster.master());
    }

    private static void sendUntilItIsSafe(DefaultMQProducer producer, String order)
            throws MQClientException, InterruptedException {
        Message message = new Message("Orders", order.getBytes(StandardCharsets.UTF_8));
        while (true) {
            try {
                if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                    return;
                }
            } catch (MQBrokerException | RemotingException | MQClientException error) {
                // Another master is being elected.
            }
            Thread.sleep(50);
        }
    }

    private static DefaultMQPushConsumer startedConsumer(Set<String> seen, CountDownLatch all)
            throws MQClientException {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("billing");
        consumer.setNamesrvAddr(cluster.nameServers());
        consumer.setMqClientApiTimeout(API_TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Orders", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            if (seen.size() == ORDERS) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
