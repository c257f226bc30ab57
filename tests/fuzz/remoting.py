"""Requests on the client ports and at name servers: valid ones, and what may be done to them."""

import struct
from random import Random
from typing import Any, Final

import msgspec

from tandem.wire.message import Message, encode_batch_body
from tandem.wire.request_code import RequestCode
from tests.fuzz import hostile, operators, pops

TOPICS: Final = ("Fuzz", "Fuzz", "Fuzz", "Fuzz2", "TBW102", "%RETRY%g", "SCHEDULE_TOPIC_XXXX")
"""Few, because each that is made has files."""

GROUPS: Final = ("g", "g", "g2")

_HALF: Final = "TRAN_MSG\x01true\x02PGROUP\x01p\x02UNIQ_KEY\x01U\x02"

_HEAD: Final = struct.Struct(">II")
_FIXED: Final = struct.Struct(">hBhiii")

_BATCH: Final = encode_batch_body([Message("Fuzz", b"a"), Message("Fuzz", b"bb", keys="k")])

_SQL: Final = "a > 1 AND (b IN ('x', 'y') OR NOT c BETWEEN -1.5 AND 2L) OR KEYS CONTAINS 'k'"
_HEARTBEAT: Final = {
    "clientID": "c@1",
    "heartbeatFingerprint": 0,
    "producerDataSet": [{"groupName": "p"}],
    "consumerDataSet": [
        {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [
                {
                    "topic": "Fuzz",
                    "subString": "a || b",
                    "subVersion": 1,
                    "expressionType": "TAG",
                    "tagsSet": ["a", "b"],
                    "codeSet": [97, "98"],
                    "classFilterMode": False,
                },
                {"topic": "Other", "subString": _SQL, "subVersion": "1", "expressionType": "SQL92"},
            ],
        }
    ],
    "withoutSub": False,
}
_CHECK: Final = {
    "subscriptionData": {
        "topic": "Fuzz",
        "subString": _SQL,
        "subVersion": 1,
        "expressionType": "SQL92",
    }
}
_REGISTRATION: Final = {
    "filterServerList": [],
    "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1},
        "topicConfigTable": {
            "Fuzz": {
                "topicName": "Fuzz",
                "readQueueNums": 4,
                "writeQueueNums": 4,
                "perm": 6,
                "order": False,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "attributes": {},
            },
            "Fuzz3": {"topicName": "Fuzz3"},
        },
    },
}
_LOCKS: Final = {
    "clientId": "c",
    "consumerGroup": "g",
    "mqSet": [{"brokerName": "broker-a", "queueId": 0, "topic": "Fuzz"}],
    "onlyThisBroker": False,
}
_ORDER: Final = {"command": "promote", "node": "nobody", "accept_loss": False}

Fields = dict[str, Any]


def _send(chance: Random) -> Fields:
    return {
        "producerGroup": "p",
        "topic": chance.choice(TOPICS),
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "2",
        "queueId": str(chance.choice((-1, 0, 1))),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": chance.choice(("", "KEYS\x01k\x02", _HALF, hostile.text(chance))),
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }


_SHORT_NAMES: Final = dict(
    zip(
        (
            *(
                "producerGroup",
                "topic",
                "defaultTopic",
                "defaultTopicQueueNums",
                "queueId",
                "sysFlag",
            ),
            *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "batch"),
        ),
        "abcdefghijkm",
        strict=True,
    )
)


def _send_v2(chance: Random) -> Fields:
    return {_SHORT_NAMES[name]: each for name, each in _send(chance).items()}


def _send_back(chance: Random) -> Fields:
    return {
        "offset": str(chance.choice((0, 0, 100, -1, 1 << 62))),
        "group": chance.choice(GROUPS),
        "delayLevel": str(chance.choice((-1, 0, 3, 99))),
        "maxReconsumeTimes": str(chance.choice((-1, 0, 16))),
    }


def _end_transaction(chance: Random) -> Fields:
    return {
        "producerGroup": "p",
        "tranStateTableOffset": str(chance.choice((0, 0, 1, 2, -1, 1 << 62))),
        "commitLogOffset": str(chance.choice((0, 0, 100, 1_000, -1, 1 << 62))),
        "commitOrRollback": str(chance.choice((8, 8, 12, 0, 4))),
        "fromTransactionCheck": chance.choice(("false", "true")),
        "msgId": "U",
        "topic": "Fuzz",
    }


