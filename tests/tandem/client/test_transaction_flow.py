import msgspec
import pytest

from tandem.client.core import ClientCore
from tandem.client.errors import BrokerError, ConnectionCause, ConnectionLostError
from tandem.client.send_flow import Sender
from tandem.client.sending import SendSettings
from tandem.client.transaction_flow import Decisions, Half, TransactionFlows
from tandem.wire.errors import ArgumentError
from tandem.wire.message import Message
from tandem.wire.message_properties import decode_properties
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import (
    IDENTITY,
    MASTER,
    NAME_SERVER,
    FakeBroker,
    HandShell,
    answer_to,
    route_of,
)

MESSAGE = Message("orders", b"hello", keys="k")
END = RequestCode.END_TRANSACTION


class Bench:
    """The flows of one producer, and a broker that is everything."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.ends: list[EndTransactionRequestHeader] = []
        self.end_codes: list[int] = []
        self.broker.handlers[END] = self._end
        self.shell = HandShell({NAME_SERVER: self.broker, MASTER: self.broker})
        core = ClientCore(
            NAME_SERVER, identity=IDENTITY, clock=self.shell.clock, producer_group="PG"
        )
        sender = Sender(core, SendSettings("PG"), lambda: 1_700_000_000_000)
        self.flows = TransactionFlows(core, sender, "PG", 12.0)

    def _end(self, request: RemotingCommand) -> RemotingCommand:
        self.ends.append(request.decode_header(EndTransactionRequestHeader))
        return answer_to(request, self.end_codes.pop(0) if self.end_codes else 0, remark="so")

    def begin(self, message: Message = MESSAGE) -> Half:
        return self.shell.run(self.flows.begin(message))


def test_a_half_is_marked_and_its_broker_knows_the_producer() -> None:
    bench = Bench()
    half = bench.begin()
    (send,) = [r for r in bench.broker.requests if r.code == RequestCode.SEND_MESSAGE_V2]
    header = send.decode_header(SendMessageRequestHeaderV2)
    assert header.sys_flag == 4
    properties = decode_properties((header.properties or "").encode())
    assert (properties["TRAN_MSG"], properties["PGROUP"], properties["KEYS"]) == ("true", "PG", "k")
    assert RequestCode.HEART_BEAT in bench.broker.codes()
    assert half.result.msg_id == properties["UNIQ_KEY"]
    assert half.message is MESSAGE


def test_the_end_names_the_half_as_the_broker_stored_it() -> None:
    bench = Bench()
    bench.broker.store("orders", 0, b"x", b"y")
    bench.broker.store("orders", 1, b"x", b"y")
    half = bench.begin()
    bench.shell.run(bench.flows.end(half, "commit"))
    bench.shell.run(bench.flows.end(half, "rollback"))
    assert [end.commit_or_rollback for end in bench.ends] == [8, 12]
    end = bench.ends[0]
    assert (end.producer_group, end.tran_state_table_offset, end.commit_log_offset) == (
        "PG",
        2,
        2000,
    )
    assert (end.msg_id, end.transaction_id) == (half.result.msg_id, half.result.msg_id)
    assert (end.topic, end.from_transaction_check) == ("orders", False)


def test_the_end_is_said_again_until_it_is_safe() -> None:
    bench = Bench()
    half = bench.begin()
    bench.end_codes = [
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SYSTEM_BUSY,
    ]
    bench.shell.run(bench.flows.end(half, "commit"))
    assert len(bench.ends) == 4


def test_a_broker_that_knows_no_such_transaction_is_asked_twice() -> None:
    bench = Bench()
    half = bench.begin()
    bench.end_codes = [ResponseCode.SYSTEM_ERROR] * 9
    with pytest.raises(BrokerError) as caught:
        bench.shell.run(bench.flows.end(half, "commit"))
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert len(bench.ends) == 2


def test_an_end_that_nobody_confirms_is_given_up_when_its_time_is_over() -> None:
    bench = Bench()
    half = bench.begin()
    del bench.shell.brokers[MASTER]
    with pytest.raises(ConnectionLostError):
        bench.shell.run(bench.flows.end(half, "commit"))
    assert bench.ends == []


def test_a_half_that_is_not_safe_is_rolled_back() -> None:
    bench = Bench()
    ext = SendMessageResponseHeader("0A00000100002A9F0000000000000000", 1, 7)
    bench.broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda request: answer_to(
        request, ResponseCode.FLUSH_SLAVE_TIMEOUT, ext, remark="slow"
    )
    with pytest.raises(BrokerError) as caught:
        bench.begin()
    assert caught.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert [end.commit_or_rollback for end in bench.ends] == [12]


def test_a_delayed_message_is_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        Bench().begin(Message("orders", b"", delay_ms=5))
    assert "delay_ms" in caught.value.names


def test_an_answer_names_what_the_broker_asked_about() -> None:
    bench = Bench()
    question = CheckTransactionStateRequestHeader("HALF", 5, 700, None, "KEY", None, "broker-a")
    assert bench.shell.run(bench.flows.answer(MASTER, question, "KEY", "commit"))
    end = bench.ends[0]
    assert (end.tran_state_table_offset, end.commit_log_offset, end.topic) == (5, 700, "HALF")
    assert (end.from_transaction_check, end.commit_or_rollback, end.transaction_id) == (
        True,
        8,
        "KEY",
    )
    bench.end_codes = [ResponseCode.SYSTEM_ERROR]
    assert not bench.shell.run(bench.flows.answer(MASTER, question, "KEY", "commit"))


def test_what_is_answered_follows_the_life_of_a_transaction() -> None:
    decisions = Decisions()
    assert decisions.answer("K") is None
    decisions.begin("K")
    assert decisions.answer("K") == "unknown"
    decisions.decide("K", "commit")
    assert decisions.answer("K") == "commit"
    decisions.confirm("K")
    # A second copy of the half, sent when the first got no answer.
    assert decisions.answer("K") == "rollback"


def test_a_transaction_left_as_unknown_is_the_users_to_judge() -> None:
    decisions = Decisions()
    decisions.begin("K")
    decisions.decide("K", "unknown")
    assert decisions.answer("K") is None
    decisions.decide("other", "commit")
    decisions.confirm("other")
    assert decisions.answer("other") is None


def test_only_the_newest_transactions_are_remembered() -> None:
    decisions = Decisions(decisions_max=2)
    for key in "abc":
        decisions.begin(key)
        decisions.decide(key, "commit")
        decisions.confirm(key)
    assert [decisions.answer(key) for key in "abc"] == [None, "rollback", "rollback"]


def test_a_half_that_stays_in_doubt_in_a_fenced_group_is_rolled_back() -> None:
    bench = Bench()
    route = route_of(("broker-a", {0: MASTER}))
    (broker,) = route.broker_datas
    bench.broker.routes["orders"] = msgspec.structs.replace(
        route, broker_datas=[msgspec.structs.replace(broker, master_epoch=3)]
    )
    stored = SendMessageResponseHeader("0A00000100002A9F0000000000000000", 0, 7)
    bench.broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda request: answer_to(
        request, ResponseCode.FLUSH_SLAVE_TIMEOUT, stored, remark="slow"
    )
    with pytest.raises(BrokerError) as caught:
        bench.begin()
    assert caught.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert bench.broker.codes().count(RequestCode.SEND_MESSAGE_V2) > 3
    assert [end.commit_or_rollback for end in bench.ends] == [12]


def test_a_half_whose_place_nobody_can_read_is_an_error() -> None:
    bench = Bench()
    ext = SendMessageResponseHeader("no id", 1, 7)
    bench.broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda request: answer_to(request, ext=ext)
    with pytest.raises(ConnectionLostError) as caught:
        bench.begin()
    assert (caught.value.cause, caught.value.outcome_unknown) == (ConnectionCause.MALFORMED, True)
