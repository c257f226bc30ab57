import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.body.KVTable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What rocketmq-exporter and the Dashboard ask, in their order, with DefaultMQAdminExt 5.3.3: neither is on Maven.
 *
 * A row is a task of the exporter, or a page of the Dashboard. What is answered is written down as keys and kinds
 * of values, so that the answers of two brokers can be compared: `step path kind`.
 */
public final class SequenceTable {
    /** What the exporter takes out of a broker's runtime info; without one of the numbers it takes nothing. */
    static final String[] RUNTIME_NUMBERS = {
        "msgPutTotalTodayNow", "sendThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills",
        "msgGetTotalTodayNow", "queryThreadPoolQueueSize", "bootTimestamp", "msgPutTotalYesterdayMorning",
        "msgGetTotalYesterdayMorning", "pullThreadPoolQueueSize", "commitLogMinOffset",
        "pullThreadPoolQueueHeadWaitTimeMills", "dispatchMaxBuffer", "brokerVersion", "consumeQueueDiskRatio",
        "pageCacheLockTimeMills", "commitLogDiskRatio", "commitLogMaxOffset", "getMessageEntireTimeMax",
        "msgPutTotalTodayMorning", "putMessageTimesTotal", "msgGetTotalTodayMorning", "sendThreadPoolQueueSize",
        "startAcceptSendRequestTimeStamp", "putMessageEntireTimeMax", "earliestMessageTimeStamp",
        "remainTransientStoreBufferNumbs", "queryThreadPoolQueueCapacity", "putMessageAverageSize",
        "dispatchBehindBytes", "putMessageSizeTotal", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity",
        "putLatency99", "putLatency999",
    };
    static final String[] RUNTIME_TEXTS = {
        "putMessageDistributeTime", "putTps", "getMissTps", "getTransferredTps", "getTotalTps",
        "getFoundTps", "commitLogDirCapacity", "remainHowManyDataToFlush", "runtime", "brokerVersionDesc",
    };

    static Harness harness;
    static ToolWorld world;
    static DefaultMQAdminExt admin;
    static DefaultMQPullConsumer puller;

