from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ha.fenced.connection
from ha.errors import (
    HAError,
    HandshakeError,
    LinkFault,
    LinkRefusedError,
    LocalHAError,
    RemoteHAError,
    ReportBeyondSentError,
    ReportError,
    SlaveAheadError,
    SlaveTooOldError,
)
from ha.fenced.connection import (
    Acked,
    FencedConnection,
    FencedConnectionState,
    Introduced,
    LinkMaster,
    LogBounds,
    Objected,
    WantsJoin,
)
from ha.fenced.epochs import EpochEntry
from ha.fenced.protocol import (
    ENVELOPE,
    Attach,
    Challenge,
    FrameHeader,
    HandshakeMessage,
    Hello,
    Joined,
    Objection,
    Refused,
    Report,
    Welcome,
    decode_frame_header,
    decode_message,
    encode_message,
    is_proven,
    proven,
)
from ha.link.limits import TRANSFER_BODY_BYTES_MAX
from tests.ha.sealed_wire import reports
from tests.ha.state_table import cells, check_cell

ENTRIES = (EpochEntry(2, 100), EpochEntry(4, 1000), EpochEntry(7, 1500))
MASTER = LinkMaster(
    cluster="C",
    group="g",
    name="a",
    incarnation="i-a",
    members=frozenset({"b", "c"}),
    secret="secret",
    epoch=7,
    entries=ENTRIES,
    file_size_bytes=4096,
)
LOG = LogBounds(start=50, end=2000, confirm=1900)
HELLO = Hello(
    cluster="C",
    group="g",
    node="b",
    incarnation="i-b",
    epoch=7,
    file_size_bytes=4096,
    nonce="n-b",
)


def read(data: bytes) -> HandshakeMessage:
    found = decode_message(data, 1 << 20)
    assert found is not None
    assert found[1] == len(data)
    return found[0]


def new_connection() -> FencedConnection:
    return FencedConnection(MASTER, "n-a")


def hello_bytes(secret: str = "secret", **changes: object) -> bytes:
    hello = msgspec.structs.replace(HELLO, **changes)
    return encode_message(proven(hello, secret, "n-a", hello.nonce))


def say(
    connection: FencedConnection, data: bytes
) -> Introduced | WantsJoin | Objected | Acked | None:
    connection.receive_data(data)
    return connection.next_event(LOG)


def introduced() -> FencedConnection:
    connection = new_connection()
    assert isinstance(say(connection, hello_bytes()), Introduced)
    return connection


def attach_bytes(offset: int = 1200, secret: str = "secret") -> bytes:
    attach = Attach(offset=offset, check_from=min(offset, 60), checksum="same")
    return encode_message(proven(attach, secret, "n-a", "n-b"))


def objection_bytes(secret: str = "secret") -> bytes:
    objection = Objection(parting=900, confirm=1900)
    return encode_message(proven(objection, secret, "n-a", "n-b"))


def joining(offset: int = 1200) -> FencedConnection:
    connection = introduced()
    assert say(connection, attach_bytes(offset)) == WantsJoin(offset, min(offset, 60))
    return connection


def attached(offset: int = 1200) -> FencedConnection:
    connection = joining(offset)
    joined = read(connection.join("same"))
    assert isinstance(joined, Joined)
    assert is_proven(joined, "secret", "n-a", "n-b")
    return connection


def closed() -> FencedConnection:
    connection = attached()
    connection.close()
    return connection


def test_the_diagram_names_every_state() -> None:
    assert ha.fenced.connection.__doc__ is not None
    for state in FencedConnectionState:
        assert state.name in ha.fenced.connection.__doc__


