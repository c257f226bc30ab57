"""What clients have said of one message, put together from their records."""

import msgspec
import pytest

from tandem.client.admin_results import ClientTrace, ClientTraceEvent
from tandem.client.flow import Flow
from tandem.client.message_admin import MessageAdministration
from tandem.client.trace_admin import TraceAdministration, client_traces
from tandem.wire.message import MessageExt
from tandem.wire.system_topics import TRACE_TOPIC
from tandem.wire.trace_records import (
    EndTransaction,
    Pub,
    SubAfter,
    SubBefore,
    encode_traces,
)
from tests.tandem.client.fake_broker import message_ext

PUB = Pub(*(10, "r", "PG", "T", "ID", "", "", "h:1", 5, 3, 0, "", True))
BEFORE = SubBefore(20, "r", "CG", "R", "ID", 1, "")
AFTER = SubAfter(*("R", "ID", 7, True, "", 0, 27, "CG"))
END = EndTransaction(*(15, "r", "PG", "T", "ID", "", "", "h:1", 2, "ID", "COMMIT_MESSAGE", False))


def test_a_life_in_order_whatever_the_order_of_records() -> None:
    traces = client_traces("ID", [AFTER, END, BEFORE, PUB])
    assert [each.event for each in traces] == [
        ClientTraceEvent.SENT,
        ClientTraceEvent.COMMITTED,
        ClientTraceEvent.CONSUMED,
    ]
    assert traces[2] == ClientTrace(
        event=ClientTraceEvent.CONSUMED,
        time_ms=20,
        group="CG",
        cost_ms=7,
        retry_times=1,
        detail="success",
    )


def test_records_of_other_messages_in_the_same_body_are_left_out() -> None:
    others = [msgspec.structs.replace(each, msg_id="ID2") for each in (PUB, BEFORE, AFTER)]
    assert client_traces("ID", [*others, PUB]) == client_traces("ID", [PUB])


def test_a_beginning_without_an_end_is_handed_out() -> None:
    [trace] = client_traces("ID", [BEFORE])
    assert (trace.event, trace.cost_ms) == (ClientTraceEvent.HANDED_OUT, None)


def test_an_end_without_a_beginning_has_its_own_time() -> None:
    older = msgspec.structs.replace(AFTER, request_id="R2", time_ms=None, group="")
    traces = client_traces("ID", [AFTER, older])
    assert [(each.time_ms, each.group) for each in traces] == [(0, ""), (20, "CG")]


@pytest.mark.parametrize(
    ("state", "event"),
    [
        ("ROLLBACK_MESSAGE", ClientTraceEvent.ROLLED_BACK),
        ("UNKNOW", ClientTraceEvent.LEFT_UNKNOWN),
        ("x", ClientTraceEvent.LEFT_UNKNOWN),
    ],
)
def test_other_ends(state: str, event: ClientTraceEvent) -> None:
    [trace] = client_traces("ID", [msgspec.structs.replace(END, state=state, from_check=True)])
    assert (trace.event, trace.detail) == (event, "asked by a broker")


def test_what_failed() -> None:
    failed = msgspec.structs.replace(PUB, is_success=False, msg_type=99)
    back = msgspec.structs.replace(AFTER, is_success=False, context_code=4)
    sent, given_back = client_traces("ID", [failed, BEFORE, back])
    assert (sent.event, sent.detail) == (ClientTraceEvent.SEND_FAILED, "99")
    [unsafe] = client_traces("ID", [msgspec.structs.replace(failed, offset_msg_id="0A")])
    assert unsafe.event is ClientTraceEvent.STORED
    assert (given_back.event, given_back.detail) == (ClientTraceEvent.GIVEN_BACK, "failed")


class Found(MessageAdministration):
    """Finds these messages by their keys."""

    def __init__(self, *messages: MessageExt) -> None:
        self._messages = messages

    def by_key(self, topic: str, key: str, **_: object) -> Flow[list[MessageExt]]:
        yield from ()
        return [each for each in self._messages if each.topic == topic and key in each.keys.split()]


def test_traces_are_found_by_the_key_of_the_message() -> None:
    def of(body: bytes, topic: str = TRACE_TOPIC) -> MessageExt:
        return message_ext(body, topic=topic, properties={"KEYS": "ID k"})

    good = encode_traces([PUB])
    traces = TraceAdministration(Found(of(good), of(b"\xff"), of(good, "other")))

    def found(*asked: str) -> list[ClientTrace]:
        with pytest.raises(StopIteration) as ended:
            next(traces.client_traces(*asked))
        result: list[ClientTrace] = ended.value.value
        return result

    assert found("ID") == client_traces("ID", [PUB])
    assert len(found("ID", "other")) == 1
    assert found("ID2") == []
