"""What the handlers of a broker share."""

from __future__ import annotations

from store import PutMessage
from tandem.wire.message import decode_messages
from tests.node.doubles import BROKER, NOW_MS, Broker


async def test_settings_reach_the_parts() -> None:
    broker = Broker()
    assert broker.host == BROKER
    assert broker.timeout_seconds == 3
    assert broker.config.cluster.broker.recall_message_enable
    broker.set(recall_message_enable=False)
    assert not broker.config.cluster.broker.recall_message_enable


async def test_transactions_are_of_the_same_store() -> None:
    broker = Broker()
    broker.store.puts.put_message(PutMessage("T", 0, b"x", b"", NOW_MS, b"\x0a\1\2\3\0\0\4\xd2"))
    broker.store.announce()
    found = broker.store.reads.get_message("T", 0, 0, 1)
    assert [message.body for message in decode_messages(b"".join(found.body))] == [b"x"]
    assert broker.transactions.end is not None
    assert broker.filters is not None