    public static void main(String[] arguments) {
        try {
            run(arguments);
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // RocketMQ's threads would keep alive a process whose main thread has failed.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] arguments) throws Exception {
        harness = new Harness(arguments);
        world = new ToolWorld(harness);
        admin = new DefaultMQAdminExt(Keys.tools());
        admin.setNamesrvAddr(harness.nameServers);
        admin.setInstanceName("sequences");
        admin.start();
        puller = new DefaultMQPullConsumer("TOOLS_CONSUMER", Keys.tools());
        puller.setNamesrvAddr(harness.nameServers);
        puller.setInstanceName("puller");
        puller.start();
        exporter();
        dashboard();
        // One at a time: some of them have the broker ask the one consumer.
        harness.runAll(arguments[4], 1);
    }

    interface Ask {
        Object ask() throws Exception;
    }

    interface Body {
        void run(Steps steps) throws Exception;
    }

    static void add(String name, Body body) {
        harness.add(name, scenario -> {
            world.check();
            Steps steps = new Steps();
            try {
                body.run(steps);
            } finally {
                scenario.said = String.join("\n", steps.lines);
            }
        });
    }

    /** The answers of a row so far. */
    static final class Steps {
        final TreeSet<String> lines = new TreeSet<>();

        /** Ask, and write down what the answer is; a refusal with a code is an answer. */
        <T> void step(String name, Ask ask) throws Exception {
            try {
                shape(name + " ", ask.ask());
            } catch (MQClientException error) {
                lines.add(name + " code " + error.getResponseCode());
            } catch (MQBrokerException error) {
                lines.add(name + " code " + error.getResponseCode());
            }
        }

        void shape(String path, Object value) throws Exception {
            if (value instanceof Map<?, ?> map) {
                lines.add(path + "{}");
                for (Map.Entry<?, ?> entry : map.entrySet()) {
                    shape(path + "." + key(entry.getKey()), entry.getValue());
                }
            } else if (value instanceof Collection<?> all) {
                lines.add(path + "[]");
                for (Object one : all) {
                    shape(path + "[]", one);
                }
            } else if (value == null || value.getClass().isArray() || value.getClass().isEnum()
                || !value.getClass().getName().startsWith("org.apache.rocketmq")) {
                lines.add(path + " " + kind(value));
            } else {
                for (Class<?> type = value.getClass(); type != Object.class; type = type.getSuperclass()) {
                    for (Field field : type.getDeclaredFields()) {
                        if (!Modifier.isStatic(field.getModifiers())
                            && type.getName().startsWith("org.apache.rocketmq")) {
                            field.setAccessible(true);
                            shape(path + "." + field.getName(), field.get(value));
                        }
                    }
                }
            }
        }
    }

    /** A key without what is made up: names, addresses, numbers. */
    static String key(Object key) {
        if (key instanceof Number) {
            return "#";
        }
        return key instanceof String || key.getClass().isEnum() ? plain(String.valueOf(key))
            : key.getClass().getSimpleName();
    }

    static String plain(String text) {
        Map<String, String> names = new TreeMap<>(Map.of(world.topic, "{topic}", world.online, "{online}",
            world.offline, "{offline}", world.producers, "{producers}", world.clientId(), "{client}"));
        String plain = text;
        for (Map.Entry<String, String> name : names.entrySet()) {
            plain = plain.replace(name.getKey(), name.getValue());
        }
        return plain.replaceAll("\\d+\\.\\d+\\.\\d+\\.\\d+(:\\d+)?", "{address}").replaceAll("\\d+", "#");
    }

    static String kind(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof String text) {
            return text.matches("-?[0-9.]+(E-?\\d+)?") ? "number as text" : "text";
        }
        if (value.getClass().isEnum()) {
            return value.toString();
        }
        return value instanceof Number ? "number" : value instanceof Boolean ? "flag" : "other";
    }

    /** Numbers have to be some; of texts, which are taken apart, what is around their numbers. */
    static Object runtime(String address) throws Exception {
        KVTable table = admin.fetchBrokerRuntimeStats(address);
        Map<String, Object> read = new TreeMap<>();
        for (String key : RUNTIME_NUMBERS) {
            Scenario.check(table.getTable().containsKey(key), "no " + key);
            Double.parseDouble(table.getTable().get(key));
            read.put(key, table.getTable().get(key));
        }
        for (String key : RUNTIME_TEXTS) {
            String text = table.getTable().get(key);
            Scenario.check(text != null, "no " + key);
            read.put(key, Map.of(form(text), 0));
        }
        return read;
    }

    /** A text without its numbers; of rates there may be up to three, and what a minute was like is told later. */
    static String form(String text) {
        String form = text.replaceAll("\\d+(\\.\\d+)?(E-?\\d+)?", "#").replaceAll("[KMGTPE]?i?B\\b", "B").trim();
        if (form.equals("null") || form.startsWith("[<=#ms]:# [#~#ms]:#")) {
            return "spread";
        }
        return form.isEmpty() || form.matches("#( #)*") ? "rates" : form;
    }

    static Object stats(String name, String key) throws Exception {
        return admin.viewBrokerStatsData(world.address, name, key);
    }