def _pull(chance: Random) -> Fields:
    return {
        "consumerGroup": chance.choice(GROUPS),
        "topic": chance.choice(TOPICS),
        "queueId": str(chance.choice((0, 0, 1))),
        "queueOffset": str(chance.choice((0, 1, 10**6))),
        "maxMsgNums": str(chance.choice((1, 32, 10**9))),
        "sysFlag": str(chance.choice((0, 1, 2, 4, 6, 7))),
        "commitOffset": "0",
        "suspendTimeoutMillis": "200",
        "subVersion": "0",
        "subscription": chance.choice(("*", "a || b", "", _SQL, "(" * 5_000)),
        "expressionType": chance.choice(("TAG", "SQL92")),
    }


def _queue(chance: Random) -> Fields:
    return {
        "consumerGroup": chance.choice(GROUPS),
        "topic": chance.choice(TOPICS),
        "queueId": "0",
        "commitOffset": "1",
        "timestamp": "1700000000000",
        "boundaryType": chance.choice(("LOWER", "UPPER")),
        "offset": str(chance.choice((0, 1, 100, 2**40))),
        "key": "k",
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(2**63 - 1),
        "setZeroIfNotFound": "true",
    }


def _clients(chance: Random) -> Fields:
    return {"clientID": "c@1", "consumerGroup": chance.choice(GROUPS), "producerGroup": "p"}


def _recall(chance: Random) -> Fields:
    handle = "djEgRnV6eiBhIDE3MDAwMDAwMDAwMDEgSzE="
    return {"topic": chance.choice(TOPICS), "recallHandle": handle, "producerGroup": "p"}


def _topic(chance: Random) -> Fields:
    return {
        "topic": chance.choice(("Fuzz", "Fuzz2")),
        "defaultTopic": "TBW102",
        "readQueueNums": "2",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }


def _broker(chance: Random) -> Fields:
    # Never a broker that exists: whoever may register may also replace one.
    return {
        "brokerName": chance.choice(("fuzz-a", "fuzz-b")),
        "brokerAddr": f"10.9.9.{chance.randrange(9)}:1",
        "clusterName": "FuzzCluster",
        "haServerAddr": "10.9.9.9:2",
        "brokerId": str(chance.choice((0, 0, 1, 2))),
        "compressed": "false",
        "bodyCrc32": "0",
        "heartbeatTimeoutMillis": str(chance.choice((1000, 5000))),
        "enableActingMaster": "false",
        "topic": "Fuzz",
    }


def _nothing(_: Random) -> Fields:
    return {}


def _log_range(chance: Random) -> Fields:
    start = chance.choice((0, 0, 1, 1 << 20, -1, 1 << 62))
    return {"start": str(start), "end": str(start + chance.choice((1, 64 << 10, 1 << 30, -1)))}


