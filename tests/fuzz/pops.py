"""Requests of POP, most of them sound, with handles of all kinds."""

import json
from random import Random
from typing import Final

from tandem.wire.request_code import RequestCode
from tests.fuzz.operators import Request

TOPICS: Final = ("Fuzz", "%RETRY%g_Fuzz", "%RETRY%g+Fuzz", "rmq_sys_TANDEM_JOURNAL", "none", "")
HANDLES: Final = (
    "0 1700000000000 60000 3 0 broker-a 0 0",
    "0 1700000000000 60000 999 0 broker-a 0 0",
    "0 1700000000000 60000 3 1 broker-a 0 0 77",
    f"{1 << 63} 1 1 1 1 b 1 1",
    "1 2 3",
    " " * 4_000,
    "",
)
NUMBERS: Final = (0, 1, 2, 32, 33, -1, 1 << 31, (1 << 63) - 1)


def _pop(chance: Random) -> dict[str, str]:
    return {
        "consumerGroup": chance.choice(("g", "h", "CID_RMQ_SYS_TRANS", "")),
        "topic": chance.choice(TOPICS),
        "queueId": str(chance.choice((-1, 0, 0, 99))),
        "maxMsgNums": str(chance.choice(NUMBERS)),
        "invisibleTime": str(chance.choice((1, 500, 60_000, *NUMBERS))),
        "pollTime": str(chance.choice((0, 100, -1))),
        "bornTime": "0",
        "initMode": str(chance.choice((0, 1, 7))),
        "expType": chance.choice(("TAG", "SQL92", "XX")),
        "exp": chance.choice(("*", "a", "a > 1", "a >", "")),
        "order": chance.choice(("true", "false")),
        "attemptId": chance.choice(("", "a", "b" * 500)),
    }


def _handle(chance: Random) -> dict[str, str]:
    return {
        "consumerGroup": chance.choice(("g", "h")),
        "topic": chance.choice(TOPICS),
        "queueId": str(chance.choice((0, 0, 0, 99, -1))),
        "extraInfo": chance.choice(HANDLES),
        "offset": str(chance.choice(NUMBERS)),
        "invisibleTime": str(chance.choice((0, 1, 60_000, *NUMBERS))),
    }


def _nothing(_: Random) -> dict[str, str]:
    return {}


def _acks(bits: str, mark: str) -> bytes:
    entry = {"b": bits, "c": "g", "t": "Fuzz", "r": mark, "q": 0, "so": 0, "pt": 1, "it": 1}
    return json.dumps({"acks": [entry] * 3, "brokerName": "broker-a"}).encode()


OF_CLIENTS: Final[tuple[Request, ...]] = (
    (RequestCode.POP_MESSAGE, _pop, b""),
    (RequestCode.PEEK_MESSAGE, _pop, b""),
    (RequestCode.NOTIFICATION, _pop, b""),
    (RequestCode.POLLING_INFO, _pop, b""),
    (RequestCode.ACK_MESSAGE, _handle, b""),
    (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, _handle, b""),
    (RequestCode.BATCH_ACK_MESSAGE, _nothing, _acks("IwI=", "0")),
    (RequestCode.BATCH_ACK_MESSAGE, _nothing, _acks("/" * 40_000, "1")),
    (
        RequestCode.BATCH_ACK_MESSAGE,
        _nothing,
        b'{"acks":[{"b":"AQ==","c":"g","t":"Fuzz","r":"9"}]}',
    ),
)