STATES: dict[str, Callable[[], FencedConnection]] = {
    "WAIT_HELLO": new_connection,
    "WAIT_ATTACH": introduced,
    "JOINING": joining,
    "TRANSFER": attached,
    "CLOSED": closed,
}
EVENTS: dict[str, Callable[[FencedConnection], object]] = {
    "HELLO": lambda connection: say(connection, hello_bytes()),
    "bad HELLO": lambda connection: say(connection, hello_bytes("guess")),
    "ATTACH": lambda connection: say(connection, attach_bytes()),
    "OBJECTION": lambda connection: say(connection, objection_bytes()),
    "bad OBJECTION": lambda connection: say(connection, objection_bytes("guess")),
    "join": lambda connection: connection.join("same"),
    "join otherwise": lambda connection: connection.join("other"),
    "report": lambda connection: say(connection, reports(*[Report(7, 1200, 0)] * 200)),
    "bad report": lambda connection: say(connection, reports(*[Report(7, 9999, 0)] * 200)),
    "transfer": lambda connection: connection.transfer(b"x", confirm=0, flush_wanted=0),
    "heartbeat": lambda connection: connection.heartbeat(confirm=0, flush_wanted=0),
    "close": FencedConnection.close,
}
TABLE = cells(
    {
        "WAIT_HELLO": {
            "WAIT_ATTACH": "HELLO",
            LinkRefusedError: "bad HELLO",
            HandshakeError: "ATTACH, OBJECTION, bad OBJECTION, report, bad report",
            LocalHAError: "join, join otherwise, transfer, heartbeat",
            "CLOSED": "close",
        },
        "WAIT_ATTACH": {
            HandshakeError: "HELLO, bad HELLO, bad OBJECTION, report, bad report",
            "JOINING": "ATTACH",
            "CLOSED": "OBJECTION, close",
            LocalHAError: "join, join otherwise, transfer, heartbeat",
        },
        "JOINING": {
            "JOINING": "HELLO, bad HELLO, ATTACH, OBJECTION, bad OBJECTION, report, bad report",
            "TRANSFER": "join",
            LinkRefusedError: "join otherwise",
            LocalHAError: "transfer, heartbeat",
            "CLOSED": "close",
        },
        "TRANSFER": {
            ReportError: "HELLO, bad HELLO, ATTACH, OBJECTION, bad OBJECTION",
            LocalHAError: "join, join otherwise",
            "TRANSFER": "report, transfer, heartbeat",
            ReportBeyondSentError: "bad report",
            "CLOSED": "close",
        },
        "CLOSED": {
            "CLOSED": "HELLO, bad HELLO, ATTACH, OBJECTION, bad OBJECTION, report, bad report"
            ", close",
            LocalHAError: "join, join otherwise, transfer, heartbeat",
        },
    }
)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state(state: str, event: str) -> None:
    connection = STATES[state]()
    outcome = TABLE[state, event]
    act = partial(EVENTS[event], connection)
    check_cell(state, outcome, act, lambda: connection.state.name, broken="CLOSED")


# Handshake


def test_the_master_speaks_first() -> None:
    assert read(new_connection().challenge()) == Challenge(nonce="n-a")


def test_a_welcome_says_what_a_follower_needs_and_proves_it() -> None:
    event = say(new_connection(), hello_bytes())
    assert isinstance(event, Introduced)
    assert (event.name, event.incarnation) == ("b", "i-b")
    welcome = read(event.reply)
    assert isinstance(welcome, Welcome)
    assert is_proven(welcome, "secret", "n-a", "n-b")
    assert (welcome.epoch, welcome.node, welcome.epochs) == (7, "a", ENTRIES)
    assert (welcome.log_start, welcome.log_end, welcome.confirm) == (50, 2000, 1900)


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (hello_bytes(version=0), "version of the link 0 is not that of a, 3"),
        (hello_bytes(cluster="D"), "cluster 'D' is not that of a, 'C'"),
        (hello_bytes(group="h"), "group 'h' is not that of a, 'g'"),
        (hello_bytes("guess"), "another secret"),
        (hello_bytes(node="x"), "'x' is not another node of group g"),
        (hello_bytes(node="a"), "'a' is not another node of group g"),
        (hello_bytes(file_size_bytes=8192), "8192 bytes, those of a 4096"),
        (hello_bytes(epoch=8), "promised epoch 8, a is the master of epoch 7"),
    ],
)
def test_who_is_not_served_is_told_why(hello: bytes, words: str) -> None:
    connection = new_connection()
    with pytest.raises(LinkRefusedError, match=words):
        say(connection, hello)
    refused = read(connection.farewell)
    assert isinstance(refused, Refused)
    assert words in refused.reason
    assert connection.name == ""


def test_a_hello_that_was_overheard_is_worth_nothing() -> None:
    """The number used once is another one on the next connection."""
    with pytest.raises(LinkRefusedError, match="another secret"):
        say(FencedConnection(MASTER, "n-a2"), hello_bytes())


def test_a_stranger_cannot_have_much_read() -> None:
    connection = new_connection()
    with pytest.raises(HandshakeError) as caught:
        say(connection, ENVELOPE.pack(4097, 0))
    assert caught.value.fault is LinkFault.SIZE


