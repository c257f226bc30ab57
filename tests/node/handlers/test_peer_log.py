"""What nodes are told of a log, signed; in quarantine nothing."""

from pathlib import Path

import msgspec
import pytest

from ha.errors import NotServed, NotServedError
from node.handlers.peer_log import PeerLog
from node.security.request import handler_table
from tandem.wire.peer_log import FileFingerprint, LogRangeHeader, PeerLogPart
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_signature import CHALLENGE_FIELD, is_rightly_answered
from tandem.wire.response_code import ResponseCode
from tandem.wire.secret_keys import Purpose, key_of
from tests.node.doubles import Client
from tests.node.world import fenced_cluster
from tests.support.secret import SECRET

PART = PeerLogPart(
    node="a2",
    log_start=0,
    confirm=9,
    bad=((1, 2),),
    fingerprint=FileFingerprint(start=0, size=4, crcs=b"\xff\0ab", written_from=0),
)
KEY = key_of(SECRET, Purpose.REQUEST)


class FakeReplica:
    def __init__(self) -> None:
        self.is_quarantined = False
        self.served_log = self
        self.doubts: list[tuple[int, int]] = []

    def why_not_served(self) -> str:
        return "in quarantine"

    def part(self, start: int, end: int) -> PeerLogPart:
        if start > end:
            raise NotServedError("that is nothing", NotServed.TOO_MUCH)
        return PART

    def data(self, start: int, end: int, history: str = "") -> bytes:
        self.history = history
        if start > end:
            raise NotServedError("that is nothing", NotServed.TOO_MUCH)
        return b"x" * (end - start)

    def doubted(self, start: int, end: int) -> None:
        self.doubts.append((start, end))


class Node:
    def __init__(self, directory: Path) -> None:
        self.replica = FakeReplica()
        config = fenced_cluster(directory).with_secret().node("a2")
        self.client = Client(handler_table(PeerLog(config, self.replica)))

    def ask(self, code: int, start: int, end: int) -> RemotingCommand:
        fields = {"start": str(start), "end": str(end), CHALLENGE_FIELD: "n"}
        return self.client.call(code, fields)


def test_the_header_is_two_numbers_and_a_history_if_one_is_known() -> None:
    fields = RemotingCommand(1, ext=LogRangeHeader(7, 9)).ext_fields()
    assert fields == {"start": "7", "end": "9"}
    fields = RemotingCommand(1, ext=LogRangeHeader(7, 9, "ab")).ext_fields()
    assert fields == {"start": "7", "end": "9", "history": "ab"}


async def test_the_history_is_passed_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.ask(RequestCode.LOG_BYTES, 3, 7)
    assert node.replica.history == ""
    fields = {"start": "3", "end": "7", "history": "ab", CHALLENGE_FIELD: "n"}
    node.client.call(RequestCode.LOG_BYTES, fields)
    assert node.replica.history == "ab"


def test_a_version_that_does_not_say_where_its_log_ends_gives_what_is_confirmed() -> None:
    part = msgspec.json.decode(b'{"node":"a2","log_start":0,"confirm":9}', type=PeerLogPart)
    assert (part.confirm, part.log_end) == (9, 0)


async def test_the_answers_are_signed_for_the_request(tmp_path: Path) -> None:
    node = Node(tmp_path)
    answer = node.ask(RequestCode.LOG_FINGERPRINTS, 0, 4)
    assert answer.body == (
        b'{"node":"a2","log_start":0,"confirm":9,"log_end":0,"epochs":[],"bad":[[1,2]],'
        b'"fingerprint":{"start":0,"size":4,"crcs":"/wBhYg==","written_from":0}}'
    )
    assert msgspec.json.decode(answer.body, type=PeerLogPart) == PART
    fields = answer.ext_fields()
    assert is_rightly_answered(KEY, RequestCode.LOG_FINGERPRINTS, "n", fields, answer.body)
    answer = node.ask(RequestCode.LOG_BYTES, 3, 7)
    assert answer.body == b"xxxx"
    assert is_rightly_answered(KEY, RequestCode.LOG_BYTES, "n", answer.ext_fields(), b"xxxx")
    assert not is_rightly_answered(KEY, RequestCode.LOG_BYTES, "m", answer.ext_fields(), b"xxxx")


async def test_a_doubt_is_passed_on(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.ask(RequestCode.LOG_DAMAGED, 3, 7).code == 0
    assert node.replica.doubts == [(3, 7)]


@pytest.mark.parametrize("code", [RequestCode.LOG_FINGERPRINTS, RequestCode.LOG_BYTES])
async def test_what_is_not_served_is_refused_in_words(tmp_path: Path, code: int) -> None:
    answer = Node(tmp_path).ask(code, 7, 3)
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, "that is nothing")


@pytest.mark.parametrize(
    "code", [RequestCode.LOG_FINGERPRINTS, RequestCode.LOG_BYTES, RequestCode.LOG_DAMAGED]
)
async def test_in_quarantine_nothing_is_served(tmp_path: Path, code: int) -> None:
    node = Node(tmp_path)
    node.replica.is_quarantined = True
    answer = node.ask(code, 3, 7)
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "in quarantine")
    assert node.replica.doubts == []
