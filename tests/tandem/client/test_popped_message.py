"""A received message and its handle."""

import msgspec

from tandem.client.popped_message import Lease, PoppedMessage
from tandem.wire.receipt_handle import ReceiptHandle, TopicMark
from tests.tandem.client.fake_broker import message_ext

HANDLE = ReceiptHandle(100, 1_700_000_000_000, 60_000, 3, TopicMark.RETRY_V2, "broker-a", 0, 105)


def test_a_message_says_its_handle_as_rocketmq_writes_it() -> None:
    message = PoppedMessage(**msgspec.structs.asdict(message_ext()), lease=Lease("orders", HANDLE))
    assert message.handle == "100 1700000000000 60000 3 2 broker-a 0 105"
    assert message.visible_ms == 1_700_000_060_000
    assert message.lease.is_repeated
    message.lease.handle = msgspec.structs.replace(HANDLE, mark=TopicMark.NORMAL, pop_time_ms=5)
    assert message.handle == "100 5 60000 3 0 broker-a 0 105"
    assert not message.lease.is_repeated
