import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.CommunicationMode;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.RollbackStats;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.CMResult;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumeStatsList;
import org.apache.rocketmq.remoting.protocol.body.ConsumerConnection;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.remoting.protocol.body.GroupList;
import org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo;
import org.apache.rocketmq.remoting.protocol.body.KVTable;
import org.apache.rocketmq.remoting.protocol.body.ProducerConnection;
import org.apache.rocketmq.remoting.protocol.body.QueryConsumeQueueResponseBody;
import org.apache.rocketmq.remoting.protocol.body.QueueTimeSpan;
import org.apache.rocketmq.remoting.protocol.body.TopicList;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.admin.api.MessageTrack;
import org.apache.rocketmq.tools.admin.common.AdminToolResult;

/** What operators' programs do with DefaultMQAdminExt 5.3.3, and what they are told. */
public final class AdminTable {
    static final long MILLIS = 5_000;
    static Harness harness;
    static ToolWorld world;
    static DefaultMQAdminExt admin;

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
        admin.setInstanceName("admin");
        admin.start();
        topics();
        groups();
        offsets();
        clients();
        messages();
        brokers();
        nameServers();
        harness.runAll(arguments[4], 4);
    }

    interface Body {
        void run(Scenario scenario) throws Throwable;
    }

    /** A row that needs what the world's consumers have done. */
    static void add(String name, Body body) {
        harness.add(name, scenario -> {
            world.check();
            body.run(scenario);
        });
    }

    /**
     * A row in which the broker asks the world's consumer: one at a time.
     *
     * While it answers, the client 5.3.3 asks the broker itself, and takes the reply with the threads that wait
     * for it, of which there are as many as processors: a few questions at once stop it for three seconds.
     */
    static void addAlone(String name, Body body) {
        add(name, scenario -> {
            synchronized (world) {
                body.run(scenario);
            }
        });
    }

    static void topics() {
        add("createTopic", s -> {
            admin.createTopic("TBW102", s.unique, 3, Map.of());
            Scenario.until(10, () -> writeQueues(s.unique) == 3, () -> "not in the route");
        });
        add("createAndUpdateTopicConfig", s -> {
            TopicConfig config = new TopicConfig(s.unique, 2, 3, 6);
            config.setAttributes(Map.of("+message.type", "FIFO"));
            admin.createAndUpdateTopicConfig(world.address, config);
            TopicConfig read = admin.examineTopicConfig(world.address, s.unique);
            Scenario.equal(2, read.getReadQueueNums(), "read queues");
            Scenario.equal(3, read.getWriteQueueNums(), "write queues");
            Scenario.equal("{message.type=FIFO}", read.getAttributes().toString(), "attributes");
            admin.createAndUpdateTopicConfig(world.address, new TopicConfig(s.unique, 5, 5, 4));
            Scenario.equal(5, admin.examineTopicConfig(world.address, s.unique).getReadQueueNums(), "then");
            Scenario.equal(4, admin.examineTopicConfig(world.address, s.unique).getPerm(), "perm");
        });
        add("createAndUpdateTopicConfig with a bad name", s -> refused(29, () ->
            admin.createAndUpdateTopicConfig(world.address, new TopicConfig("a b!", 2, 2, 6))));
        add("createAndUpdateTopicConfigList", s -> {
            admin.createAndUpdateTopicConfigList(world.address,
                List.of(new TopicConfig(s.unique + "1", 1, 1, 6), new TopicConfig(s.unique + "2", 2, 2, 6)));
            Scenario.equal(1, admin.examineTopicConfig(world.address, s.unique + "1").getReadQueueNums(), "first");
            Scenario.equal(2, admin.examineTopicConfig(world.address, s.unique + "2").getReadQueueNums(), "second");
        });
        add("examineTopicConfig of none", s -> refused(17, () -> admin.examineTopicConfig(world.address, s.unique)));
        add("examineTopicStats", s -> {
            TopicStatsTable stats = admin.examineTopicStats(world.topic);
            Scenario.equal(2, stats.getOffsetTable().size(), "queues");
            Scenario.equal(5L, stats.getOffsetTable().get(world.queue(0)).getMaxOffset(), "max");
            Scenario.equal(0L, stats.getOffsetTable().get(world.queue(1)).getMinOffset(), "min");
            long age = System.currentTimeMillis() - stats.getOffsetTable().get(world.queue(1)).getLastUpdateTimestamp();
            Scenario.check(age > 0 && age < 300_000, "age " + age);
        });
        add("examineTopicStats of a broker", s -> Scenario.equal(2,
            admin.examineTopicStats(world.address, world.topic).getOffsetTable().size(), "queues"));
        add("examineTopicStatsConcurrent", s -> {
            AdminToolResult<TopicStatsTable> result = admin.examineTopicStatsConcurrent(world.topic);
            Scenario.check(result.isSuccess(), result.getErrorMsg());
            Scenario.equal(2, result.getData().getOffsetTable().size(), "queues");
        });
        add("fetchAllTopicList", s -> {
            Set<String> topics = admin.fetchAllTopicList().getTopicList();
            Scenario.check(topics.contains(world.topic) && topics.contains("%RETRY%" + world.online), "" + topics);
            Scenario.check(topics.contains("TBW102") && topics.contains("SCHEDULE_TOPIC_XXXX"), "" + topics);
        });
        add("fetchTopicsByCLuster", s -> {
            Set<String> topics = admin.fetchTopicsByCLuster(harness.cluster).getTopicList();
            Scenario.check(topics.contains(world.topic), "" + topics);
            Scenario.check(admin.fetchTopicsByCLuster("None").getTopicList().isEmpty(), "of no cluster");
        });
        add("examineTopicRouteInfo", s -> {
            Scenario.equal(harness.broker, admin.examineTopicRouteInfo(world.topic).getBrokerDatas().get(0)
                .getBrokerName(), "broker");
            Scenario.equal(world.address, admin.examineTopicRouteInfo(world.topic).getBrokerDatas().get(0)
                .getBrokerAddrs().get(0L), "address");
        });
        add("getTopicClusterList", s ->
            Scenario.equal(Set.of(harness.cluster), admin.getTopicClusterList(world.topic), "clusters"));
        add("getAllTopicConfig", s -> {
            Map<String, TopicConfig> all = admin.getAllTopicConfig(world.address, MILLIS).getTopicConfigTable();
            Scenario.equal(2, all.get(world.topic).getReadQueueNums(), "queues");
            Scenario.check(all.containsKey("TBW102"), "no system topics");
        });
        add("getUserTopicConfig", s -> {
            Map<String, TopicConfig> all =
                admin.getUserTopicConfig(world.address, true, MILLIS).getTopicConfigTable();
            Scenario.check(all.containsKey(world.topic) && !all.containsKey("TBW102"), "" + all.keySet());
        });
        add("deleteTopic", s -> {
            s.topic(s.unique, 1, 6);
            admin.deleteTopic(s.unique, harness.cluster);
            refused(17, () -> admin.examineTopicConfig(world.address, s.unique));
            Scenario.until(5, () -> writeQueues(s.unique) < 0, () -> "still in the route");
        });
        add("deleteTopicInBroker", s -> {
            s.topic(s.unique, 1, 6);
            admin.deleteTopicInBroker(Set.of(world.address), s.unique);
            refused(17, () -> admin.examineTopicConfig(world.address, s.unique));
        });
        add("deleteTopicInBrokerConcurrent", s -> {
            s.topic(s.unique, 1, 6);
            Scenario.equal(List.of(world.address), admin.deleteTopicInBrokerConcurrent(Set.of(world.address), s.unique)
                .getData().getSuccessList(), "brokers");
            refused(17, () -> admin.examineTopicConfig(world.address, s.unique));
        });
        add("deleteTopicInNameServer", s -> {
            s.topic(s.unique, 1, 6);
            admin.deleteTopicInNameServer(Set.of(harness.nameServers.split(";")), s.unique);
            // The broker still has it, and says so again with its next registration.
            Scenario.until(5, () -> writeQueues(s.unique) < 0, () -> "still in the route");
            Scenario.equal(1, admin.examineTopicConfig(world.address, s.unique).getReadQueueNums(), "at the broker");
        });
        add("createOrUpdateOrderConf", s -> {
            admin.createOrUpdateOrderConf(world.topic, harness.broker + ":2", false);
            Scenario.equal(harness.broker + ":2", admin.getKVConfig("ORDER_TOPIC_CONFIG", world.topic), "configuration");
        });
        add("createStaticTopic", s -> {
            admin.createStaticTopic(world.address, "TBW102", new TopicConfig(s.unique, 1, 1, 6),
                new org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingDetail(s.unique, 1, harness.broker,
                    System.currentTimeMillis()), true);
            Scenario.equal(1, admin.examineTopicConfig(world.address, s.unique).getReadQueueNums(), "queues");
        });
    }

    static int writeQueues(String topic) {
        try {
            return harness.instance().getMQClientAPIImpl().getTopicRouteInfoFromNameServer(topic, 3_000)
                .getQueueDatas().get(0).getWriteQueueNums();
        } catch (Exception error) {
            return -1;
        }
    }

    static void groups() {
        add("createAndUpdateSubscriptionGroupConfig", s -> {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(s.unique);
            config.setRetryMaxTimes(7);
            config.setConsumeBroadcastEnable(false);
            admin.createAndUpdateSubscriptionGroupConfig(world.address, config);
            SubscriptionGroupConfig read = admin.examineSubscriptionGroupConfig(world.address, s.unique);
            Scenario.equal(7, read.getRetryMaxTimes(), "retries");
            Scenario.equal(false, read.isConsumeBroadcastEnable(), "broadcast");
            Scenario.equal(1, read.getRetryQueueNums(), "retry queues");
        });
        add("createAndUpdateSubscriptionGroupConfigList", s -> {
            SubscriptionGroupConfig one = new SubscriptionGroupConfig();
            one.setGroupName(s.unique + "1");
            SubscriptionGroupConfig two = new SubscriptionGroupConfig();
            two.setGroupName(s.unique + "2");
            two.setConsumeEnable(false);
            admin.createAndUpdateSubscriptionGroupConfigList(world.address, List.of(one, two));
            Scenario.equal(false, admin.examineSubscriptionGroupConfig(world.address, s.unique + "2").isConsumeEnable(),
                "second");
        });
        add("examineSubscriptionGroupConfig", s -> Scenario.equal(16,
            admin.examineSubscriptionGroupConfig(world.address, world.online).getRetryMaxTimes(), "retries"));
        add("getAllSubscriptionGroup", s -> Scenario.check(admin.getAllSubscriptionGroup(world.address, MILLIS)
            .getSubscriptionGroupTable().containsKey(world.offline), "the group is missing"));
        add("getUserSubscriptionGroup", s -> {
            Set<String> names = admin.getUserSubscriptionGroup(world.address, MILLIS).getSubscriptionGroupTable().keySet();
            Scenario.check(names.contains(world.online) && !names.contains("TOOLS_CONSUMER"), "" + names);
        });
        add("deleteSubscriptionGroup", s -> {
            SubscriptionGroupConfig config = new SubscriptionGroupConfig();
            config.setGroupName(s.unique);
            admin.createAndUpdateSubscriptionGroupConfig(world.address, config);
            admin.deleteSubscriptionGroup(world.address, s.unique, true);
            Scenario.check(!admin.getAllSubscriptionGroup(world.address, MILLIS).getSubscriptionGroupTable()
                .containsKey(s.unique), "still there");
        });
        add("queryTopicConsumeByWho", s -> {
            GroupList list = admin.queryTopicConsumeByWho(world.topic);
            Scenario.check(list.getGroupList().containsAll(Set.of(world.online, world.offline)),
                "" + list.getGroupList());
        });
        add("queryTopicsByConsumer", s -> {
            TopicList list = admin.queryTopicsByConsumer(world.online);
            Scenario.check(list.getTopicList().contains(world.topic), "" + list.getTopicList());
        });
        add("queryTopicsByConsumerConcurrent", s -> {
            AdminToolResult<TopicList> result = admin.queryTopicsByConsumerConcurrent(world.online);
            Scenario.check(result.isSuccess() && result.getData().getTopicList().contains(world.topic),
                result.getErrorMsg() + result.getData());
        });
        add("querySubscription", s -> {
            SubscriptionData data = admin.querySubscription(world.online, world.topic);
            Scenario.equal("TagA", data.getSubString(), "subscription");
        });
        add("queryConsumeTimeSpan", s -> {
            List<QueueTimeSpan> spans = admin.queryConsumeTimeSpan(world.topic, world.online);
            Scenario.equal(2, spans.size(), "queues");
            Scenario.equal(0L, spans.get(0).getDelayTime(), "delay");
            Scenario.check(spans.get(0).getMinTimeStamp() > 0, "min " + spans.get(0).getMinTimeStamp());
        });
        add("queryConsumeTimeSpanConcurrent", s -> {
            AdminToolResult<List<QueueTimeSpan>> result =
                admin.queryConsumeTimeSpanConcurrent(world.topic, world.online);
            Scenario.check(result.isSuccess(), result.getErrorMsg());
            Scenario.equal(2, result.getData().size(), "queues");
        });
        add("updateAndGetGroupReadForbidden", s -> {
            List<MessageExt> seen = consuming(s);
            Scenario.until(60, () -> seen.size() >= 10, () -> "seen " + seen.size());
            Scenario.equal(false, admin.updateAndGetGroupReadForbidden(world.address, s.unique, world.topic, false)
                .getReadable(), "readable");
            // Without a subscription of its own, as push consumers pull: RocketMQ looks at no other pulls.
            Scenario.equal(16, pull(s.unique, 0, world.topic, 0).getCode(), "a pull");
            Scenario.equal(true, admin.updateAndGetGroupReadForbidden(world.address, s.unique, world.topic, true)
                .getReadable(), "readable again");
            Scenario.equal(0, pull(s.unique, 0, world.topic, 0).getCode(), "a pull, again");
        });
        for (MessageRequestMode mode : MessageRequestMode.values()) {
            add("setMessageRequestMode" + (mode == MessageRequestMode.POP ? " POP" : ""), s -> {
                Scenario.check(!modes().contains(s.unique), "set already");
                admin.setMessageRequestMode(world.address, world.topic, s.unique, mode, 8, MILLIS);
                String set = modes().replaceAll(".*\\{([^{}]*\"consumerGroup\":\"" + s.unique + "\"[^{}]*)\\}.*", "$1");
                Scenario.check(set.contains("\"mode\":\"" + mode + "\"") && set.contains(world.topic), set);
            });
        }
    }

    /** What is kept of modes: the tools do not ask for it. */
    static String modes() throws Exception {
        RemotingCommand answer = harness.operator().getMQClientAPIImpl().getRemotingClient().invokeSync(world.address,
            RemotingCommand.createRequestCommand(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, null), MILLIS);
        Scenario.equal(0, answer.getCode(), "code");
        return Scenario.text(answer.getBody());
    }

    static void offsets() {
        add("maxOffset, minOffset", s -> {
            Scenario.equal(5L, admin.maxOffset(world.queue(0)), "max");
            Scenario.equal(0L, admin.minOffset(world.queue(0)), "min");
        });
        add("searchOffset", s -> {
            Scenario.equal(0L, admin.searchOffset(world.queue(0), 1_000), "long ago");
            Scenario.equal(5L, admin.searchOffset(world.queue(0), System.currentTimeMillis() + 9_999), "to come");
        });
        add("searchLowerBoundaryOffset", s -> Scenario.equal(5L,
            admin.searchLowerBoundaryOffset(world.queue(0), System.currentTimeMillis() + 9_999), "to come"));
        add("searchUpperBoundaryOffset", s -> Scenario.equal(4L,
            admin.searchUpperBoundaryOffset(world.queue(0), System.currentTimeMillis() + 9_999), "to come"));
        add("earliestMsgStoreTime", s -> Scenario.check(
            admin.earliestMsgStoreTime(world.queue(0)) > System.currentTimeMillis() - 400_000, "too old"));
        add("examineConsumeStats", s -> {
            ConsumeStats stats = admin.examineConsumeStats(world.online);
            Scenario.equal(0L, stats.computeTotalDiff(), "lag");
            Scenario.equal(5L, stats.getOffsetTable().get(world.queue(0)).getConsumerOffset(), "offset");
            Scenario.equal(5L, stats.getOffsetTable().get(world.queue(0)).getBrokerOffset(), "end");
            Scenario.check(stats.getOffsetTable().get(world.queue(0)).getLastTimestamp() > 0, "no time");
        });
        add("examineConsumeStats of a group that is gone", s -> Scenario.equal(5L,
            admin.examineConsumeStats(world.offline, world.topic).getOffsetTable().get(world.queue(1)).getConsumerOffset(),
            "offset"));
        add("examineConsumeStatsConcurrent", s -> {
            AdminToolResult<ConsumeStats> result = admin.examineConsumeStatsConcurrent(world.online, world.topic);
            Scenario.check(result.isSuccess(), result.getErrorMsg());
            Scenario.equal(2, result.getData().getOffsetTable().size(), "queues");
        });
        add("fetchConsumeStatsInBroker", s -> {
            ConsumeStatsList list = admin.fetchConsumeStatsInBroker(world.address, false, MILLIS);
            Scenario.check(list.getConsumeStatsList().stream().anyMatch(one -> one.containsKey(world.online)),
                "the group is missing");
        });
        add("updateConsumeOffset", s -> {
            withGroup(s);
            admin.updateConsumeOffset(world.address, s.unique, world.queue(0), 2);
            Scenario.equal(2L, offset(s.unique), "offset");
        });
        add("cloneGroupOffset", s -> {
            withGroup(s);
            harness.makeTopic(harness.operator(), "%RETRY%" + s.unique, 1, 6);
            admin.cloneGroupOffset(world.offline, s.unique, world.topic, true);
            Scenario.equal(5L, offset(s.unique), "offset");
        });
        add("resetOffsetByTimestamp", s -> {
            withOffset(s, 5);
            Map<MessageQueue, Long> reset = admin.resetOffsetByTimestamp(world.topic, s.unique, 1_000, true);
            Scenario.equal(0L, reset.get(world.queue(0)), "reset");
            Scenario.equal(0L, offset(s.unique), "offset");
        });
        add("resetOffsetByTimestamp of a consumer that runs", s -> {
            List<MessageExt> seen = consuming(s);
            Scenario.until(60, () -> seen.size() >= 10, () -> "seen " + seen.size());
            admin.resetOffsetByTimestamp(world.topic, s.unique, 1_000, true);
            Scenario.until(30, () -> seen.size() >= 20, () -> "seen again " + (seen.size() - 10));
        });
        add("resetOffsetByTimestampOld", s -> {
            withOffset(s, 5);
            List<RollbackStats> stats = admin.resetOffsetByTimestampOld(s.unique, world.topic, 1_000, true);
            Scenario.equal(2, stats.size(), "queues");
            Scenario.equal(0L, offset(s.unique), "offset");
        });
        add("resetOffsetNew", s -> {
            withOffset(s, 5);
            admin.resetOffsetNew(s.unique, world.topic, 1_000);
            Scenario.equal(0L, offset(s.unique), "offset");
        });
        add("resetOffsetNewConcurrent", s -> {
            withOffset(s, 5);
            Scenario.check(admin.resetOffsetNewConcurrent(s.unique, world.topic, 1_000).isSuccess(), "failed");
            Scenario.equal(0L, offset(s.unique), "offset");
        });
        add("resetOffsetByQueueId", s -> {
            withOffset(s, 5);
            admin.resetOffsetByQueueId(world.address, s.unique, world.topic, 0, 3);
            Scenario.equal(3L, offset(s.unique), "offset");
        });
        addAlone("getConsumeStatus", s -> {
            Map<String, Map<MessageQueue, Long>> status = admin.getConsumeStatus(world.topic, world.online, "");
            Scenario.equal(5L, status.get(world.clientId()).get(world.queue(0)), "offset");
        });
    }

    /** Starts a consumer of the world's topic in a group of the scenario's; what it has seen. */
    static List<MessageExt> consuming(Scenario s) throws Exception {
        List<MessageExt> seen = java.util.Collections.synchronizedList(new java.util.ArrayList<>());
        var consumer = new org.apache.rocketmq.client.consumer.DefaultMQPushConsumer(s.unique, Keys.consumer());
        consumer.setNamesrvAddr(harness.nameServers);
        consumer.setInstanceName(s.unique);
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(world.topic, "*");
        consumer.registerMessageListener(
            (org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently) (messages, context) -> {
                seen.addAll(messages);
                return org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        s.closeLater(consumer::shutdown);
        consumer.start();
        return seen;
    }

    static void withGroup(Scenario s) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(s.unique);
        admin.createAndUpdateSubscriptionGroupConfig(world.address, config);
    }

    static void withOffset(Scenario s, long offset) throws Exception {
        withGroup(s);
        harness.makeTopic(harness.operator(), "%RETRY%" + s.unique, 1, 6);
        for (int queue = 0; queue < 2; queue++) {
            admin.updateConsumeOffset(world.address, s.unique, world.queue(queue), offset);
        }
    }

    static long offset(String group) throws Exception {
        return admin.examineConsumeStats(world.address, group, world.topic, MILLIS).getOffsetTable().get(world.queue(0))
            .getConsumerOffset();
    }

    static void clients() {
        add("examineConsumerConnectionInfo", s -> {
            ConsumerConnection info = admin.examineConsumerConnectionInfo(world.online);
            Scenario.equal(Set.of(world.clientId()), info.getConnectionSet().stream()
                .map(one -> one.getClientId()).collect(Collectors.toSet()), "clients");
            Scenario.equal("CONSUME_PASSIVELY", info.getConsumeType().name(), "type");
            Scenario.equal("CLUSTERING", info.getMessageModel().name(), "model");
            Scenario.equal("CONSUME_FROM_FIRST_OFFSET", info.getConsumeFromWhere().name(), "from where");
            Scenario.equal("TagA", info.getSubscriptionTable().get(world.topic).getSubString(), "subscription");
            Scenario.equal(MQVersion.CURRENT_VERSION, info.computeMinVersion(), "version");
        });
        add("examineConsumerConnectionInfo of a group that is gone", s ->
            refused(206, () -> admin.examineConsumerConnectionInfo(world.offline, world.address)));
        add("examineProducerConnectionInfo", s -> {
            ProducerConnection info = admin.examineProducerConnectionInfo(world.producers, world.topic);
            Scenario.equal(1, info.getConnectionSet().size(), "producers");
        });
        add("getAllProducerInfo", s -> Scenario.check(
            admin.getAllProducerInfo(world.address).getData().containsKey(world.producers), "the group is missing"));
        addAlone("getConsumerRunningInfo", s -> {
            ConsumerRunningInfo info = admin.getConsumerRunningInfo(world.online, world.clientId(), false);
            Scenario.check(info.getMqTable().containsKey(world.queue(0)), "" + info.getMqTable().keySet());
        });
        addAlone("getConsumerRunningInfo with stacks", s -> {
            ConsumerRunningInfo info = admin.getConsumerRunningInfo(world.online, world.clientId(), true);
            Scenario.check(info.getJstack() != null && info.getJstack().contains("TID"), "no stacks");
        });
        add("getConsumerRunningInfo of no client", s ->
            refused(1, () -> admin.getConsumerRunningInfo(world.online, "nobody", false)));
        addAlone("consumeMessageDirectly", s -> {
            ConsumeMessageDirectlyResult result = admin.consumeMessageDirectly(world.online, world.clientId(), world.topic,
                world.sent.get(0).getOffsetMsgId());
            Scenario.equal(CMResult.CR_SUCCESS, result.getConsumeResult(), "result");
        });
    }

    static void messages() {
        add("viewMessage by offset id", s -> Scenario.equal("body3", Scenario.text(
            admin.viewMessage(world.topic, world.sent.get(3).getOffsetMsgId()).getBody()), "body"));
        add("viewMessage by unique key", s -> Scenario.equal("body3", Scenario.text(
            admin.viewMessage(world.topic, world.sent.get(3).getMsgId()).getBody()), "body"));
        add("queryMessage", s -> Scenario.equal(1, admin.queryMessage(world.topic, "key4", 8, 0, Long.MAX_VALUE)
            .getMessageList().size(), "messages"));
        add("queryMessage of a cluster", s -> Scenario.equal("body3", Scenario.text(
            admin.queryMessage(harness.cluster, world.topic, world.sent.get(3).getOffsetMsgId()).getBody()), "body"));
        add("queryMessageByUniqKey", s -> Scenario.equal(1, admin.queryMessageByUniqKey(harness.cluster, world.topic,
            world.sent.get(5).getMsgId(), 8, 0, Long.MAX_VALUE).getMessageList().size(), "messages"));
        add("messageTrackDetail", s -> {
            MessageExt message = admin.viewMessage(world.topic, world.sent.get(0).getOffsetMsgId());
            Map<String, String> tracks = admin.messageTrackDetail(message).stream().collect(Collectors.toMap(
                MessageTrack::getConsumerGroup, track -> String.valueOf(track.getTrackType()), (one, two) -> one));
            Scenario.equal("CONSUMED", tracks.get(world.online), "online");
            Scenario.equal("NOT_ONLINE", tracks.get(world.offline), "offline");
        });
        add("messageTrackDetailConcurrent", s -> {
            MessageExt message = admin.viewMessage(world.topic, world.sent.get(0).getOffsetMsgId());
            Scenario.check(admin.messageTrackDetailConcurrent(message).stream()
                .anyMatch(track -> track.getConsumerGroup().equals(world.online)
                    && String.valueOf(track.getTrackType()).equals("CONSUMED")), "the group has not consumed it");
        });
        add("queryConsumeQueue", s -> {
            QueryConsumeQueueResponseBody body =
                admin.queryConsumeQueue(world.address, world.topic, 0, 1, 3, world.online);
            Scenario.equal(3, body.getQueueData().size(), "units");
            Scenario.equal(5L, body.getMaxQueueIndex(), "max");
            Scenario.equal("TagA".hashCode() + 0L, body.getQueueData().get(0).getTagsCode(), "tags code");
        });
        add("resumeCheckHalfMessage", s -> {
            oldHalf(s);
            List<MessageExt> first = givenUp(s, 1);
            String msgId = MessageDecoder.createMessageId(first.get(0).getStoreHost(), first.get(0).getCommitLogOffset());
            Scenario.check(admin.resumeCheckHalfMessage(world.topic, msgId), "not resumed");
            // It is as old as it was, so the next check gives it up again: it was a half in between.
            List<MessageExt> again = givenUp(s, 2);
            Scenario.equal("half", Scenario.text(again.get(1).getBody()), "body");
            Scenario.equal(world.topic, again.get(1).getProperty("REAL_TOPIC"), "topic");
        });
        add("resumeCheckHalfMessage of what nobody gave up", s -> Scenario.check(
            admin.resumeCheckHalfMessage(world.topic, world.sent.get(0).getOffsetMsgId()), "not resumed"));
    }

    /** A half whose client's clock says that it is too old to be asked about: the first check gives it up. */
    static void oldHalf(Scenario s) throws Exception {
        Message message = new Message(world.topic, "A", s.unique, Scenario.bytes("half"));
        MessageClientIDSetter.setUniqID(message);
        MessageAccessor.putProperty(message, "TRAN_MSG", "true");
        MessageAccessor.putProperty(message, "PGROUP", "P_" + s.unique);
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup("P_" + s.unique);
        header.setTopic(world.topic);
        header.setDefaultTopic("TBW102");
        header.setDefaultTopicQueueNums(4);
        header.setQueueId(0);
        header.setSysFlag(MessageSysFlag.TRANSACTION_PREPARED_TYPE);
        header.setBornTimestamp(System.currentTimeMillis() - 200L * 3_600_000);
        header.setFlag(0);
        header.setProperties(MessageDecoder.messageProperties2String(message.getProperties()));
        header.setReconsumeTimes(0);
        header.setUnitMode(false);
        header.setBatch(false);
        SendResult result = harness.instance().getMQClientAPIImpl().sendMessage(world.address, harness.broker, message,
            header, MILLIS, CommunicationMode.SYNC, null, null);
        Scenario.equal(SendStatus.SEND_OK, result.getSendStatus(), "status");
    }

    /** What was given up of a scenario, once there is so much. */
    static List<MessageExt> givenUp(Scenario s, int count) throws Exception {
        List<MessageExt> found = new java.util.ArrayList<>();
        Scenario.until(40, () -> {
            try {
                found.clear();
                long end = admin.maxOffset(new MessageQueue("TRANS_CHECK_MAX_TIME_TOPIC", harness.broker, 0));
                for (long offset = 0; offset < end; offset++) {
                    found.addAll(pulled("TRANS_CHECK_MAX_TIME_TOPIC", offset));
                }
                found.removeIf(one -> !s.unique.equals(one.getKeys()));
                return found.size() >= count;
            } catch (Exception error) {
                return false;
            }
        }, () -> found.size() + " were given up");
        return found;
    }

    static List<MessageExt> pulled(String topic, long offset) throws Exception {
        RemotingCommand answer = pull("TOOLS_CONSUMER", 4, topic, offset);
        Scenario.equal(0, answer.getCode(), "code");
        return MessageDecoder.decodes(java.nio.ByteBuffer.wrap(answer.getBody()));
    }

    /** What a broker answers to a group that pulls a message of queue 0. */
    static RemotingCommand pull(String group, int sysFlag, String topic, long offset) throws Exception {
        PullMessageRequestHeader header = new PullMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(0);
        header.setQueueOffset(offset);
        header.setMaxMsgNums(1);
        header.setSysFlag(sysFlag);
        header.setCommitOffset(0L);
        header.setSuspendTimeoutMillis(0L);
        header.setSubscription("*");
        header.setSubVersion(0L);
        header.setExpressionType("TAG");
        return harness.operator().getMQClientAPIImpl().getRemotingClient().invokeSync(world.address,
            RemotingCommand.createRequestCommand(RequestCode.PULL_MESSAGE, header), MILLIS);
    }

    static void brokers() {
        add("fetchBrokerRuntimeStats", s -> {
            KVTable table = admin.fetchBrokerRuntimeStats(world.address);
            for (String key : List.of("brokerVersionDesc", "putTps", "getTransferredTps", "sendThreadPoolQueueSize",
                "pullThreadPoolQueueSize", "commitLogDiskRatio", "earliestMessageTimeStamp", "msgPutTotalTodayNow",
                "msgGetTotalTodayNow", "bootTimestamp", "runtime", "commitLogMaxOffset", "dispatchBehindBytes",
                "brokerActive", "putMessageTimesTotal", "putMessageDistributeTime")) {
                Scenario.check(table.getTable().containsKey(key), "no " + key);
            }
            Scenario.check(Long.parseLong(table.getTable().get("msgPutTotalTodayNow")) >= 10, "too few messages");
        });
        add("viewBrokerStatsData", s -> {
            BrokerStatsData data = admin.viewBrokerStatsData(world.address, "TOPIC_PUT_NUMS", world.topic);
            Scenario.check(data.getStatsDay() != null && data.getStatsMinute() != null, "no data");
        });
        add("viewBrokerStatsData of a group", s -> {
            BrokerStatsData data = admin.viewBrokerStatsData(world.address, "GROUP_GET_NUMS",
                world.topic + "@" + world.online);
            Scenario.check(data.getStatsDay() != null && data.getStatsMinute() != null, "no data");
        });
        add("viewBrokerStatsData of none", s ->
            refused(1, () -> admin.viewBrokerStatsData(world.address, "TOPIC_PUT_NUMS", s.unique)));
        add("getBrokerConfig", s -> {
            Properties config = admin.getBrokerConfig(world.address);
            Scenario.equal(harness.broker, config.getProperty("brokerName"), "name");
            Scenario.equal(harness.cluster, config.getProperty("brokerClusterName"), "cluster");
            for (String key : List.of("brokerId", "listenPort", "autoCreateTopicEnable", "flushDiskType", "fileReservedTime",
                "deleteWhen", "brokerRole", "maxMessageSize", "messageDelayLevel")) {
                Scenario.check(config.containsKey(key), "no " + key);
            }
        });
        add("updateBrokerConfig", s -> {
            String before = admin.getBrokerConfig(world.address).getProperty("fileReservedTime");
            String after = Integer.toString(Integer.parseInt(before) + 1);
            Properties change = new Properties();
            change.setProperty("fileReservedTime", after);
            admin.updateBrokerConfig(world.address, change);
            Scenario.equal(after, admin.getBrokerConfig(world.address).getProperty("fileReservedTime"), "value");
        });
        add("updateBrokerConfig of what may not be", s -> {
            Properties change = new Properties();
            change.setProperty("brokerConfigPath", "/nowhere");
            refused(16, () -> admin.updateBrokerConfig(world.address, change));
        });
        add("getBrokerHAStatus", s -> {
            HARuntimeInfo info = admin.getBrokerHAStatus(world.address);
            Scenario.check(info.isMaster() && info.getMasterCommitLogMaxOffset() > 0, "master " + info.isMaster());
        });
        add("cleanExpiredConsumerQueue", s -> Scenario.check(admin.cleanExpiredConsumerQueue(harness.cluster), "false"));
        add("cleanExpiredConsumerQueueByAddr", s ->
            Scenario.check(admin.cleanExpiredConsumerQueueByAddr(world.address), "false"));
        add("deleteExpiredCommitLog", s -> Scenario.check(admin.deleteExpiredCommitLog(harness.cluster), "false"));
        add("deleteExpiredCommitLogByAddr", s ->
            Scenario.check(admin.deleteExpiredCommitLogByAddr(world.address), "false"));
        add("cleanUnusedTopic", s -> Scenario.check(admin.cleanUnusedTopic(harness.cluster), "false"));
        add("cleanUnusedTopicByAddr", s -> Scenario.check(admin.cleanUnusedTopicByAddr(world.address), "false"));
        add("getColdDataFlowCtrInfo", s ->
            Scenario.check(admin.getColdDataFlowCtrInfo(world.address) != null, "nothing"));
        add("resetMasterFlushOffset", s -> admin.resetMasterFlushOffset(world.address, 0));
    }

    static void nameServers() {
        add("examineBrokerClusterInfo", s -> {
            ClusterInfo info = admin.examineBrokerClusterInfo();
            Scenario.equal(Set.of(harness.broker), info.getClusterAddrTable().get(harness.cluster), "brokers");
            Scenario.equal(world.address, info.getBrokerAddrTable().get(harness.broker).getBrokerAddrs().get(0L), "master");
        });
        add("getNameServerAddressList", s -> Scenario.equal(Set.of(harness.nameServers.split(";")),
            Set.copyOf(admin.getNameServerAddressList()), "addresses"));
        add("putKVConfig, getKVConfig", s -> {
            admin.createAndUpdateKvConfig("NS_" + s.unique, "k", "v 1");
            Scenario.equal("v 1", admin.getKVConfig("NS_" + s.unique, "k"), "value");
        });
        add("getKVConfig of none", s -> refused(22, () -> admin.getKVConfig("NS_" + s.unique, "none")));
        add("getKVListByNamespace", s -> {
            admin.createAndUpdateKvConfig("NS_" + s.unique, "a", "1");
            admin.createAndUpdateKvConfig("NS_" + s.unique, "b", "2");
            Scenario.equal("{a=1, b=2}", new java.util.TreeMap<>(admin.getKVListByNamespace("NS_" + s.unique).getTable())
                .toString(), "values");
        });
        add("deleteKvConfig", s -> {
            admin.createAndUpdateKvConfig("NS_" + s.unique, "k", "v");
            admin.deleteKvConfig("NS_" + s.unique, "k");
            refused(22, () -> admin.getKVConfig("NS_" + s.unique, "k"));
        });
        add("getNameServerConfig", s -> {
            String one = harness.nameServers.split(";")[0];
            Properties config = admin.getNameServerConfig(List.of(one)).get(one);
            Scenario.equal("false", config.getProperty("orderMessageEnable"), "orderMessageEnable");
        });
        add("updateNameServerConfig", s -> {
            List<String> servers = List.of(harness.nameServers.split(";"));
            for (String value : List.of("true", "false")) {
                Properties change = new Properties();
                change.setProperty("clusterTest", value);
                admin.updateNameServerConfig(change, servers);
                Scenario.equal(value, admin.getNameServerConfig(servers).get(servers.get(0)).getProperty("clusterTest"),
                    "value");
            }
        });
        add("updateNameServerConfig of what may not be", s -> {
            Properties change = new Properties();
            change.setProperty("kvConfigPath", "/nowhere");
            refused(16, () -> admin.updateNameServerConfig(change, List.of(harness.nameServers.split(";")[0])));
        });
        // Last, because producers find no queue meanwhile.
        add("wipeWritePermOfBroker, addWritePermOfBroker", s -> {
            for (String server : harness.nameServers.split(";")) {
                Scenario.check(admin.wipeWritePermOfBroker(server, harness.broker) > 5, "few wiped");
                Scenario.check(admin.addWritePermOfBroker(server, harness.broker) > 5, "few added");
            }
        });
    }

    interface Call {
        void run() throws Exception;
    }

    static void refused(int code, Call call) throws Exception {
        try {
            call.run();
        } catch (MQBrokerException error) {
            Scenario.equal(code, error.getResponseCode(), "code (" + error.getErrorMessage() + ")");
            return;
        } catch (MQClientException error) {
            Scenario.equal(code, error.getResponseCode(), "code (" + error.getErrorMessage() + ")");
            return;
        }
        throw new AssertionError("was not refused");
    }
}
