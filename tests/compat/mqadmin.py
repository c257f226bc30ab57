"""Commands of mqadmin 5.3.3, and how their output is compared with what RocketMQ answers.

Numbers, times, addresses, ids and names that are made up differ from run to run: lines are compared
without them, each once, in whatever order they came.
"""

import re
from typing import Final, Literal

import msgspec

Compared = Literal["lines", "columns", "keys", "not"]
OUTPUT_CHARACTERS_MAX: Final = 400
LINES_TOLD_MAX: Final = 3


# Commands that see what the others have done, or that undo it.
LANES: Final = {
    name: lane
    for lane, names in {
        "topics": "updateTopic updateTopicPerm updateTopicList deleteTopic topicRoute"
        " updateOrderConf",
        "groups": "updateSubGroup updateSubGroupList getConsumerConfig setConsumeMode"
        " deleteSubGroup",
        # Whoever sees how far a group is, comes before those that move it.
        "offsets": "consumerProgress brokerConsumeStats resetOffsetByTime skipAccumulatedMessage"
        " cloneGroupOffset",
        # One at a time asks a client; see AdminTable.java.
        # Whoever prints what there is, comes before those that send.
        "messages": "queryMsgById queryMsgByKey queryMsgByUniqueKey queryMsgByOffset printMsg"
        " printMsgByQueue sendMessage consumerStatus",
        "space": "updateKvConfig deleteKvConfig",
        "names": "getNamesrvConfig updateNamesrvConfig getBrokerConfig updateBrokerConfig",
        "users": "createUser updateUser deleteUser getUser listUser copyUser createAcl updateAcl"
        " deleteAcl getAcl listAcl copyAcl",
        # Nobody can send between these two.
        "last": "wipeWritePerm addWritePerm",
    }.items()
    for name in names.split()
}


class Command(msgspec.Struct, frozen=True):
    """One row: what is called, what its output must match, and how it is compared.

    lines: the same set of lines. columns: the same heads of columns, and as many fields in a row.
    keys: every key of a list of keys and values. not: only what it must match counts.
    `is_refused`: that is what the command is about, so the words of the exception count.
    `signs`: some do not, whatever keys they are given; who asks for users refuses them.
    """

    name: str
    words: str
    expects: tuple[str, ...] = ()
    compared: Compared = "lines"
    is_refused: bool = False
    signs: bool = True

    @property
    def lane(self) -> str:
        """Commands of one lane run one after the other."""
        return LANES.get(self.words.split()[0], self.words.split()[0])


def _command(words: str, *expects: str, compared: Compared = "lines") -> Command:
    return Command(words, words, expects, compared)


def _unsigned(words: str, *expects: str) -> Command:
    return Command(words, words, expects, signs=False)


def _then(words: str, what: str, *expects: str) -> Command:
    """The same command again, which sees what the one before it has done."""
    return Command(f"{words}, {what}", words, expects, "not")


def _refused(words: str, *expects: str) -> Command:
    return Command(words, words, expects, "not", is_refused=True)


def _refused_then(words: str, what: str, *expects: str) -> Command:
    return Command(f"{words}, {what}", words, expects, "not", is_refused=True)


