import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * A producer that sends one message after the other, 10 ms apart, until it is killed.
 *
 * Arguments: name servers, topic, milliseconds between two looks for routes (0: RocketMQ's default).
 * Prints a line per send: when it ended, in milliseconds of the wall clock, and how.
 */
public class FailoverProbe {
    public static void main(String[] arguments) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("failover-p");
        producer.setNamesrvAddr(arguments[0]);
        int pollMs = Integer.parseInt(arguments[2]);
        if (pollMs > 0) {
            producer.setPollNameServerInterval(pollMs);
        }
        producer.start();
        byte[] body = "failover".getBytes(StandardCharsets.UTF_8);
        while (true) {
            String said;
            try {
                said = producer.send(new Message(arguments[1], body)).getSendStatus().name();
            } catch (InterruptedException error) {
                throw error;
            } catch (Exception error) {
                said = error.getClass().getSimpleName() + " " + error.getMessage();
            }
            System.out.println(System.currentTimeMillis() + " " + said.replace('\n', ' '));
            Thread.sleep(10);
        }
    }
}