def _inspect(chance: Random) -> Fields:
    topic, group = chance.choice(TOPICS), chance.choice(GROUPS)
    return {
        "topic": topic,
        "consumerGroup": group,
        "group": group,
        "compareGroup": group,
        "filterGroups": "g2,g3",
        "topicList": chance.choice(("", "Fuzz;Fuzz2;")),
        "isOrder": "false",
        "queueId": "0",
        "index": str(chance.choice((0, 1, -1, 10**6))),
        "count": str(chance.choice((1, 32, -1, 10**9))),
        "statsName": chance.choice(("TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "BROKER_PUT_NUMS")),
        "statsKey": chance.choice((topic, f"{topic}@{group}")),
    }


_INSPECTING: Final = (
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    RequestCode.CLEAN_UNUSED_TOPIC,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
)
_ASSIGNMENT: Final = {
    "clientId": "c@1",
    "consumerGroup": "g",
    "messageModel": "CLUSTERING",
    "strategyName": "AVG",
    "topic": "Fuzz",
}
_MODE: Final = {"consumerGroup": "g", "mode": "PULL", "topic": "Fuzz", "popShareQueueNum": 0}

_CLIENT: Final[tuple[operators.Request, ...]] = (
    (RequestCode.SEND_MESSAGE, _send, b"hello"),
    (RequestCode.SEND_MESSAGE_V2, _send_v2, b"hello" * 20),
    (RequestCode.SEND_MESSAGE_V2, _send_v2, b""),
    (RequestCode.SEND_BATCH_MESSAGE, _send_v2, _BATCH),
    (RequestCode.SEND_REPLY_MESSAGE, _send, b"reply"),
    (RequestCode.SEND_REPLY_MESSAGE_V2, _send_v2, b"reply"),
    (RequestCode.RECALL_MESSAGE, _recall, b""),
    (RequestCode.PULL_MESSAGE, _pull, b""),
    (RequestCode.LITE_PULL_MESSAGE, _pull, b""),
    (RequestCode.QUERY_MESSAGE, _queue, b""),
    (RequestCode.QUERY_CONSUMER_OFFSET, _queue, b""),
    (RequestCode.UPDATE_CONSUMER_OFFSET, _queue, b""),
    (RequestCode.UPDATE_AND_CREATE_TOPIC, _topic, b""),
    (RequestCode.GET_ALL_TOPIC_CONFIG, _nothing, b""),
    (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, _queue, b""),
    (RequestCode.GET_MAX_OFFSET, _queue, b""),
    (RequestCode.GET_MIN_OFFSET, _queue, b""),
    (RequestCode.GET_EARLIEST_MSG_STORETIME, _queue, b""),
    (RequestCode.VIEW_MESSAGE_BY_ID, _queue, b""),
    (RequestCode.HEART_BEAT, _nothing, _HEARTBEAT),
    (RequestCode.UNREGISTER_CLIENT, _clients, b""),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, _clients, b""),
    (RequestCode.CONSUMER_SEND_MSG_BACK, _send_back, b""),
    (RequestCode.END_TRANSACTION, _end_transaction, b""),
    (RequestCode.CHECK_TRANSACTION_STATE, _end_transaction, b""),
    (RequestCode.LOCK_BATCH_MQ, _nothing, _LOCKS),
    (RequestCode.UNLOCK_BATCH_MQ, _nothing, _LOCKS),
    (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, _clients, b""),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, _nothing, b""),
    (RequestCode.CHECK_CLIENT_CONFIG, _nothing, _CHECK),
    (RequestCode.GET_BROKER_HA_STATUS, _nothing, b""),
    *((code, _inspect, b"") for code in _INSPECTING),
    (RequestCode.UPDATE_BROKER_CONFIG, _nothing, b"fileReservedTime=1\n"),
    (RequestCode.QUERY_ASSIGNMENT, _nothing, _ASSIGNMENT),
    (RequestCode.SET_MESSAGE_REQUEST_MODE, _nothing, _MODE),
    (RequestCode.SET_MESSAGE_REQUEST_MODE, _nothing, {**_MODE, "mode": "POP"}),
    (RequestCode.GET_BROKER_EPOCH_CACHE, _nothing, b""),
    *operators.OF_CLIENTS,
    *pops.OF_CLIENTS,
    (RequestCode.FENCED_STATUS, _nothing, b""),
    (RequestCode.FENCED_COMMAND, _nothing, _ORDER),
    (RequestCode.LOG_FINGERPRINTS, _log_range, b""),
    (RequestCode.LOG_BYTES, _log_range, b""),
    (RequestCode.LOG_DAMAGED, _log_range, b""),
    (9_999, _queue, b"x"),
)
_NAME_SERVER: Final[tuple[operators.Request, ...]] = (
    (RequestCode.REGISTER_BROKER, _broker, _REGISTRATION),
    (RequestCode.REGISTER_BROKER, _broker, b""),
    (RequestCode.UNREGISTER_BROKER, _broker, b""),
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, _broker, b""),
    (RequestCode.GET_BROKER_CLUSTER_INFO, _nothing, b""),
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _nothing, b""),
    *operators.OF_NAME_SERVERS,
)