COMMANDS: Final = (
    # Topics.
    _command("updateTopic -c {cluster} -t {new}a -r 2 -w 2 -p 6", "create topic to .* success"),
    _command("updateTopic -b {address} -t {new}b -r 3 -w 3", "create topic to .* success"),
    _command("updateTopic -b {address} -t {new}c -a +message.type=FIFO", r"message.type=FIFO"),
    _command("updateTopic -c {cluster} -t {new}d -o true", "create topic to .* success"),
    _command("updateTopicList -b {address} -f {topics_file}", "success"),
    _command("updateTopicPerm -c {cluster} -t {new}a -p 4", "update topic perm from 6 to 4 in"),
    _command("updateTopicPerm -b {address} -t {new}a -p 6", "update topic perm from 4 to 6 in"),
    _command("topicRoute -t {topic}", "brokerDatas", "queueDatas"),
    _command("topicRoute -t {topic} -l", "#ClusterName"),
    _refused("topicRoute -t {new}none", "No topic route info"),
    _command("topicStatus -t {topic}", "#Broker Name"),
    _command("topicStatus -t {topic} -c {cluster}", "#Broker Name"),
    _command("topicClusterList -t {topic}", "^DefaultCluster"),
    _command("topicList", "^World_U", "^TBW102", compared="not"),
    _command("topicList -c", "#Cluster Name", "World_U +Online_U", compared="columns"),
    _command("allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2", r'"10\.0\.0\.2":\[\{"brokerName"'),
    _command("updateOrderConf -t {topic} -m put -v {broker}:2", "success"),
    _command("updateOrderConf -t {topic} -m get", "orderConf=.broker"),
    _command("updateOrderConf -t {topic} -m delete", "success"),
    _refused_then("updateOrderConf -t {topic} -m get", "deleted", "CODE: 22 "),
    _command("deleteTopic -t {new}a -c {cluster}", "delete topic .* success"),
    _refused_then("topicRoute -t {new}a", "deleted", "No topic route info"),
    # Groups.
    _command("updateSubGroup -c {cluster} -g {new}a", "create subscription group to .* success"),
    _command("updateSubGroup -b {address} -g {new}a -r 3 -s false -d false", "retryMaxTimes=3"),
    _command("updateSubGroupList -b {address} -f {groups_file}", "success"),
    _command(
        "getConsumerConfig -g {new}a",
        r"^retryMaxTimes += +3 *$",
        r"^consumeEnable += +false *$",
        r"^consumeBroadcastEnable += +false *$",
    ),
    _command("setConsumeMode -b {address} -t {topic} -g {new}a -m PULL", "success"),
    _command("setConsumeMode -b {address} -t {topic} -g {new}a -m POP", "success"),
    _command(
        "deleteSubGroup -c {cluster} -g {new}a -r true", "delete subscription group .* success"
    ),
    # Who consumes, and how far.
    _command("consumerProgress", "#Group", "^Online_U 0 ", compared="columns"),
    _command("consumerProgress -g {online}", "#Topic", "Diff Total: 0"),
    _command("consumerProgress -g {online} -s true", "#Topic", r"World_U .* @ "),
    _command("consumerProgress -g {online} -t {topic}", "#Topic", "Diff Total: 0"),
    _command("consumerProgress -g {offline}", "#Topic", "^World_U .* D$"),
    _command("consumerConnection -g {online}", "#ClientId", "ConsumeType: CONSUME_PASSIVELY"),
    _refused("consumerConnection -g {offline}", "CODE: 206 +DESC: the consumer group.* not online"),
    _command("consumerStatus -g {online}", "#ClientId", "^0 CLIENT V0_0_0 ", compared="not"),
    _command("consumerStatus -g {online} -i {client}", "#Consumer Properties", compared="columns"),
    _command("producerConnection -g {producers} -t {topic}", "@world .*V5_[35]_"),
    _command("producer -b {address}", "Producers_U", compared="not"),
    # Offsets.
    _command("resetOffsetByTime -g {offline} -t {topic} -s 1000", r"^broker-a +1 +0 *$"),
    _then(
        "consumerProgress -g {offline}",
        "reset to the beginning",
        r"^World_\S+ +broker-a +0 +\d+ +0 ",
    ),
    _command("resetOffsetByTime -g {offline} -t {topic} -s now", r"^broker-a +1 +[5-9] *$"),
    _command(
        "resetOffsetByTime -g {offline} -t {topic} -s -1 -c {cluster} -b {address} -q 0 -o 2",
        "^reset consumer offset to 2",
    ),
    _then("consumerProgress -g {offline}", "one queue reset", r"^World_\S+ +broker-a +0 +\d+ +2 "),
    _command("skipAccumulatedMessage -g {offline} -t {topic}", r"^broker-a +0 +[5-9] *$"),
    _then("consumerProgress -g {offline}", "skipped", r"^World_\S+ +broker-a +0 +\d+ +[5-9] "),
    _command("cloneGroupOffset -s {offline} -d {online} -t {topic} -o false", "clone .* success"),
    # Messages.
    _command(
        "queryMsgById -t {topic} -i {offset_id}",
        "OffsetID:",
        "consumerGroup=Online_U, trackType=CONSUMED",
    ),
    _command("queryMsgById -t {topic} -i {offset_id} -g {online} -d {client}", "CR_SUCCESS"),
    # Source: QueryMsgByIdSubCommand, whose producer has no RPCHook.
    _unsigned("queryMsgById -t {topic} -i {offset_id} -s true", "prepare resend msg"),
    _command("queryMsgByKey -t {topic} -k key3", "#Message ID"),
    _command("queryMsgByKey -t {topic} -k key3 -b 1000 -e {now} -m 5", "#Message ID"),
    _refused("queryMsgByKey -t {topic} -k nokey", "query message by key finished, but no message"),
    _command("queryMsgByUniqueKey -t {topic} -i {unique_key}", "Keys:.*key1"),
    _command("queryMsgByOffset -t {topic} -b {broker} -i 0 -o 2", "OffsetID:"),
    _command("queryMsgTraceById -i {traced_id} -t {traces}", "#Type", "Pub"),
    _command("printMsg -t {topic} -d true", "BODY: body0"),
    _command("printMsg -t {topic} -s TagA", "MSGID:", compared="not"),
    _command("printMsgByQueue -t {topic} -a {broker} -i 0 -p true -d true", "BODY: body0"),
    _command("printMsgByQueue -t {topic} -a {broker} -i 0 -f true", "Tag: TagA"),
    _command("sendMessage -t {topic} -p hello -k k1 -c TagA", "#Broker Name", "SEND_OK"),
    _command("sendMessage -t {topic} -p hello -b {broker} -i 1", "SEND_OK"),
    _command("consumeMessage -t {topic} -c 3", "MSGID:", compared="not"),
    _command("consumeMessage -t {topic} -b {broker} -i 0 -o 1 -c 1", "MSGID:", compared="not"),
    _command("checkMsgSendRT -t {topic} -a 3 -s 100", "Avg RT"),
    _command("sendMsgStatus -b {broker} -s 128 -c 2", "rt=.*SEND_OK"),
    # Brokers.
    _command("clusterList", "#Cluster Name", "V5_3_3", compared="columns"),
    _command("clusterList -m", "#Cluster Name", compared="columns"),
    _command("brokerStatus -b {address}", "^brokerVersionDesc", compared="keys"),
    _command("brokerStatus -c {cluster}", "brokerVersionDesc", compared="not"),
    _command(
        "getBrokerConfig -b {address}",
        "^brokerName = broker-a",
        "^fileReservedTime",
        compared="not",
    ),
    _command("getBrokerConfig -c {cluster}", "brokerName = broker-a", compared="not"),
    _command("updateBrokerConfig -b {address} -k fileReservedTime -v 61", "success"),
    _then("getBrokerConfig -b {address}", "changed", r"^fileReservedTime += +61 *$"),
    _refused("updateBrokerConfig -b {address} -k brokerConfigPath -v /nowhere", "CODE: 16 "),
    _command("haStatus -b {address}", "#MasterAddr", compared="not"),
    _command("haStatus -c {cluster}", "#MasterAddr", compared="not"),
    _command(
        "brokerConsumeStats -b {address}",
        "#Topic",
        "World_U Online_U",
        "Diff Total",
        compared="columns",
    ),
    _command("statsAll -t {topic}", "#Topic", "World_U Online_U"),
    _command("statsAll -a", "#Topic", compared="columns"),
    _command("cleanExpiredCQ -b {address}", "success"),
    _command("cleanExpiredCQ -c {cluster}", "success"),
    _command("deleteExpiredCommitLog -b {address}", "success"),
    _command("cleanUnusedTopic -b {address}", "success"),
    _command("cleanUnusedTopic -c {cluster}", "success"),
    _command(
        "queryCq -t {topic} -q 0 -i 1 -c 3 -b {address} -g {online}",
        "Queue data",
        "Subscription data",
    ),
    _command("resetMasterFlushOffset -b {address} -o 0", "reset master flush offset"),
    _command("getColdDataFlowCtrInfo -b {address}", "globalColdReadThreshold", compared="not"),
    _command("setCommitLogReadAheadMode -b {address} -m 0", "success", compared="not"),
    # What is in the files that are written: see MqadminTable.java.
    _command(
        "exportMetadata -c {cluster} -f {directory}",
        "export .* success",
        r'"topicName":"World_\w+"',
        r'"groupName":"Offline_\w+"',
        compared="not",
    ),
    _command(
        "exportMetadata -b {address} -t -f {directory}",
        "export .* success",
        r'"topicName":"World_\w+"',
        r'"readQueueNums":2',
        compared="not",
    ),
    _command(
        "exportConfigs -c {cluster} -f {directory}",
        "export .* success",
        '"brokerName":"broker-a"',
        r'"fileReservedTime":"\d+"',
        compared="not",
    ),
    _command(
        "exportMetrics -c {cluster} -f {directory}",
        "export .* success",
        r'"evaluateReport":\{\s*"broker-a":\{',
        '"rocketmqVersion":"V5_3_3"',
        r'"clientInfo":\["JAVA%V5_',
        compared="not",
    ),
    # Name servers.
    _command("getNamesrvConfig", "orderMessageEnable += +false", compared="not"),
    _command("updateNamesrvConfig -k clusterTest -v true", "success"),
    _then("getNamesrvConfig", "changed", "^clusterTest += +true *$"),
    _command("updateKvConfig -s SPACE -k key -v value", "success"),
    _command("deleteKvConfig -s SPACE -k key", "success"),
    _command("wipeWritePerm -b {broker}", r"wipe write perm of broker.* OK, [1-9]"),
    _command("addWritePerm -b {broker}", r"add write perm of broker.* OK, [1-9]"),
)