@given(st.binary(max_size=200), st.sampled_from(["WAIT_HELLO", "WAIT_ATTACH", "TRANSFER"]))
def test_random_bytes_change_nothing(data: bytes, state: str) -> None:
    connection = STATES[state]()
    before = connection.next_offset, connection.written, connection.flushed
    try:
        for start in range(0, len(data), 7):
            assert say(connection, data[start : start + 7]) is None
    except RemoteHAError:
        assert connection.state is FencedConnectionState.CLOSED
    assert (connection.next_offset, connection.written, connection.flushed) == before


@pytest.mark.parametrize(
    ("offset", "error"), [(2001, SlaveAheadError), (49, SlaveTooOldError), (0, SlaveTooOldError)]
)
def test_a_follower_attaches_within_the_log_only(offset: int, error: type[HAError]) -> None:
    with pytest.raises(error):
        attached(offset)


def test_other_bytes_before_the_joint_end_the_connection_with_a_word() -> None:
    connection = joining()
    with pytest.raises(LinkRefusedError, match="other bytes between 60 and 1200"):
        connection.join("other")
    joined = read(connection.farewell)
    assert isinstance(joined, Joined)
    assert joined.checksum == "other"
    assert is_proven(joined, "secret", "n-a", "n-b")
    assert connection.next_offset == 0


def test_an_objection_names_what_was_confirmed() -> None:
    assert say(introduced(), objection_bytes()) == Objected(900, 1900)


@pytest.mark.parametrize("check_from", [49, 1201])
def test_only_bytes_that_both_have_are_compared(check_from: int) -> None:
    attach = Attach(offset=1200, check_from=check_from, checksum="same")
    with pytest.raises(HandshakeError) as caught:
        say(introduced(), encode_message(proven(attach, "secret", "n-a", "n-b")))
    assert caught.value.fault is LinkFault.PLACE


def test_whatever_the_cuts_a_follower_is_understood() -> None:
    wire = hello_bytes() + attach_bytes()
    wire += reports(Report(7, 1200, 1100), Report(7, 1200, 1150))
    for size in (1, 3, 7, 50, 1000):
        connection = new_connection()
        events = []
        for start in range(0, len(wire), size):
            connection.receive_data(wire[start : start + size])
            while (event := connection.next_event(LOG)) is not None:
                events.append(event)
                if isinstance(event, WantsJoin):
                    connection.join("same")
        assert isinstance(events[0], Introduced)
        assert events[1] == WantsJoin(1200, 60)
        assert events[-1] == Acked(1200, 1150)


# Frames


def sent(connection: FencedConnection, size: int) -> tuple[FrameHeader, int]:
    """Send so much as one frame; return its header and how much was allowed."""
    allowed = connection.frame_bytes_max()
    body = bytes(min(size, allowed))
    wire = connection.transfer(body, confirm=1800, flush_wanted=1700)
    header, _, _ = decode_frame_header(wire, 0)
    return header, allowed


def test_every_frame_has_the_epoch_of_its_bytes_and_none_crosses_an_epoch() -> None:
    connection = attached(60)
    seen = []
    while connection.next_offset < 2000:
        header, _ = sent(connection, 300)
        seen.append((header.offset, header.size, header.epoch, header.epoch_start))
    assert seen == [
        (60, 40, 0, 0),
        *((offset, 300, 2, 100) for offset in (100, 400, 700)),
        (1000, 300, 4, 1000),
        (1300, 200, 4, 1000),
        (1500, 300, 7, 1500),
        (1800, 300, 7, 1500),
    ]


def test_a_frame_says_what_is_confirmed_and_what_shall_be_flushed() -> None:
    connection = attached()
    header, _ = sent(connection, 10)
    assert (header.confirm, header.flush_wanted) == (1800, 1700)
    assert (connection.sent_confirm, connection.sent_flush_wanted) == (1800, 1700)
    header, _, _ = decode_frame_header(connection.heartbeat(confirm=1900, flush_wanted=1950), 0)
    assert header == FrameHeader(0, 1210, 4, 1000, 1900, 1950)
    assert connection.next_offset == 1210