class Frames:
    """Makes frames. `ends_stream` is set once one was made after which a node reads no other."""

    def __init__(self, chance: Random, *, name_server: bool) -> None:
        self._chance = chance
        self._requests = (
            (*_NAME_SERVER * 4, *_CLIENT[:3])
            if name_server
            else (
                *_CLIENT,
                *_NAME_SERVER[2:],
            )
        )
        self.ends_stream = False

    def next(self) -> bytes:
        """One frame; mostly a request that a node answers."""
        chance = self._chance
        code, make, template = chance.choice(self._requests)
        fields = make(chance)
        for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
            self._change(fields)
        if isinstance(template, bytes):
            body = hostile.broken(chance, template) if chance.random() < 0.2 else template
        else:
            body = hostile.json_of(chance, template)
        if code == RequestCode.FENCED_COMMAND and b'"resign"' in body:
            body = b"{}"
        encode = chance.choice((_json, _json, _binary, _msgpack))
        header = encode(chance, code, fields)
        kind = {_json: 0, _binary: 1, _msgpack: 77}[encode]
        if chance.random() < 0.002:
            return self._malformed(kind, header, body)
        return _HEAD.pack(4 + len(header) + len(body), kind << 24 | len(header)) + header + body

    def _change(self, fields: Fields) -> None:
        chance = self._chance
        match chance.randrange(6):
            case 0 if fields:
                del fields[chance.choice(list(fields))]
            case 1:
                fields[hostile.text(chance)[:200]] = hostile.text(chance)
            case 2 | 3 if fields:
                fields[chance.choice(list(fields))] = str(hostile.integer(chance))
            case 4 | 5 if fields:
                fields[chance.choice(list(fields))] = hostile.text(chance)
            case _:
                pass
        for name in ("topic", "b"):
            # A topic that can be made is made, with files.
            if fields.get(name, "").replace("_", "").isalnum() and len(fields[name]) < 128:
                fields[name] = "Fuzz"

    def _malformed(self, kind: int, header: bytes, body: bytes) -> bytes:
        self.ends_stream = True
        chance = self._chance
        if chance.random() < 0.4:
            header = hostile.broken(chance, header)
        if chance.random() < 0.4:
            kind = chance.choice((2, 7, 255))
        total, size = 4 + len(header) + len(body), len(header)
        match chance.randrange(6):
            case 0:
                total = chance.choice((0, 3, 4, 2**31, 2**32 - 1, 16_777_213, total + 1000))
            case 1:
                size = chance.choice((0, size + 1, total, 2**24 - 1, 262_145))
            case 2:
                return chance.choice((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\0", b"\0" * 64))
            case _:
                pass
        return _HEAD.pack(total, (kind << 24 | size) & 0xFFFFFFFF) + header + body


def last_request(opaque: int) -> bytes:
    """A request whose answer shows that everything before it was handled."""
    header = _HEADER.encode(
        {
            "code": int(RequestCode.GET_MAX_OFFSET),
            "opaque": opaque,
            "flag": 0,
            "version": 479,
            "language": "PYTHON",
            "extFields": {"topic": "Fuzz", "queueId": "0"},
        }
    )
    return _HEAD.pack(4 + len(header), len(header)) + header


_HEADER: Final = msgspec.json.Encoder()
_PACK: Final = msgspec.msgpack.Encoder()


def _flag(chance: Random) -> int:
    return chance.choice((0, 0, 0, 0, 0, 0, 2, 1, 3)) if chance.random() < 0.3 else 0


def _json(chance: Random, code: int, fields: Fields) -> bytes:
    whole: dict[str, Any] = {
        "code": code,
        "extFields": fields,
        "flag": _flag(chance),
        "language": "JAVA",
        "opaque": chance.randrange(1_000_000),
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    if chance.random() < 0.1:
        whole["remark"] = hostile.text(chance)
    if chance.random() < 0.1:
        fields[hostile.text(chance)[:50]] = hostile.value(chance)
    try:
        data = _HEADER.encode(whole)
    except OverflowError:
        return b'{"code":%d,"opaque":1,"extFields":{"topic":"Fuzz","queueId":%d}}' % (code, 2**70)
    if chance.random() < 0.004:
        at = data.find(b'"extFields":') + len(b'"extFields":')
        end = data.find(b"}", at) + 1
        raw = chance.choice(hostile.RAW_JSON)
        if raw.count(b"[") + raw.count(b"{") < 200:
            return data[:at] + raw + data[end:]
    return data


def _binary(chance: Random, code: int, fields: Fields) -> bytes:
    remark = hostile.text(chance).encode() if chance.random() < 0.05 else b""
    ext = b"".join(
        len(k).to_bytes(2, "big") + k + len(v).to_bytes(4, "big") + v
        for k, v in ((name.encode()[:32_000], str(each).encode()) for name, each in fields.items())
    )
    # The number of a request of POP is cut there, as RocketMQ cuts it.
    head = _FIXED.pack(
        (code + 0x8000) % 0x10000 - 0x8000,
        0,
        479,
        chance.randrange(1_000_000),
        _flag(chance),
        len(remark),
    )
    return head + remark + len(ext).to_bytes(4, "big") + ext


def _msgpack(chance: Random, code: int, fields: Fields) -> bytes:
    ext: Any = fields
    if chance.random() < 0.2:
        ext = {
            name: chance.choice((each, 1, -1, 2**63, None, True, 1.5))
            for name, each in fields.items()
        }
    elif chance.random() < 0.02:
        ext = chance.choice((None, [], 7, "x", {"a": {"b": 1}}, {1: 2}))
    return _PACK.encode([code, 3, 479, chance.randrange(1_000_000), _flag(chance), None, ext])