_A, _B, _C, _NOBODY = "{new}-a", "{new}-b", "{new}-c", "{new}-nobody"
_SECRET: Final = "secret-of-somebody"
_ONE: Final = "-b {address}"
_EACH: Final = "-c {cluster}"

USER_COMMANDS: Final = (
    _command(f"createUser {_ONE} -u {_A} -p {_SECRET}", "create user to @ success"),
    _command(f"createUser {_EACH} -u {_B} -p {_SECRET} -t Super", "create user to @ success"),
    _command(f"createUser {_EACH} -u {_C} -p {_SECRET} -t Normal", "create user to @ success"),
    _refused(f"createUser {_ONE} -u {_A} -p {_SECRET}-too", "CODE: 16 +DESC: The user is existed"),
    _command(f"getUser {_ONE} -u {_A}", "^New_U-a SECRET Normal enable"),
    _command(f"getUser {_EACH} -u {_B}", "^New_U-b SECRET Super enable"),
    _command(f"getUser {_ONE} -u {_NOBODY}"),
    _command(f"updateUser {_ONE} -u {_A} -s disable", "update user to @ success"),
    _command(f"updateUser {_ONE} -u {_A} -p {_SECRET}-anew", "update user to @ success"),
    _command(f"updateUser {_EACH} -u {_B} -t Normal", "update user to @ success"),
    _refused(f"updateUser {_ONE} -u {_NOBODY} -s disable", "CODE: 16 +DESC: The user is not exist"),
    _command(
        f"listUser {_ONE} -f {{new}}", "New_U-a SECRET Normal disable", "New_U-b SECRET Normal"
    ),
    _command(f"listUser {_EACH}", "^New_U-c SECRET Normal enable", compared="columns"),
    _command("copyUser -f {address} -t {address} -u " + _C, "copy user of New_U-c .* success"),
    _command(
        f"createAcl {_ONE} -s User:{_A} -r Topic:T1,Group:g1 -a Pub,Sub -d Allow"
        " -i 127.0.0.0/8,10.0.0.1",
        "create acl to @ success",
    ),
    _command(
        f"createAcl {_EACH} -s User:{_B} -r Topic:pre* -a All -d Deny", "create acl to @ success"
    ),
    _refused(
        f"createAcl {_ONE} -s User:{_NOBODY} -r Topic:T1 -a Pub -d Allow",
        "CODE: 16 +DESC: The subject of User:.* is not exist",
    ),
    _refused(
        f"createAcl {_ONE} -s User:{_C} -r Topic:T1 -a Any -d Allow",
        "CODE: 16 +DESC: The actions can not be Any",
    ),
    _refused(
        f"createAcl {_ONE} -s User:{_C} -r Topic:T1 -a Pub -d Allow -i 127.0.0.*",
        "CODE: 16 +DESC: The source ip is invalid",
    ),
    _refused(
        f"createAcl {_ONE} -s User:{_C} -r Topic:T1 -a Pub -d Perhaps",
        "CODE: 16 +DESC: The decision is null or illegal",
    ),
    _command(f"getAcl {_ONE} -s User:{_A}", r"Topic:T\d .Pub, Sub", r"Group:g\d .* Allow"),
    _command(f"getAcl {_EACH} -s User:{_B}", "Topic:pre\\* .*All.* Deny"),
    _command(f"getAcl {_ONE} -s User:{_C}"),
    _command(
        f"updateAcl {_ONE} -s User:{_A} -r Topic:T1 -a All -d Deny", "update acl to @ success"
    ),
    _command(f"listAcl {_ONE} -s {{new}}", "Topic:T1 .*All.* Deny", "Topic:pre", "Group:g1"),
    _command(f"listAcl {_ONE} -s {_A} -r T1", "Topic:T1 .*All.* Deny"),
    _command(f"listAcl {_EACH}", "Topic:pre", compared="columns"),
    _command("copyAcl -f {address} -t {address} -s User:" + _A, "copy acl of User:.* success"),
    _command(f"deleteAcl {_ONE} -s User:{_A} -r Group:g1", "delete acl to @ success"),
    _command(f"getAcl {_ONE} -s User:{_A} -h", "Topic:T1 .*All.* Deny"),
    _command(f"deleteAcl {_ONE} -s User:{_A} -r Group:g1 -h", "delete acl to @ success"),
    _refused(f"deleteAcl {_ONE} -s User:{_C}", "CODE: 16 +DESC: The acl is not exist"),
    _command(f"deleteAcl {_EACH} -s User:{_B}", "delete acl to @ success"),
    _command(f"deleteUser {_ONE} -u {_A}", "delete user to @ success"),
    _command(f"deleteUser {_EACH} -u {_B}", "delete user to @ success"),
    _command(f"deleteUser {_ONE} -u {_NOBODY}", "delete user to @ success"),
    _command(f"listUser {_ONE} -f {{new}} -h", "New_U-c SECRET Normal enable"),
    _command(f"listAcl {_ONE} -s {{new}} -h"),
)
"""Those of users and of what they may, one after the other. What has `-h` has been asked before:
`-h` says nothing to them, and rows have names of their own."""

