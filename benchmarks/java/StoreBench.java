import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * What RocketMQ's own DefaultMessageStore does a second, one thread, no network; one line of JSON a
 * figure. Arguments: what to do, directory, messages, commit log file bytes, hash slots, index units.
 *
 *   put DIR N ...       single puts, then batches of 64, then pulls of 32, then queries by key
 *   recover DIR N ...   load() of a store that is there: as it is, then with an abort file and
 *                       neither checkpoint nor queues nor index, so that all is built anew
 */
public class StoreBench {
    static final int BATCH = 64;
    static final byte[] BODY = new byte[1024];
    static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 50000);
    static final InetSocketAddress STORE = new InetSocketAddress("127.0.0.1", 10911);

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        if (arguments[0].equals("put")) {
            put(arguments);
        } else {
            load(arguments, "recover_clean");
            wipe(arguments[1]);
            load(arguments, "recover_all");
        }
        System.exit(0);
    }

    static DefaultMessageStore open(String[] arguments) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[1]);
        config.setStorePathCommitLog(arguments[1] + "/commitlog");
        config.setMappedFileSizeCommitLog(Integer.parseInt(arguments[3]));
        config.setMaxHashSlotNum(Integer.parseInt(arguments[4]));
        config.setMaxIndexNum(Integer.parseInt(arguments[5]));
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        return new DefaultMessageStore(config, new BrokerStatsManager("bench", true),
            (t, q, o, c, ts, b, p) -> { }, new BrokerConfig(), new ConcurrentHashMap<>());
    }

    static void put(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        DefaultMessageStore store = open(arguments);
        if (!store.load()) {
            throw new IllegalStateException("load() said no");
        }
        store.start();
        run("warm_up", count / 4, number -> single(store, "Warm", number));
        settle(store);
        run("put_single", count, number -> single(store, "Single", number));
        long begun = System.nanoTime();
        settle(store);
        print("dispatch_rest", count, System.nanoTime() - begun);
        run("put_batch", count / BATCH, BATCH, number -> batch(store, number));
        settle(store);
        int[] at = {0};
        run("get_32", count / 32, 32, number -> {
            GetMessageResult result = store.getMessage("g", "Single", 0, at[0], 32, null);
            if (result.getMessageCount() != 32) {
                throw new IllegalStateException(result.toString());
            }
            at[0] += 32;
            result.release();
        });
        run("query", 20000, number -> {
            int key = (int) ((number * 7919L) % count);
            QueryMessageResult result =
                store.queryMessage("Single", "k" + key, 1, 0, Long.MAX_VALUE);
            if (result.getMessageBufferList().isEmpty()) {
                throw new IllegalStateException("no message with key k" + key);
            }
            result.release();
        });
        store.shutdown();
    }

    static void single(DefaultMessageStore store, String topic, int number) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(0);
        message.setBody(BODY);
        message.setTags("TagA");
        message.setKeys("k" + number);
        message.putUserProperty("UNIQ", "7F00000100002A9F00000000000003E8");
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, "TagA"));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN);
        message.setStoreHost(STORE);
        check(store.putMessage(message));
    }

    static void batch(DefaultMessageStore store, int number) {
        List<Message> messages = new ArrayList<>(BATCH);
        for (int index = 0; index < BATCH; index++) {
            Message message = new Message("Batch", "TagA", "b" + number, BODY);
            messages.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic("Batch");
        batch.setQueueId(0);
        batch.setBody(MessageBatch.generateFromList(messages).encode());
        batch.setBornTimestamp(System.currentTimeMillis());
        batch.setBornHost(BORN);
        batch.setStoreHost(STORE);
        check(store.putMessages(batch));
    }

    static void check(PutMessageResult result) {
        if (!result.isOk()) {
            throw new IllegalStateException("put: " + result);
        }
    }

    static void settle(DefaultMessageStore store) throws Exception {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    static void load(String[] arguments, String name) throws Exception {
        DefaultMessageStore store = open(arguments);
        long begun = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("load() said no");
        }
        print(name, Integer.parseInt(arguments[2]), System.nanoTime() - begun);
        store.start();
        store.shutdown();
    }

    static void wipe(String directory) throws Exception {
        delete(new File(directory, "consumequeue"));
        delete(new File(directory, "index"));
        delete(new File(directory, "checkpoint"));
        Files.write(Path.of(directory, "abort"), "1".getBytes(StandardCharsets.UTF_8));
    }

    static void delete(File file) {
        File[] children = file.listFiles();
        if (children != null) {
            for (File child : children) {
                delete(child);
            }
        }
        file.delete();
    }

    interface Step {
        void take(int number) throws Exception;
    }

    static void run(String name, int count, Step step) throws Exception {
        run(name, count, 1, step);
    }

    static void run(String name, int count, int messages, Step step) throws Exception {
        long begun = System.nanoTime();
        for (int number = 0; number < count; number++) {
            step.take(number);
        }
        print(name, (long) count * messages, System.nanoTime() - begun);
    }

    static void print(String name, long messages, long nanoseconds) {
        System.out.println(String.format("{\"name\": \"%s\", \"messages\": %d, \"seconds\": %.6f}",
            name, messages, nanoseconds / 1e9));
        System.out.flush();
    }
}
