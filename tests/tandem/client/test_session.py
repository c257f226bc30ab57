import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.client import session as session_module
from tandem.client.session import OPAQUE_COUNT, RequestState, Session
from tandem.wire.errors import WireError
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.remoting_command import (
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import QueueRequestHeader

NEVER = float("inf")


def make_request(session: Session[str], waiter: str, deadline: float = NEVER) -> int:
    return session.request(
        RequestCode.GET_MAX_OFFSET, QueueRequestHeader("T", 0), b"", waiter, deadline
    )


def requests_in(data: bytes) -> list[RemotingCommand]:
    frames = FrameBuffer()
    frames.receive_data(data)
    return list(iter(frames.next_command, None))


def answer(opaque: int, language: str = "JAVA", code: int = 0) -> bytes:
    return encode_frame(RemotingCommand(code, opaque, RESPONSE_FLAG, language=language))


def waiters_answered(session: Session[str]) -> list[str]:
    answered = []
    while (pair := session.next_answer()) is not None:
        answered.append(pair[0])
    return answered


def test_answers_find_their_waiters_in_any_order() -> None:
    session: Session[str] = Session()
    opaques = [make_request(session, waiter) for waiter in "abc"]
    sent = requests_in(session.data_to_send())
    assert [request.opaque for request in sent] == opaques
    session.receive_data(answer(opaques[2]) + answer(opaques[0]) + answer(opaques[1]))
    assert waiters_answered(session) == ["c", "a", "b"]


def test_answers_may_arrive_one_byte_at_a_time() -> None:
    session: Session[str] = Session()
    opaque = make_request(session, "a")
    session.data_to_send()
    answered = []
    for byte in answer(opaque):
        session.receive_data(bytes([byte]))
        answered += waiters_answered(session)
    assert answered == ["a"]


def test_gathered_frames_leave_once() -> None:
    session: Session[str] = Session()
    opaque = make_request(session, "a")
    assert session.state_of(opaque) is RequestState.GATHERED
    assert session.data_to_send()
    assert session.state_of(opaque) is RequestState.SENT
    assert session.data_to_send() == b""
    session.receive_data(answer(opaque))
    assert waiters_answered(session) == ["a"]
    assert session.state_of(opaque) is None


def test_a_request_forgotten_before_it_left_is_never_sent() -> None:
    session: Session[str] = Session()
    first = make_request(session, "a")
    second = make_request(session, "b")
    abandoned = session.forget(first)
    assert abandoned is not None
    assert not abandoned.outcome_unknown
    assert [request.opaque for request in requests_in(session.data_to_send())] == [second]


def test_a_late_answer_is_dropped() -> None:
    session: Session[str] = Session()
    first, second = make_request(session, "a"), make_request(session, "b")
    session.data_to_send()
    abandoned = session.forget(first)
    assert abandoned is not None
    assert abandoned.outcome_unknown
    session.receive_data(answer(first) + answer(second))
    assert waiters_answered(session) == ["b"]
    assert session.forget(first) is None


def test_a_lost_connection_tells_what_may_have_arrived() -> None:
    session: Session[str] = Session()
    make_request(session, "sent")
    session.data_to_send()
    make_request(session, "gathered")
    lost = session.connection_lost()
    assert [(each.waiter, each.outcome_unknown) for each in lost] == [
        ("sent", True),
        ("gathered", False),
    ]
    assert session.connection_lost() == []
    assert session.data_to_send() == b""


def test_deadlines_are_inclusive_and_the_earliest_is_known() -> None:
    session: Session[str] = Session()
    assert session.next_deadline() == NEVER
    make_request(session, "late", 20.0)
    make_request(session, "soon", 10.0)
    assert session.next_deadline() == 10.0
    assert session.expire(9.9) == []
    assert [each.waiter for each in session.expire(10.0)] == ["soon"]
    assert session.next_deadline() == 20.0


def test_requests_of_the_broker_are_skipped() -> None:
    session: Session[str] = Session()
    opaque = make_request(session, "a")
    session.data_to_send()
    pushed = encode_frame(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque, 2))
    session.receive_data(pushed + answer(opaque))
    assert waiters_answered(session) == ["a"]


@pytest.mark.parametrize(
    ("language", "expected"), [("JAVA", SerializeType.JSON), ("PYTHON", SerializeType.MSGPACK)]
)
def test_the_first_request_is_json_and_the_answer_decides_the_rest(
    language: str, expected: SerializeType
) -> None:
    session: Session[str] = Session()
    opaque = make_request(session, "a")
    (first,) = requests_in(session.data_to_send())
    assert first.serialize_type is SerializeType.JSON
    before = session.answered
    session.receive_data(answer(opaque, language))
    waiters_answered(session)
    assert (before, session.answered) == (False, True)
    make_request(session, "b")
    (second,) = requests_in(session.data_to_send())
    assert second.serialize_type is expected
    assert second.decode_header(QueueRequestHeader) == QueueRequestHeader("T", 0)


def test_opaques_wrap_and_pass_over_those_in_flight() -> None:
    session: Session[str] = Session()
    assert make_request(session, "old") == 0
    session._next_opaque = OPAQUE_COUNT - 1
    assert make_request(session, "last") == OPAQUE_COUNT - 1
    assert make_request(session, "new") == 1


def test_the_diagram_names_the_states() -> None:
    for state in RequestState:
        assert state.name in (session_module.__doc__ or "")


@given(
    st.lists(
        st.sampled_from(["request", "send", "answer", "forget", "expire", "lose"]), max_size=40
    ),
    st.randoms(use_true_random=False),
)
def test_every_request_ends_exactly_once(steps: list[str], chance: random.Random) -> None:
    session: Session[str] = Session()
    made: dict[str, int] = {}
    ended: list[str] = []
    for number, step in enumerate(steps):
        open_ones = [waiter for waiter in made if waiter not in ended]
        match step:
            case "request":
                made[f"w{number}"] = make_request(session, f"w{number}", float(number + 5))
            case "send":
                session.data_to_send()
            case "answer" if open_ones:
                opaque = made[chance.choice(open_ones)]
                session.receive_data(answer(opaque))
                ended += waiters_answered(session)
            case "forget" if open_ones:
                waiter = chance.choice(open_ones)
                abandoned = session.forget(made[waiter])
                assert abandoned is not None
                ended.append(abandoned.waiter)
            case "expire":
                ended += [each.waiter for each in session.expire(float(number))]
            case "lose":
                ended += [each.waiter for each in session.connection_lost()]
            case _:
                pass
    ended += [each.waiter for each in session.connection_lost()]
    assert sorted(ended) == sorted(made)


@given(st.binary(max_size=80))
def test_random_bytes_are_accepted_or_refused_as_the_peers_fault(data: bytes) -> None:
    session: Session[str] = Session()
    make_request(session, "a")
    session.receive_data(data)
    with contextlib.suppress(WireError):
        waiters_answered(session)


def test_requests_of_the_peer_are_kept_and_answered_beside_our_own() -> None:
    session: Session[str] = Session()
    opaque = make_request(session, "a")
    session.data_to_send()
    asked = RemotingCommand(307, opaque)
    session.receive_data(encode_frame(asked) + answer(opaque))
    assert waiters_answered(session) == ["a"]
    assert [request.code for request in session.requests] == [307]
    session.respond(RemotingCommand(0, opaque, RESPONSE_FLAG))
    make_request(session, "b")
    assert [each.is_response for each in requests_in(session.data_to_send())] == [False, True]
    assert session.data_to_send() == b""
