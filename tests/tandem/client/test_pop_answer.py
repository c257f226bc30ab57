"""What the client makes of an answer to a pop."""

import zlib

import msgspec
import pytest

from tandem.client.errors import BrokerError, ConnectionLostError
from tandem.client.pop_answer import Popped, pop_result
from tandem.client.pull_answer import ALL_TAGS
from tandem.wire.message import COMPRESSED_FLAG, MessageExt
from tandem.wire.pop_headers import PopMessageRequestHeader, PopMessageResponseHeader
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.response_code import ResponseCode
from tests.tandem.client.fake_broker import MASTER
from tests.tandem.client.pop_broker import POP_MS, pop_answer, record

REQUEST = RemotingCommand(1, ext=PopMessageRequestHeader("CG", "orders", -1, 32, 60_000, 0, 0))


def result(answer: RemotingCommand, tags: str = ALL_TAGS) -> Popped:
    return pop_result(answer, MASTER, "broker-a", "orders", tags)


def handles(popped: Popped) -> list[str]:
    return [each.handle for each in popped.messages]


def answered(*records: MessageExt, **changes: object) -> RemotingCommand:
    answer = pop_answer(REQUEST, *records)
    header = msgspec.structs.replace(answer.decode_header(PopMessageResponseHeader), **changes)
    return msgspec.structs.replace(answer, ext=header)


def test_handles_are_made_of_the_fields_of_the_answer() -> None:
    popped = result(pop_answer(REQUEST, record(b"a", 7, queue_id=2), record(b"b", 9, queue_id=2)))
    assert handles(popped) == [
        f"7 {POP_MS} 60000 3 0 broker-a 2 7",
        f"7 {POP_MS} 60000 3 0 broker-a 2 9",
    ]
    assert popped.messages[0].visible_ms == POP_MS + 60_000
    assert not popped.messages[0].lease.is_repeated


def test_a_message_that_comes_again_brings_its_handle() -> None:
    """As a broker of RocketMQ's sends it: under the topic that was asked for."""
    text = f"0 {POP_MS} 60000 3 1 broker-a 0 5"
    again = record(b"a", 5, POP_CK=text, k="v")
    popped = result(pop_answer(REQUEST, msgspec.structs.replace(again, reconsume_times=1)))
    (message,) = popped.messages
    assert (message.handle, message.properties, message.reconsume_times) == (text, {"k": "v"}, 1)
    assert message.lease.is_repeated


def test_one_of_a_broker_that_keeps_its_state_elsewhere_names_its_retry_topic() -> None:
    popped = result(pop_answer(REQUEST, record(b"a", 5, topic="%RETRY%CG_orders")))
    (message,) = popped.messages
    assert message.topic == "orders"
    assert message.handle == f"5 {POP_MS} 60000 3 1 broker-a 0 5"


def test_in_order_it_is_said_how_often_a_message_came() -> None:
    popped = result(pop_answer(REQUEST, record(b"a", 5), record(b"b", 6), counts={5: 2}))
    assert [each.reconsume_times for each in popped.messages] == [2, 0]


def test_what_only_has_the_hash_of_a_tag_is_wanted_by_nobody() -> None:
    popped = result(
        pop_answer(REQUEST, record(b"a", 5, TAGS="Aa"), record(b"b", 6, TAGS="BB")), "BB"
    )
    assert [each.body for each in popped.messages] == [b"b"]
    assert [each.body for each in popped.unwanted] == [b"a"]


def test_a_damaged_body_is_not_handed_out(caplog: pytest.LogCaptureFixture) -> None:
    answer = pop_answer(REQUEST, record(b"good", 5), record(b"bad.", 6))
    popped = result(msgspec.structs.replace(answer, body=answer.body.replace(b"bad.", b"bad!")))
    assert [each.body for each in popped.messages] == [b"good"]
    assert (caplog.records[0].levelname, caplog.records[0].args[0]) == ("WARNING", 6)  # type: ignore[index]


def test_a_compressed_body_is_unpacked_and_one_that_cannot_be_is_left() -> None:
    packed = msgspec.structs.replace(record(zlib.compress(b"long"), 5), sys_flag=COMPRESSED_FLAG)
    broken = msgspec.structs.replace(record(b"no zlib", 6), sys_flag=COMPRESSED_FLAG)
    popped = result(pop_answer(REQUEST, packed, broken))
    assert [each.body for each in popped.messages] == [b"long"]
    assert handles(popped) == [f"5 {POP_MS} 60000 3 0 broker-a 0 5"]


@pytest.mark.parametrize("code", [209, 210, 19])
def test_nothing_is_no_error(code: int) -> None:
    assert result(RemotingCommand(code)) == Popped([], [])


def test_a_refusal_is_an_error() -> None:
    with pytest.raises(BrokerError) as caught:
        result(RemotingCommand(ResponseCode.NO_PERMISSION, remark="no"))
    assert caught.value.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    "changes",
    [
        {"start_offset_info": None},
        {"start_offset_info": "0 0"},
        {"start_offset_info": "0 0 1;0 0 2"},
        {"order_count_info": "x"},
    ],
)
def test_fields_that_do_not_parse_are_the_connections_fault(changes: dict[str, object]) -> None:
    with pytest.raises(ConnectionLostError):
        result(answered(record(b"a", 5), **changes))


def test_a_handle_that_is_none_is_the_connections_fault() -> None:
    with pytest.raises(ConnectionLostError):
        result(pop_answer(REQUEST, record(b"a", 5, POP_CK="1 2 3")))


def test_an_answer_that_is_cut_gives_what_is_whole() -> None:
    answer = pop_answer(REQUEST, record(b"a", 5), record(b"b", 6))
    popped = result(msgspec.structs.replace(answer, body=answer.body[:-3]))
    assert [each.body for each in popped.messages] == [b"a"]
