"""Requests of operators about groups, clients and name servers: valid ones, to be broken."""

from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeAlias

from tandem.wire.request_code import RequestCode
from tests.fuzz import hostile

Request: TypeAlias = "tuple[int, Callable[[Random], dict[str, Any]], dict[str, Any] | bytes]"
"""A code, what makes its ext fields, and its body."""

_GROUP: Final = {
    "groupName": "g3",
    "consumeEnable": True,
    "retryQueueNums": 1,
    "retryMaxTimes": 3,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1, 2]}},
    "attributes": {"a": "b"},
}
_TOPIC: Final = {"topicName": "Fuzz2", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}

GROUPS: Final = ("g", "g2", "CID_RMQ_SYS_TRANS")


def _of_group(chance: Random) -> dict[str, Any]:
    group = chance.choice(GROUPS)
    return {
        "group": group,
        "groupName": chance.choice(("g3", "g4", group)),
        "consumerGroup": group,
        "producerGroup": "p",
        "topic": chance.choice(("Fuzz", "Fuzz2", "")),
        "queueId": str(chance.choice((-1, 0, 1, 99))),
        "offset": str(chance.choice((-1, 0, 1, 2**40))),
        "timestamp": str(chance.choice((-1, 0, 1_700_000_000_000))),
        "isForce": "true",
        "readable": chance.choice(("true", "false")),
        "cleanOffset": chance.choice(("true", "false")),
        "srcGroup": group,
        "destGroup": chance.choice(GROUPS),
        "offline": "true",
        "clientId": chance.choice(("c@1", "nobody")),
        "clientAddr": chance.choice(("", "c@1")),
        "jstackEnable": "true",
        "msgId": chance.choice(("", "7F00000100002A9F0000000000000000", hostile.text(chance))),
        "masterFlushOffset": "0",
    }


def _of_topic(chance: Random) -> dict[str, Any]:
    # Not the topics that the other requests are about: what is gone is asked for no more.
    return {"topic": chance.choice(("Fuzz2", "TBW102", "nope", "", "broker-a"))}


def _of_name_server(chance: Random) -> dict[str, Any]:
    return {
        "namespace": chance.choice(("n", "", "ORDER_TOPIC_CONFIG", "n" * 300)),
        "key": chance.choice(("k", "l", "", "k" * 300)),
        "value": chance.choice(("v", "", "v" * 5_000)),
        "topic": "nope",
        "cluster": "FuzzCluster",
        "clusterName": "FuzzCluster",
        "brokerName": chance.choice(("fuzz-a", "fuzz-b")),
        "brokerAddr": "10.9.9.1:1",
        "brokerId": "0",
    }


OF_CLIENTS: Final[tuple[Request, ...]] = (
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, _of_group, _GROUP),
    (
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        _of_group,
        {"groupConfigList": [_GROUP]},
    ),
    (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, _of_group, {"topicConfigList": [_TOPIC]}),
    (
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        _of_topic,
        {"topic": "T", "hostedQueues": {"0": [{"bname": "broker-a"}]}},
    ),
    (RequestCode.DELETE_TOPIC_IN_BROKER, _of_topic, b""),
    *(
        (code, _of_group, b"")
        for code in (
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            RequestCode.CLONE_GROUP_OFFSET,
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            RequestCode.RESET_MASTER_FLUSH_OFFSET,
        )
    ),
)

OF_NAME_SERVERS: Final[tuple[Request, ...]] = (
    (RequestCode.QUERY_DATA_VERSION, _of_name_server, {"counter": 1, "stateVersion": 0}),
    (RequestCode.UPDATE_NAMESRV_CONFIG, _of_name_server, b"listenPort=1\n"),
    *(
        (code, _of_name_server, b"")
        for code in (
            RequestCode.PUT_KV_CONFIG,
            RequestCode.GET_KV_CONFIG,
            RequestCode.DELETE_KV_CONFIG,
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            RequestCode.GET_TOPICS_BY_CLUSTER,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
            RequestCode.GET_UNIT_TOPIC_LIST,
            RequestCode.GET_BROKER_MEMBER_GROUP,
            RequestCode.BROKER_HEARTBEAT,
            RequestCode.GET_NAMESRV_CONFIG,
        )
    ),
)
