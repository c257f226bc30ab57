import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own DefaultMessageStore at the other end of a pipe: one line of JSON in, one line out.
 *
 *   open     directory, settings, batch_topics   load(), start(); false if load() says no
 *   load     the same                            load() only: recovers, and where log and queues end
 *   put      directory, messages                 putMessage or, of a batch, putMessages
 *   look     directory                           every message by offset, by queue and by key
 *   follow   directory, master                   a slave's store copies the log of that address
 *   end      directory                           where its log ends
 *   read_epochs   file                           what EpochFileCache reads
 *   write_epochs  file, entries                  appendEntry() of each
 *   close    directories                         shutdown() of all of them, at once: each sleeps
 *   halt                                         dies; stores that are open stay as they are
 */
public class StoreProbe {
    static final PrintStream ANSWERS = System.out;
    static final BrokerStatsManager STATS = new BrokerStatsManager("probe", true);
    static final Map<String, DefaultMessageStore> STORES = new HashMap<>();

    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Object answer = answer(JSON.parseObject(line));
            ANSWERS.write(JSON.toJSONString(answer, SerializerFeature.DisableCircularReferenceDetect)
                .getBytes(StandardCharsets.UTF_8));
            ANSWERS.println();
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static Object answer(JSONObject command) throws Exception {
        String directory = command.getString("directory");
        switch (command.getString("do")) {
            case "open":
                DefaultMessageStore store = make(command);
                boolean loaded = store.load();
                if (loaded) {
                    store.start();
                    STORES.put(directory, store);
                }
                return loaded;
            case "load":
                return load(command);
            case "put":
                List<Object> results = new ArrayList<>();
                for (Object message : command.getJSONArray("messages")) {
                    results.add(put(STORES.get(directory), (JSONObject) message));
                }
                return results;
            case "look":
                return look(STORES.get(directory));
            case "follow":
                STORES.get(directory).updateHaMasterAddress(command.getString("master"));
                return true;
            case "end":
                return STORES.get(directory).getMaxPhyOffset();
            case "read_epochs":
                return readEpochs(command.getString("file"));
            case "write_epochs":
                EpochFileCache epochs = new EpochFileCache(command.getString("file"));
                for (Object entry : command.getJSONArray("entries")) {
                    JSONArray pair = (JSONArray) entry;
                    epochs.appendEntry(new EpochEntry(pair.getIntValue(0), pair.getLongValue(1)));
                }
                return true;
            case "close":
                close(command.getJSONArray("directories"));
                return true;
            default:
                Runtime.getRuntime().halt(0);
                return null;
        }
    }