def test_a_heartbeat_at_the_end_names_the_epoch_in_which_nothing_was_written_yet() -> None:
    connection = attached(1400)
    assert connection.has_untold_epoch
    sent(connection, 100)
    assert connection.has_untold_epoch
    header, _, _ = decode_frame_header(connection.heartbeat(confirm=0, flush_wanted=0), 0)
    assert (header.offset, header.epoch, header.epoch_start) == (1500, 7, 1500)
    assert not connection.has_untold_epoch


def test_a_frame_across_an_epoch_or_without_a_body_or_too_large_is_a_bug_of_ours() -> None:
    for offset, size in ((1400, 101), (1400, 0), (1500, TRANSFER_BODY_BYTES_MAX + 1)):
        with pytest.raises(LocalHAError, match="is not allowed"):
            attached(offset).transfer(bytes(size), confirm=0, flush_wanted=0)


# Reports


def test_of_reports_that_arrive_together_the_last_one_counts() -> None:
    connection = attached(1200)
    sent(connection, 100)
    wire = reports(*(Report(7, 1200 + n, 1100 + n) for n in (0, 50, 100)))
    assert say(connection, wire) == Acked(1300, 1200)
    assert (connection.written, connection.flushed) == (1300, 1200)
    assert connection.next_event(LOG) is None


def test_reports_can_be_asked_for_without_the_bounds_of_the_log() -> None:
    connection = attached(1200)
    sent(connection, 100)
    wire = reports(Report(7, 1200, 1100), Report(7, 1250, 1150), Report(7, 9999, 0))
    half = len(wire) // 3 * 2 - 7
    connection.receive_data(wire[:half])
    assert connection.acknowledged() == Acked(1200, 1100)
    assert connection.acknowledged() is None
    connection.receive_data(wire[half : len(wire) // 3 * 2])
    assert connection.acknowledged() == Acked(1250, 1150)
    connection.receive_data(wire[len(wire) // 3 * 2 :])
    with pytest.raises(ReportBeyondSentError):
        connection.acknowledged()
    assert connection.state is FencedConnectionState.CLOSED
    assert connection.acknowledged() is None
    assert joining().acknowledged() is None


def test_a_follower_with_an_empty_log_reports_nothing_yet() -> None:
    """It attaches where the master's log begins, and has not a byte before it got one."""
    assert say(attached(50), reports(Report(7, 0, 0))) == Acked(0, 0)


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        (Report(7, 1301, 0), None),
        (Report(7, 2**62, 0), None),
        (Report(6, 1300, 0), LinkFault.EPOCH),
        (Report(8, 1300, 0), LinkFault.EPOCH),
        (Report(7, 1249, 1100), LinkFault.VALUES),
        (Report(7, 1250, 1099), LinkFault.VALUES),
        (Report(7, -1, -1), LinkFault.VALUES),
        (Report(7, 1260, 1261), LinkFault.VALUES),
    ],
)
def test_a_report_that_cannot_be_true_ends_the_connection_and_does_not_count(
    report: Report, fault: LinkFault | None
) -> None:
    connection = attached(1200)
    sent(connection, 100)
    assert say(connection, reports(Report(7, 1250, 1100))) == Acked(1250, 1100)
    with pytest.raises(ReportError if fault else ReportBeyondSentError) as caught:
        say(connection, reports(report, first=1))
    assert getattr(caught.value, "fault", None) is fault
    assert connection.state is FencedConnectionState.CLOSED
    assert (connection.written, connection.flushed) == (1250, 1100)
    assert say(connection, reports(Report(7, 1300, 1300), first=2)) is None


def test_what_a_closed_connection_says_is_ignored() -> None:
    assert say(closed(), reports(Report(7, 1200, 1200))) is None


def test_a_report_that_was_left_out_sent_again_or_changed_ends_the_connection() -> None:
    first, second = Report(7, 1250, 1100), Report(7, 1260, 1100)
    changed = bytearray(reports(first))
    changed[-1] ^= 1
    for wire in (
        reports(first, first=1),
        reports(first) * 2,
        reports(first) + reports(second, first=2),
        bytes(changed),
    ):
        connection = attached(1200)
        sent(connection, 100)
        with pytest.raises(ReportError) as caught:
            say(connection, wire)
        assert caught.value.fault is LinkFault.SEAL
        assert connection.state is FencedConnectionState.CLOSED


def test_who_attaches_without_a_proof_is_sent_away() -> None:
    with pytest.raises(HandshakeError) as caught:
        say(introduced(), attach_bytes(secret="guess"))
    assert caught.value.fault is LinkFault.PROOF
