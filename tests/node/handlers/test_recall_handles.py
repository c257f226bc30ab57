"""Which messages have a recall handle; what it says is in `test_recall_message`."""

from node.handlers.recall_handles import recall_handle
from store import PutMessage
from tandem.wire.recall_handle import RecallHandle, decode_recall_handle
from tandem.wire.system_topics import TIMER_TOPIC
from tests.node.doubles import BROKER, NOW_MS, Broker


def handle_after(topic: str, real_topic: str) -> str | None:
    broker = Broker()
    properties = f"TIMER_OUT_MS\x015000\x02REAL_TOPIC\x01{real_topic}\x02UNIQ_KEY\x01K\x02".encode()
    message = PutMessage(topic, 0, b"x", properties, NOW_MS, BROKER.packed)
    return recall_handle(broker.store, broker.store.puts.put_message(message), "b")


def test_a_message_of_the_timer_topic_has_one_unless_it_is_a_retry() -> None:
    handle = handle_after(TIMER_TOPIC, "T")
    assert handle is not None
    assert decode_recall_handle(handle) == RecallHandle("T", "b", 5001, "K")
    assert handle_after(TIMER_TOPIC, "%RETRY%g") is None
    assert handle_after("T", "T") is None