    static DefaultMessageStore make(JSONObject command) throws Exception {
        String directory = command.getString("directory");
        MessageStoreConfig config =
            command.getJSONObject("settings").toJavaObject(MessageStoreConfig.class);
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + "/commitlog");
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        reindexAll(config);
        ConcurrentMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (Object name : command.getJSONArray("batch_topics")) {
            TopicConfig topic = new TopicConfig((String) name, 4, 4);
            topic.setAttributes(new HashMap<>(Map.of("queue.type", "BatchCQ")));
            topics.put((String) name, topic);
        }
        BrokerConfig broker = new BrokerConfig();
        // A slave waits for the rest of a record that it has half; by its id it knows that it is one.
        broker.setBrokerId(config.getBrokerRole() == BrokerRole.SLAVE ? 1 : 0);
        return new DefaultMessageStore(config, STATS, (t, q, o, c, ts, b, p) -> { }, broker, topics);
    }

    /**
     * 5.5 begins its recovery after a hard stop where the queues are on disk, ten files back at most, and asks for
     * the index only if it is told to. Ours is not on disk before a file of it is full.
     */
    static void reindexAll(MessageStoreConfig config) throws Exception {
        try {
            config.getClass().getMethod("setCommitLogRecoverMaxNum", int.class).invoke(config, 1_000);
            config.setMessageIndexSafe(true);
        } catch (NoSuchMethodException older) {
            // 5.3 goes back three seconds.
        }
    }

    static Object readEpochs(String file) {
        EpochFileCache epochs = new EpochFileCache(file);
        epochs.initCacheFromFile();
        List<Object> entries = new ArrayList<>();
        for (EpochEntry entry : epochs.getAllEntries()) {
            entries.add(List.of(entry.getEpoch(), entry.getStartOffset()));
        }
        return entries;
    }

    static Object load(JSONObject command) throws Exception {
        DefaultMessageStore store = make(command);
        if (!store.load()) {
            return null;
        }
        Map<String, Object> ends = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> queues.forEach((queueId, queue) ->
            ends.put(topic + " " + queueId, queue.getMaxOffsetInQueue())));
        return Map.of("max_physical_offset", store.getMaxPhyOffset(), "queues", ends);
    }

    static void close(JSONArray directories) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (Object directory : directories) {
            threads.add(new Thread(STORES.remove(directory)::shutdown));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    // -- putting ---------------------------------------------------------------------------------

    static Object put(DefaultMessageStore store, JSONObject from) {
        boolean batch = from.getBooleanValue("batch");
        MessageExt message = batch ? new MessageExtBatch() : new MessageExtBrokerInner();
        String properties = from.getString("properties");
        message.setTopic(from.getString("topic"));
        message.setQueueId(from.getIntValue("queue_id"));
        message.setBody(HexFormat.of().parseHex(from.getString("body")));
        MessageAccessor.setProperties(message, MessageDecoder.string2messageProperties(properties));
        ((MessageExtBrokerInner) message).setPropertiesString(properties);
        message.setFlag(from.getIntValue("flag"));
        message.setSysFlag(from.getIntValue("sys_flag"));
        message.setBornTimestamp(from.getLongValue("born_timestamp_ms"));
        message.setBornHost(host(from.getString("born_host")));
        message.setStoreHost(host(from.getString("store_host")));
        message.setReconsumeTimes(from.getIntValue("reconsume_times"));
        message.setPreparedTransactionOffset(from.getLongValue("prepared_transaction_offset"));
        PutMessageResult result = batch
            ? store.putMessages((MessageExtBatch) message)
            : store.putMessage((MessageExtBrokerInner) message);
        return result.getPutMessageStatus().name();
    }

    static InetSocketAddress host(String text) {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(text.substring(0, colon),
            Integer.parseInt(text.substring(colon + 1)));
    }

    // -- looking ---------------------------------------------------------------------------------

    static Object look(DefaultMessageStore store) throws Exception {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        Map<String, Object> seen = new LinkedHashMap<>();
        List<MessageExt> messages = byOffset(store);
        List<Object> printed = new ArrayList<>();
        for (MessageExt message : messages) {
            printed.add(fields(message));
        }
        seen.put("max_physical_offset", store.getMaxPhyOffset());
        seen.put("messages", printed);
        seen.put("queues", byQueue(store));
        seen.put("keys", byKey(store, messages));
        return seen;
    }

    static List<MessageExt> byOffset(DefaultMessageStore store) {
        int fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        List<MessageExt> messages = new ArrayList<>();
        long offset = store.getMinPhyOffset();
        while (offset < store.getMaxPhyOffset()) {
            MessageExt message = store.lookMessageByOffset(offset);
            if (message == null) {
                offset += fileSize - offset % fileSize;
            } else {
                messages.add(message);
                offset += message.getStoreSize();
            }
        }
        return messages;
    }

    static Map<String, Object> fields(MessageExt message) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("queue_id", message.getQueueId());
        fields.put("queue_offset", message.getQueueOffset());
        fields.put("physical_offset", message.getCommitLogOffset());
        fields.put("store_size", message.getStoreSize());
        fields.put("flag", message.getFlag());
        fields.put("sys_flag", message.getSysFlag());
        fields.put("born_ms", message.getBornTimestamp());
        fields.put("born_host", HexFormat.of().formatHex(message.getBornHostBytes().array()));
        fields.put("stored_ms", message.getStoreTimestamp());
        fields.put("reconsume_times", message.getReconsumeTimes());
        fields.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        fields.put("msg_id", message.getMsgId());
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        fields.put("body", HexFormat.of().formatHex(body));
        fields.put("properties", message.getProperties() == null ? Map.of() : message.getProperties());
        return fields;
    }

    /** By topic and queue: where the queue begins and ends, and the offsets of its records. */
    static Map<String, Object> byQueue(DefaultMessageStore store) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (String topic : store.getConsumeQueueTable().keySet()) {
            for (int queueId : store.getConsumeQueueTable().get(topic).keySet()) {
                long min = Math.max(0, store.getMinOffsetInQueue(topic, queueId));
                long max = store.getMaxOffsetInQueue(topic, queueId);
                found.put(topic + " " + queueId,
                    Map.of("min", min, "max", max, "offsets", read(store, topic, queueId, min, max)));
            }
        }
        return found;
    }

    static List<Long> read(DefaultMessageStore store, String topic, int queueId, long min, long max)
        throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (long offset = min; offset < max; ) {
            GetMessageResult result = store.getMessage("probe", topic, queueId, offset, 32, null);
            for (ByteBuffer buffer : result.getMessageBufferList()) {
                offsets.add(sameAsByOffset(store, buffer));
            }
            long next = result.getNextBeginOffset();
            result.release();
            if (next <= offset) {
                throw new IllegalStateException(result.getStatus() + " at " + topic + " " + offset);
            }
            offset = next;
        }
        return offsets;
    }

    /** By topic and key: the offsets of what queryMessage returns. */
    static Map<String, Object> byKey(DefaultMessageStore store, List<MessageExt> messages)
        throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (MessageExt message : messages) {
            List<String> keys = new ArrayList<>();
            if (message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) != null) {
                keys.add(message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX));
            }
            if (message.getKeys() != null) {
                keys.addAll(List.of(message.getKeys().split(" ")));
            }
            for (String key : keys) {
                found.put(message.getTopic() + " " + key, query(store, message.getTopic(), key));
            }
        }
        return found;
    }

    static List<Long> query(DefaultMessageStore store, String topic, String key) {
        List<Long> offsets = new ArrayList<>();
        QueryMessageResult result = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        for (ByteBuffer buffer : result.getMessageBufferList()) {
            offsets.add(sameAsByOffset(store, buffer));
        }
        result.release();
        return offsets;
    }

    /** The physical offset of a record, which must be there byte for byte. */
    static long sameAsByOffset(DefaultMessageStore store, ByteBuffer record) {
        long offset = record.getLong(28);
        SelectMappedBufferResult there = store.selectOneMessageByOffset(offset);
        boolean same = there.getByteBuffer().equals(record);
        there.release();
        if (!same) {
            throw new IllegalStateException("other bytes are at " + offset);
        }
        return offset;
    }
}
