"""Halves as they are put; over the wire: test_end_transaction.py."""

import msgspec
import pytest

from node.errors import RequestError
from node.handlers.send_half import SendHalf
from store import PutMessage
from tandem.wire.message import decode_messages
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import BROKER, NOW_MS, Broker

MESSAGE = PutMessage(
    "T", 1, b"x", b"TRAN_MSG\x01true\x02PGROUP\x01PG\x02", NOW_MS, BROKER.packed, 0, 4
)


async def test_a_half_is_put_whatever_its_delay_level() -> None:
    broker = Broker()
    delayed = msgspec.structs.replace(MESSAGE, properties=MESSAGE.properties + b"DELAY\x013\x02")
    result = SendHalf(broker.store, rejects=False).put(delayed)
    assert result.status.is_stored
    found = broker.store.reads.get_message("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 32)
    (half,) = decode_messages(b"".join(found.body))
    assert (half.properties["REAL_TOPIC"], half.properties["DELAY"]) == ("T", "3")


@pytest.mark.parametrize(
    ("rejects", "more", "code"),
    [
        (True, b"", ResponseCode.NO_PERMISSION),
        (False, b"TIMER_DELAY_SEC\x015\x02", ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_what_is_refused_is_not_put(rejects: bool, more: bytes, code: int) -> None:  # noqa: FBT001
    broker = Broker()
    message = msgspec.structs.replace(MESSAGE, properties=MESSAGE.properties + more)
    with pytest.raises(RequestError) as caught:
        SendHalf(broker.store, rejects=rejects).put(message)
    assert caught.value.code == code
    assert broker.store.max_physical_offset == 0