    static void exporter() {
        add("exporter: collectTopicOffset", s -> {
            s.step("206", () -> admin.fetchAllTopicList().getTopicList().contains(world.topic));
            for (String topic : List.of(world.topic, "%RETRY%" + world.online, "TBW102")) {
                s.step("202 " + plain(topic), () -> admin.examineTopicStats(topic));
            }
            s.step("202 of none", () -> admin.examineTopicStats("NoSuchTopic"));
        });
        add("exporter: collectProducer", s -> {
            s.step("106", () -> admin.examineBrokerClusterInfo().getClusterAddrTable());
            s.step("328", () -> admin.getAllProducerInfo(world.address).getData().get(world.producers));
        });
        add("exporter: collectConsumerOffset", s -> {
            s.step("300", () -> admin.queryTopicConsumeByWho(world.topic).getGroupList()
                .containsAll(List.of(world.online, world.offline)));
            s.step("300 of none", () -> admin.queryTopicConsumeByWho("NoSuchTopic"));
            for (String group : List.of(world.online, world.offline, "NoSuchGroup")) {
                s.step("203 " + plain(group), () -> admin.examineConsumerConnectionInfo(group));
                s.step("208 " + plain(group), () -> admin.examineConsumeStats(group, world.topic));
            }
            s.step("307", () -> admin.getConsumerRunningInfo(world.online, world.clientId(), false).getStatusTable());
            ConsumeStats stats = admin.examineConsumeStats(world.offline, world.topic);
            for (MessageQueue queue : stats.getOffsetTable().keySet()) {
                long offset = stats.getOffsetTable().get(queue).getConsumerOffset();
                s.step("11 at the end", () -> puller.pull(queue, "*", offset, 1).getPullStatus());
                s.step("11 in the middle", () -> puller.pull(queue, "*", offset - 1, 1).getPullStatus());
                s.step("11 beyond the end", () -> puller.pull(queue, "*", offset + 99, 1).getPullStatus());
            }
        });
        add("exporter: collectBrokerStatsTopic", s -> {
            s.step("105", () -> admin.examineTopicRouteInfo(world.topic).getQueueDatas());
            s.step("105 of none", () -> admin.examineTopicRouteInfo("NoSuchTopic"));
            String both = world.topic + "@" + world.online;
            s.step("315 TOPIC_PUT_NUMS", () -> stats("TOPIC_PUT_NUMS", world.topic));
            s.step("315 TOPIC_PUT_SIZE", () -> stats("TOPIC_PUT_SIZE", world.topic));
            s.step("315 GROUP_GET_NUMS", () -> stats("GROUP_GET_NUMS", both));
            s.step("315 GROUP_GET_SIZE", () -> stats("GROUP_GET_SIZE", both));
            s.step("315 SNDBCK_PUT_NUMS", () -> stats("SNDBCK_PUT_NUMS", both));
            s.step("315 of none", () -> stats("TOPIC_PUT_NUMS", "NoSuchTopic"));
        });
        add("exporter: collectBrokerStats", s -> {
            s.step("315 BROKER_PUT_NUMS", () -> stats("BROKER_PUT_NUMS", harness.cluster));
            s.step("315 BROKER_GET_NUMS", () -> stats("BROKER_GET_NUMS", harness.cluster));
        });
        add("exporter: collectBrokerRuntimeStats", s -> s.step("28", () -> runtime(world.address)));
    }

