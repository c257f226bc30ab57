import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store directory with RocketMQ's own DefaultMessageStore, prints every message of the
 * given queues, one line of JSON each, appends some, and closes.
 *
 * Arguments: directory, commit log file bytes, consume queue file bytes, messages to append to each
 * queue, then topic and queue id in turn. With -Dprobe.halt=true it dies instead of closing.
 */
public class StoreProbe {
    public static void main(String[] arguments) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[0]);
        config.setStorePathCommitLog(arguments[0] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(arguments[1]));
        config.setMappedFileSizeConsumeQueue(Integer.parseInt(arguments[2]));
        config.setMessageIndexEnable(false);
        config.setHaListenPort(0);
        config.setDuplicationEnable(false);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        DefaultMessageStore store = new DefaultMessageStore(config,
            new BrokerStatsManager("probe", true), (t, q, o, c, ts, b, p) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            System.err.println("load() said no");
            System.exit(3);
        }
        store.start();
        int appended = Integer.parseInt(arguments[3]);
        for (int at = 4; at < arguments.length; at += 2) {
            String topic = arguments[at];
            int queueId = Integer.parseInt(arguments[at + 1]);
            read(store, topic, queueId);
            for (int number = 0; number < appended; number++) {
                append(store, topic, queueId, number);
            }
        }
        // A result on standard output is one line; what the store logs goes to its own files.
        System.out.println("{\"max_physical_offset\": " + store.getMaxPhyOffset() + "}");
        System.out.flush();
        if (Boolean.getBoolean("probe.halt")) {
            Runtime.getRuntime().halt(0);
        }
        store.shutdown();
        System.exit(0);
    }

    private static void read(DefaultMessageStore store, String topic, int queueId) throws Exception {
        long offset = store.getMinOffsetInQueue(topic, queueId);
        long end = store.getMaxOffsetInQueue(topic, queueId);
        while (offset < end) {
            GetMessageResult result = store.getMessage("probe", topic, queueId, offset, 32, null);
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                print(MessageDecoder.decode(buffer, true, false, false, false, true));
            }
            long next = result.getNextBeginOffset();
            result.release();
            if (next <= offset) {
                throw new IllegalStateException(result.getStatus() + " at " + topic + " " + offset);
            }
            offset = next;
        }
    }

    private static void print(MessageExt message) {
        HexFormat hex = HexFormat.of();
        String properties = MessageDecoder.messageProperties2String(message.getProperties());
        System.out.println(String.format(
            "{\"topic\": \"%s\", \"queue_id\": %d, \"queue_offset\": %d, \"physical_offset\": %d,"
            + " \"store_size\": %d, \"flag\": %d, \"sys_flag\": %d, \"born_ms\": %d,"
            + " \"stored_ms\": %d, \"msg_id\": \"%s\", \"body\": \"%s\", \"properties\": \"%s\"}",
            message.getTopic(), message.getQueueId(), message.getQueueOffset(),
            message.getCommitLogOffset(), message.getStoreSize(), message.getFlag(),
            message.getSysFlag(), message.getBornTimestamp(), message.getStoreTimestamp(),
            message.getMsgId(),
            hex.formatHex(message.getBody()),
            hex.formatHex(properties.getBytes(StandardCharsets.UTF_8))));
    }

    private static void append(DefaultMessageStore store, String topic, int queueId, int number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(("java " + number).getBytes(StandardCharsets.UTF_8));
        message.setTags("FromJava");
        message.setKeys("j" + number);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, "FromJava"));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("10.1.2.3", 1234));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        PutMessageResult result = store.putMessage(message);
        if (!result.isOk()) {
            throw new IllegalStateException("put: " + result);
        }
    }
}
