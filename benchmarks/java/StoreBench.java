import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * What RocketMQ's own DefaultMessageStore does a second, one thread, no network; a line of JSON for
 * every round. Arguments: directory, messages, commit log file bytes, hash slots, index units.
 *
 * Single puts, batches of 64, pulls of 32, queries by key. Then load() as after a clean stop, and with
 * an abort file and neither checkpoint nor queues nor index, so that all is built anew. Then the
 * dispatch of the whole log to new queues, without and with an index, and the index alone.
 */
public class StoreBench {
    static final int BATCH = 64;
    static final int BODIES = 16;
    static final int ROUNDS = 5;
    static final int SLOW_ROUNDS = 3;
    static final int QUERIES = 4000;
    static final int INDEXED = 4096;
    static final byte[] BODY = new byte[1024];
    static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 50000);
    static final InetSocketAddress STORE = new InetSocketAddress("127.0.0.1", 10911);
    static final BrokerStatsManager STATS = new BrokerStatsManager("bench", true);

    static String directory;
    static int count;
    static int fileBytes;
    static int slots;
    static int units;

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        directory = arguments[0];
        count = Integer.parseInt(arguments[1]);
        fileBytes = Integer.parseInt(arguments[2]);
        slots = Integer.parseInt(arguments[3]);
        units = Integer.parseInt(arguments[4]);
        putAndGet();
        for (int round = 0; round < SLOW_ROUNDS; round++) {
            load("recover_clean");
        }
        for (int round = 0; round < SLOW_ROUNDS; round++) {
            wipe();
            load("recover_all");
        }
        for (int round = 0; round < SLOW_ROUNDS; round++) {
            reput("reput_queues", false);
            reput("reput_all", true);
        }
        index();
        Runtime.getRuntime().halt(0);
    }

    static DefaultMessageStore open(boolean index) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(directory);
        config.setStorePathCommitLog(directory + "/commitlog");
        config.setMappedFileSizeCommitLog(fileBytes);
        config.setMaxHashSlotNum(slots);
        config.setMaxIndexNum(units);
        config.setMessageIndexEnable(index);
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        config.setDiskMaxUsedSpaceRatio(99);
        return new DefaultMessageStore(config, STATS, (t, q, o, c, ts, b, p) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
    }

    static DefaultMessageStore loaded(boolean index) throws Exception {
        DefaultMessageStore store = open(index);
        if (!store.load()) {
            throw new IllegalStateException("load() said no");
        }
        return store;
    }

    static void putAndGet() throws Exception {
        DefaultMessageStore store = loaded(true);
        store.start();
        run("warm_up", count / 4, 1, number -> single(store, "Warm", number));
        settle(store);
        rounds("put_single", count, 1, number -> single(store, "Single", number));
        settle(store);
        byte[][] bodies = batchBodies();
        rounds("put_batch", count / BATCH, BATCH, number -> batch(store, bodies[number % BODIES]));
        settle(store);
        rounds("get_32", count / 32, 32, number -> {
            GetMessageResult result = store.getMessage("g", "Single", 0, number * 32L, 32, null);
            if (result.getMessageCount() != 32) {
                throw new IllegalStateException(result.toString());
            }
            result.release();
        });
        rounds("query", ROUNDS * QUERIES, 1, number -> {
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
        MessageAccessor.putProperty(message, "UNIQ_KEY", "7F00000100002A9F" + number);
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, "TagA"));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(BORN);
        message.setStoreHost(STORE);
        check(store.putMessage(message));
    }

    /** What clients send; encoding it is their work. */
    static byte[][] batchBodies() {
        byte[][] bodies = new byte[BODIES][];
        for (int number = 0; number < BODIES; number++) {
            List<Message> messages = new ArrayList<>(BATCH);
            for (int index = 0; index < BATCH; index++) {
                messages.add(new Message("Batch", "TagA", "b" + (number * BATCH + index), BODY));
            }
            bodies[number] = MessageBatch.generateFromList(messages).encode();
        }
        return bodies;
    }

    static void batch(DefaultMessageStore store, byte[] body) {
        MessageExtBatch batch = new MessageExtBatch();
        batch.setTopic("Batch");
        batch.setQueueId(0);
        batch.setBody(body);
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

    static void load(String name) throws Exception {
        DefaultMessageStore store = open(true);
        long begun = System.nanoTime();
        if (!store.load()) {
            throw new IllegalStateException("load() said no");
        }
        print(name, stored(), System.nanoTime() - begun);
    }

    /** How many messages putAndGet() has stored. */
    static long stored() {
        return count / 4 + count / ROUNDS * ROUNDS + (long) (count / BATCH / ROUNDS * ROUNDS) * BATCH;
    }

    static void wipe() throws Exception {
        delete(new File(directory, "consumequeue"));
        delete(new File(directory, "index"));
        delete(new File(directory, "checkpoint"));
        Files.write(Path.of(directory, "abort"), "1".getBytes(StandardCharsets.UTF_8));
    }

    /** ReputMessageService.doReput over the whole log. */
    static void reput(String name, boolean index) throws Exception {
        delete(new File(directory, "index"));
        DefaultMessageStore store = loaded(index);
        store.getQueueStore().destroy();
        Field field = DefaultMessageStore.class.getDeclaredField("reputMessageService");
        field.setAccessible(true);
        Object service = field.get(store);
        Method set = service.getClass().getMethod("setReputFromOffset", long.class);
        Method reput = service.getClass().getMethod("doReput");
        set.setAccessible(true);
        reput.setAccessible(true);
        set.invoke(service, 0L);
        long begun = System.nanoTime();
        reput.invoke(service);
        print(name, stored(), System.nanoTime() - begun);
        if (store.dispatchBehindBytes() > 0) {
            throw new IllegalStateException("dispatch is behind");
        }
    }

    /** IndexService.buildIndex of messages with two keys. */
    static void index() throws Exception {
        delete(new File(directory, "index"));
        IndexService service = new IndexService(open(true));
        for (int round = 0; round < ROUNDS; round++) {
            List<DispatchRequest> requests = new ArrayList<>();
            for (int number = 0; number < INDEXED; number++) {
                int id = round * INDEXED + number;
                requests.add(new DispatchRequest("BenchTopic", 0, id * 1200L, 1200, 0L, 1L + id, id,
                    "order-" + id, "7F00000100002A9F" + id, 0, 0L, null));
            }
            run("index_put", INDEXED, 1, number -> service.buildIndex(requests.get(number)));
        }
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

    static void rounds(String name, int steps, int messages, Step step) throws Exception {
        int perRound = steps / ROUNDS;
        for (int round = 0; round < ROUNDS; round++) {
            int first = round * perRound;
            run(name, perRound, messages, number -> step.take(first + number));
        }
    }

    static void run(String name, int steps, int messages, Step step) throws Exception {
        long begun = System.nanoTime();
        for (int number = 0; number < steps; number++) {
            step.take(number);
        }
        print(name, (long) steps * messages, System.nanoTime() - begun);
    }

    static void print(String name, long messages, long nanoseconds) {
        System.out.println(String.format("{\"name\": \"%s\", \"messages\": %d, \"seconds\": %.6f}",
            name, messages, nanoseconds / 1e9));
        System.out.flush();
    }
}
