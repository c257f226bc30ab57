"""What only the one for plain code has. The rest: test_three_worlds.py."""

import os
import threading

import pytest

from tandem.client.blocking_consumer import BlockingConsumer
from tandem.client.errors import BrokerError, NotOpenError
from tandem.client.results import MessageQueue
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.client.fake_broker import answer_to
from tests.tandem.client.group_broker import GROUP
from tests.tandem.client.tcp_broker import a_tcp_broker


def test_several_threads_share_a_subscription() -> None:
    with a_tcp_broker() as broker, BlockingConsumer(broker.address, GROUP) as consumer:
        broker.store("orders", 0, *[b"%d" % at for at in range(50)])
        subscription = consumer.subscribe("orders")
        seen: list[bytes] = []

        def read() -> None:
            for message in subscription:
                seen.append(message.body)
                if len(seen) == 50:
                    consumer.stop()

        threads = [threading.Thread(target=read) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(PATIENCE_SECONDS)
        assert sorted(seen) == sorted(b"%d" % at for at in range(50))
        assert subscription.topic == "orders"


def test_nothing_is_handed_out_after_stop_or_while_paused() -> None:
    with a_tcp_broker() as broker:
        broker.store("orders", 0, *[b"%d" % at for at in range(10)])
        with BlockingConsumer(broker.address, GROUP) as consumer:
            subscription = consumer.subscribe("orders")
            messages = iter(subscription)
            assert [next(messages).body for _ in range(2)] == [b"0", b"1"]
            subscription.pause()
            threading.Timer(0.05, subscription.resume).start()
            assert next(messages).body == b"2"
            consumer.stop()
            assert list(messages) == []
        # What was taken ahead and not handed out is not handled.
        assert broker.offsets["orders", 0] == 3


def test_a_message_taken_ahead_is_dropped_with_its_queue() -> None:
    with a_tcp_broker() as broker, BlockingConsumer(broker.address, GROUP) as consumer:
        broker.store("orders", 0, *[b"%d" % at for at in range(10)])
        messages = iter(consumer.subscribe("orders"))
        first = next(messages)
        consumer.seek(MessageQueue("orders", "broker-a", 0), 8)
        assert first.body == b"0"
        assert [next(messages).body for _ in range(2)] == [b"8", b"9"]


def test_no_thread_is_left_whatever_happens() -> None:
    before = threading.active_count()
    with a_tcp_broker() as broker:
        inside = threading.active_count()
        with pytest.raises(KeyError), BlockingConsumer(broker.address, GROUP) as consumer:
            consumer.subscribe("orders")
            raise KeyError("planned")
        assert threading.active_count() <= inside
        with BlockingConsumer("127.0.0.1:1", GROUP):
            pass
    assert threading.active_count() <= before


def test_a_refusal_comes_out_of_the_loop() -> None:
    with a_tcp_broker() as broker, BlockingConsumer(broker.address, GROUP) as consumer:
        broker.handlers[RequestCode.PULL_MESSAGE] = lambda request: answer_to(
            request, ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="at column 3"
        )
        with pytest.raises(BrokerError) as caught:
            next(iter(consumer.subscribe("orders")))
        assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


def test_outside_of_with_it_says_so() -> None:
    consumer = BlockingConsumer("127.0.0.1:1", GROUP)
    with pytest.raises(NotOpenError):
        consumer.subscribe("orders")
    assert "@" in consumer.client_id


def test_a_fork_does_not_wait_for_a_thread_that_it_does_not_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = os.getpid()
    with a_tcp_broker() as broker:
        consumer = BlockingConsumer(broker.address, GROUP)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: here + 1)
            with pytest.raises(NotOpenError), consumer:
                pass
        with consumer:
            with monkeypatch.context() as patch:
                patch.setattr(os, "getpid", lambda: here + 1)
                with pytest.raises(NotOpenError):
                    consumer.subscribe("orders")
                opened = consumer._open_portal
                consumer.__exit__(None, None, None)
            consumer._open_portal = opened
            assert consumer.assignment == [], "it is open here still"
