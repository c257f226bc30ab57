import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * A user with a bound. Arguments: name servers, access key, secret key, topic, group, threads, messages of each.
 *
 * Prints what became of messages that threads send one after the other, of as many that are sent at once with a
 * callback, each as outcomes with their number, and then how many different messages a push consumer has got once
 * it has all that were sent, and how long each took in milliseconds.
 */
public class QuotaProbe {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[3], group = arguments[4];
        int threads = Integer.parseInt(arguments[5]), each = Integer.parseInt(arguments[6]);
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(arguments[1], arguments[2]));
        DefaultMQProducer producer = new DefaultMQProducer("P_" + group, hook);
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        // A busy machine takes longer for the first one than a send may take.
        producer.send(new Message(topic, "first".getBytes()), 30_000);
        Thread.sleep(1500);
        Set<String> sent = ConcurrentHashMap.newKeySet();
        sent.add("first");

        Map<String, AtomicInteger> outcomes = new ConcurrentHashMap<>();
        long began = System.currentTimeMillis();
        Thread[] all = new Thread[threads];
        for (int number = 0; number < threads; number++) {
            String name = "t" + number + "-";
            all[number] = new Thread(() -> {
                for (int i = 0; i < each; i++) {
                    try {
                        producer.send(new Message(topic, (name + i).getBytes()));
                        sent.add(name + i);
                        count(outcomes, "sent");
                    } catch (Exception error) {
                        count(outcomes, words(error));
                    }
                }
            });
            all[number].start();
        }
        for (Thread thread : all) {
            thread.join();
        }
        System.out.println("sync " + new TreeMap<>(outcomes) + " " + (System.currentTimeMillis() - began));
        Thread.sleep(1500);

        Map<String, AtomicInteger> others = new ConcurrentHashMap<>();
        CountDownLatch left = new CountDownLatch(threads * each);
        began = System.currentTimeMillis();
        for (int i = 0; i < threads * each; i++) {
            String body = "a" + i;
            producer.send(new Message(topic, body.getBytes()), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.add(body);
                    count(others, "sent");
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    count(others, words(error));
                    left.countDown();
                }
            });
        }
        left.await();
        System.out.println("async " + new TreeMap<>(others) + " " + (System.currentTimeMillis() - began));

        Set<String> seen = ConcurrentHashMap.newKeySet();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(2);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> seen.add(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        began = System.currentTimeMillis();
        consumer.start();
        while (!seen.containsAll(sent) && System.currentTimeMillis() < began + 60_000) {
            Thread.sleep(20);
        }
        System.out.println("consumed " + seen.containsAll(sent) + " " + seen.size() + " of " + sent.size() + " "
            + (System.currentTimeMillis() - began));
        System.exit(0);
    }

    private static void count(Map<String, AtomicInteger> outcomes, String word) {
        outcomes.computeIfAbsent(word, key -> new AtomicInteger()).incrementAndGet();
    }

    private static String words(Throwable error) {
        if (error instanceof MQBrokerException) {
            return "code" + ((MQBrokerException) error).getResponseCode();
        }
        return error.getClass().getSimpleName();
    }
}