ALL_COMMANDS: Final = (*COMMANDS, *USER_COMMANDS)

_NORMALISED: Final = (
    # Answers of ours have stars.
    (r"secret-of-\S+|(?<!\S)\*{6}(?!\S)", "SECRET"),
    (r"(World|Online|Offline|Producers|Traces|Traced|New)_[a-z0-9]{2,5}(?=[a-dx]?\b)", r"\1_U"),
    (r"/tmp/\S+", "PATH"),
    (r"\d+\.\d+\.\d+\.\d+@\S+", "CLIENT"),
    (r"\d+\.\d+\.\d+\.\d+(:\d+)?", "@"),
    (r"\b[0-9A-F]{24,}", "X"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([,.:]\d+)?", "D"),
    (r"\b\d{17}\b", "D"),
    (r"-?\d+(\.\d+)?(E-?\d+)?%?", "0"),
    (r"\s+", " "),
    # How many brokers there are is not how a line looks.
    (r'(0[:=]"?@"?)(, ?\1)+', r"\1"),
    # Nor is it where 5.5 has each on a line of its own.
    (r'^( ?0:"@"),$', r"\1"),
)

# RocketMQ takes a topic that is consumed for a group that consumes it.
# A consumer says how far it is in its retries when its first pull there comes back: after 20 s.
_NOT_TOLD: Final = (
    "consumerGroup=World_U",
    "World_U World_U",
    "See https://rocketmq",
    "%RETRY%Online_U broker-a",
)


def shape_of(output: str) -> list[str]:
    """The lines of an output without what differs from run to run, each once, sorted."""
    lines = set()
    for line in output.replace("MessageTrack [", "\nMessageTrack [").splitlines():
        text = line
        for pattern, instead in _NORMALISED:
            text = re.sub(pattern, instead, text)
        if text.strip() and not any(words in text for words in _NOT_TOLD):
            lines.add(text.strip())
    return sorted(lines)


def problem_of(command: Command, output: str) -> str:
    """Say what an output lacks by itself; empty if it is as it must be."""
    shape = shape_of(output)
    if not command.is_refused and (
        trace := re.search(r"^[\w.]+\.\w+Exception.*$", output, re.MULTILINE)
    ):
        return f"it prints {trace[0][:OUTPUT_CHARACTERS_MAX]}"
    text = "\n".join(shape)
    for expected in command.expects:
        # What is expected is written with the numbers it has, or as it is normalised.
        if not re.search(expected, text, re.MULTILINE) and not re.search(
            expected, output, re.MULTILINE
        ):
            return f"no {expected!r} in {output.strip()[:OUTPUT_CHARACTERS_MAX]!r}"
    return ""


def difference_of(command: Command, real: list[str], ours: list[str]) -> str:
    """Say where our shape differs from RocketMQ's; empty if it does not."""
    if command.compared == "not":
        return ""
    if command.compared == "keys":
        missing = sorted(_keys_of(real) - _keys_of(ours))
        return f"keys that are missing: {', '.join(missing)}" if missing else ""
    expected, seen = set(real), set(ours)
    if command.compared == "columns":
        expected, seen = _columns_of(real), _columns_of(ours)
    parts = []
    if missing := sorted(expected - seen):
        parts.append(f"not printed: {some_of(missing)}")
    if extra := sorted(seen - expected):
        parts.append(f"printed instead: {some_of(extra)}")
    return "; ".join(parts)


def some_of(lines: list[str]) -> str:
    """The first of some lines, in one."""
    return " | ".join(lines[:LINES_TOLD_MAX]) + (" ..." if len(lines) > LINES_TOLD_MAX else "")


def _keys_of(shape: list[str]) -> set[str]:
    keys = {line.split(" ")[0].rstrip(":=") for line in shape}
    return {key for key in keys if "PATH" not in key}


def _columns_of(shape: list[str]) -> set[str]:
    return {line for line in shape if line.startswith("#")}
