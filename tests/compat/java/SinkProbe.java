import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Finds a message by its unique key, as RocketMQ's tools do: SinkProbe NAME_SERVERS TOPIC KEY. */
public class SinkProbe {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer client = new DefaultMQProducer("sink-probe");
        client.setNamesrvAddr(args[0]);
        client.start();
        MessageExt found = client.viewMessage(args[1], args[2]);
        System.out.println(found.getMsgId() + " " + found.getTags() + " " + found.getKeys() + " "
            + new String(found.getBody(), StandardCharsets.UTF_8).length());
        client.shutdown();
        System.exit(0);
    }
}
