"""How a connection signs, and what it does where seals are not known."""

import msgspec
import pytest

from tandem.client.credentials import Credentials
from tandem.client.session import RequestState, Session
from tandem.client.signer import Signer, SignerState
from tandem.wire.acl_signature import ACL_SIGNATURE_FIELD, acl_signature
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.frame_seal import FrameSeal, Signatures, SignInHeader, connection_key
from tandem.wire.remoting_command import (
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import QueueRequestHeader
from tandem.wire.request_signature import ChallengeBody
from tandem.wire.response_code import ResponseCode

KEYS = Credentials("alice", "a secret of alice")
ADDRESS, NAMED = "10.0.0.1:10911", "node-1.example.com:10911"
NODE = ChallengeBody("once", "of the connection", "10.0.0.1:10911")
ANY, PROOF = Signatures.ANY, Signatures.REPLAY_PROOF
NEVER = float("inf")


def session_of(
    signatures: Signatures = PROOF, address: str = ADDRESS, *, has_tls: bool = False
) -> Session[str]:
    return Session(signer=Signer(KEYS, address, signatures, has_tls=has_tls))


def ask(session: Session[str], waiter: str) -> int:
    return session.request(
        RequestCode.GET_MAX_OFFSET, QueueRequestHeader("T", 0), b"x", waiter, NEVER
    )


def sent(session: Session[str]) -> list[tuple[RemotingCommand, bytes]]:
    """Return requests and their sealed frames."""
    frames, found = FrameBuffer(), []
    frames.receive_data(session.data_to_send())
    while (command := frames.next_command()) is not None:
        found.append((command, frames.sealed_frame()))
    return found


def answer(session: Session[str], opaque: int, body: object = None, code: int = 0) -> None:
    data = b"" if body is None else msgspec.json.encode(body)
    session.receive_data(encode_frame(RemotingCommand(code, opaque, RESPONSE_FLAG, body=data)))


def answers(session: Session[str]) -> list[tuple[str, RemotingCommand]]:
    return list(iter(session.next_answer, None))


def asked(session: Session[str]) -> int:
    """Return the opaque of the question; nothing else has left."""
    ((command, sealed),) = sent(session)
    assert (command.code, sealed) == (RequestCode.NODE_CHALLENGE, b"")
    return command.opaque


@pytest.mark.parametrize(
    ("address", "has_tls", "target"),
    [
        (ADDRESS, False, ADDRESS),
        ("10.0.0.7:9999", False, "10.0.0.7:9999"),
        ("10.0.0.7:9999", True, NODE.address),
        (NAMED, False, NODE.address),
    ],
)
def test_what_waits_leaves_sealed_after_who_signs_in(
    *, address: str, has_tls: bool, target: str
) -> None:
    session = session_of(address=address, has_tls=has_tls)
    first, second = ask(session, "a"), ask(session, "b")
    assert session.state_of(second) is RequestState.GATHERED
    answer(session, asked(session), NODE)
    assert answers(session) == []
    assert session.has_to_send
    third = ask(session, "c")
    seal = FrameSeal(connection_key(KEYS.secret_key, "alice", NODE.connection, target))
    commands = sent(session)
    for command, frame in commands:
        assert command.serialize_type is SerializeType.MSGPACK
        assert ACL_SIGNATURE_FIELD not in command.ext_fields()
        number = seal.number_of(command.opaque)
        assert number is not None
        assert seal.is_good(number, frame[:-32], frame[-32:])
        seal.last = number
    sign_in, *others = [command for command, _ in commands]
    assert sign_in.code == RequestCode.SIGN_IN
    assert sign_in.is_oneway
    assert sign_in.decode_header(SignInHeader) == SignInHeader("alice", target)
    assert [command.opaque for command in others] == [first, second, third]
    assert "secret" not in repr(sign_in)


def test_what_is_withdrawn_while_it_waits_is_never_sent() -> None:
    session = session_of()
    first, second = ask(session, "a"), ask(session, "b")
    abandoned = session.forget(first)
    assert abandoned is not None
    assert not abandoned.outcome_unknown
    answer(session, asked(session), NODE)
    assert answers(session) == []
    assert [command.opaque for command, _ in sent(session)][1:] == [second]


def test_a_lost_connection_tells_that_what_waits_has_not_left() -> None:
    session = session_of()
    ask(session, "a")
    asked(session)
    assert [each.outcome_unknown for each in session.connection_lost()] == [False]


OLD = ChallengeBody("once")


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (0, OLD),
        (0, None),
        (0, [1]),
        (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None),
        (ResponseCode.NO_PERMISSION, None),
        (ResponseCode.SYSTEM_ERROR, None),
    ],
)
@pytest.mark.parametrize(("signatures", "has_tls"), [(ANY, False), (PROOF, True), (ANY, True)])
def test_a_broker_without_seals_gets_signatures_of_rocketmq_where_that_is_no_way_back(
    *, code: int, body: object, signatures: Signatures, has_tls: bool
) -> None:
    session = session_of(signatures, has_tls=has_tls)
    ask(session, "a")
    answer(session, asked(session), body, code)
    assert answers(session) == []
    ask(session, "b")
    for command, sealed in sent(session):
        assert sealed == b""
        assert command.serialize_type is SerializeType.JSON
        fields = command.ext_fields()
        assert fields["AccessKey"] == "alice"
        right = acl_signature(KEYS.secret_key, fields, command.body)
        assert fields[ACL_SIGNATURE_FIELD] == right


@pytest.mark.parametrize("code", [0, 3, 16, 1])
def test_in_clear_nothing_leaves_that_could_be_sent_again(code: int) -> None:
    """Whoever is on the way can say that the node knows no seals."""
    session = session_of()
    ask(session, "a")
    ask(session, "b")
    answer(session, asked(session), OLD, code)
    refused = answers(session)
    assert [waiter for waiter, _ in refused] == ["a", "b"]
    assert {each.code for _, each in refused} == {ResponseCode.NO_PERMISSION}
    assert 'signatures="any"' in str(refused[0][1].remark)
    assert session.data_to_send() == b""
    # The next request asks again: the node may have been replaced by a newer one.
    third = ask(session, "c")
    answer(session, asked(session), NODE)
    assert answers(session) == []
    assert [command.opaque for command, _ in sent(session)][1:] == [third]


def test_a_node_that_serves_nobody_at_the_moment_is_not_taken_for_an_old_one() -> None:
    session = session_of(ANY)
    opaque = ask(session, "a")
    answer(session, asked(session), None, ResponseCode.SERVICE_NOT_AVAILABLE)
    ((waiter, refusal),) = answers(session)
    assert (waiter, refusal.code) == ("a", ResponseCode.SERVICE_NOT_AVAILABLE)
    assert refusal.opaque == opaque
    ask(session, "b")
    answer(session, asked(session), NODE)
    assert answers(session) == []
    assert len(sent(session)) == 2


def test_states_are_as_drawn() -> None:
    signer = Signer(KEYS, ADDRESS, PROOF, has_tls=False)
    states = [signer.state]
    assert signer.answered(RemotingCommand(3)) is not None
    states.append(signer.state)
    body = msgspec.json.encode(NODE)
    assert signer.answered(RemotingCommand(0, body=body)) is None
    states.append(signer.state)
    assert states == [SignerState.ASKING, SignerState.ASKING, SignerState.SEALING]