    static void dashboard() {
        add("Dashboard: collecting", s -> {
            s.step("106", () -> admin.examineBrokerClusterInfo().getBrokerAddrTable().get(harness.broker).getBrokerAddrs());
            s.step("28", () -> runtime(world.address));
            s.step("206", () -> admin.fetchAllTopicList().getTopicList().contains(world.topic));
            s.step("105", () -> admin.examineTopicRouteInfo(world.topic));
            s.step("300", () -> admin.queryTopicConsumeByWho(world.topic).getGroupList().contains(world.online));
            s.step("315 in", () -> stats("TOPIC_PUT_NUMS", world.topic));
            s.step("315 out", () -> stats("GROUP_GET_NUMS", world.topic + "@" + world.online));
        });
        add("Dashboard: Cluster", s -> {
            s.step("106", () -> admin.examineBrokerClusterInfo().getClusterAddrTable());
            s.step("28", () -> runtime(world.address));
            s.step("26", () -> {
                Map<String, Object> read = new TreeMap<>();
                for (String key : List.of("brokerName", "brokerId", "brokerClusterName", "brokerRole", "listenPort",
                    "flushDiskType", "deleteWhen", "fileReservedTime", "autoCreateTopicEnable",
                    "autoCreateSubscriptionGroup", "brokerIP1", "maxMessageSize", "messageDelayLevel")) {
                    read.put(key, admin.getBrokerConfig(world.address).getProperty(key));
                }
                return read;
            });
        });
        add("Dashboard: Topic", s -> {
            s.step("206", () -> admin.fetchAllTopicList());
            s.step("21", () -> admin.getAllTopicConfig(world.address, 5_000).getTopicConfigTable().get(world.topic));
            s.step("105", () -> admin.examineTopicRouteInfo(world.topic));
            s.step("202", () -> admin.examineTopicStats(world.topic));
            s.step("300", () -> admin.queryTopicConsumeByWho(world.topic).getGroupList().contains(world.offline));
            s.step("351", () -> admin.examineTopicConfig(world.address, world.topic));
            s.step("351 of none", () -> admin.examineTopicConfig(world.address, "NoSuchTopic"));
        });
        add("Dashboard: Consumer", s -> {
            s.step("201", () -> admin.getAllSubscriptionGroup(world.address, 5_000).getSubscriptionGroupTable()
                .get(world.online));
            for (String group : List.of(world.online, world.offline, "NoSuchGroup")) {
                s.step("208 " + plain(group), () -> admin.examineConsumeStats(group));
                s.step("203 " + plain(group), () -> admin.examineConsumerConnectionInfo(group));
                s.step("352 " + plain(group), () -> admin.examineSubscriptionGroupConfig(world.address, group));
            }
            s.step("307", () -> admin.getConsumerRunningInfo(world.online, world.clientId(), false));
            s.step("307 of none", () -> admin.getConsumerRunningInfo(world.online, "nobody", false));
        });
        add("Dashboard: Producer", s -> {
            s.step("204", () -> admin.examineProducerConnectionInfo(world.producers, world.topic));
            s.step("204 of none", () -> admin.examineProducerConnectionInfo("NoSuchProducers", world.topic));
        });
        add("Dashboard: Message", s -> {
            for (int number = 0; number < 2; number++) {
                MessageQueue queue = world.queue(number);
                s.step("30", () -> puller.searchOffset(queue, System.currentTimeMillis()));
                s.step("31", () -> puller.minOffset(queue));
                s.step("29", () -> puller.maxOffset(queue));
                s.step("11", () -> puller.pull(queue, "*", 0, 32));
            }
            s.step("12 by key", () -> admin.queryMessage(world.topic, "key4", 64, 0, System.currentTimeMillis()));
            s.step("12 of none", () -> admin.queryMessage(world.topic, "no key", 64, 0, System.currentTimeMillis()));
            s.step("33", () -> admin.viewMessage(world.topic, world.sent.get(3).getOffsetMsgId()));
            s.step("12 by id", () -> admin.viewMessage(world.topic, world.sent.get(3).getMsgId()));
            MessageExt message = admin.viewMessage(world.topic, world.sent.get(0).getOffsetMsgId());
            s.step("300, 203, 208", () -> admin.messageTrackDetail(message).stream()
                .filter(track -> List.of(world.online, world.offline).contains(track.getConsumerGroup())).toList());
            s.step("309", () -> admin.consumeMessageDirectly(world.online, world.clientId(), world.topic,
                world.sent.get(0).getOffsetMsgId()));
        });
        add("Dashboard: DLQ of a group that has none", s ->
            s.step("105", () -> admin.examineTopicRouteInfo("%DLQ%" + world.online)));
        add("Dashboard: MessageTrace of a message without one", s -> {
            String traces = "Traces_" + world.topic;
            harness.makeTopic(harness.operator(), traces, 1, 6);
            s.step("12", () -> admin.queryMessage(traces, world.sent.get(0).getMsgId(), 64, 0,
                System.currentTimeMillis()));
        });
    }
}
