from collections.abc import Callable
from functools import partial
from itertools import cycle

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ha.fenced.client
from ha.errors import (
    CorruptTransferError,
    FrameError,
    HAError,
    HandshakeError,
    LinkFault,
    LinkRefusedError,
    LocalHAError,
    MasterDeposedError,
    OffsetMismatchError,
    RemoteHAError,
)
from ha.fenced.client import (
    Attached,
    BeginEpoch,
    Event,
    FencedClient,
    FencedClientState,
    Object,
    SendHello,
)
from ha.fenced.connection import FencedConnection, Introduced, LinkMaster, LogBounds, WantsJoin
from ha.fenced.epochs import EpochEntries, EpochEntry, entry_at
from ha.fenced.joining import AttachLog, Diverged, NeedsFullCopy, NeedsTruncation, OwnLog
from ha.fenced.link_follower import LinkFollower
from ha.fenced.protocol import (
    HEAD_BYTES,
    Attach,
    Challenge,
    FrameHeader,
    Hello,
    Joined,
    Objection,
    Refused,
    Report,
    Welcome,
    decode_message,
    decode_report,
    encode_message,
    is_proven,
    proven,
)
from ha.link.whole_records import AppendBody
from tests.ha.sealed_wire import Frame, wire
from tests.ha.small_logs import FILE_SIZE_BYTES, RECORD_BYTES_MAX, build_log
from tests.ha.state_table import cells, check_cell
from tests.support.log_builder import record_starts

LOG = build_log([bytes([i]) * (i * 37 % 700) for i in range(60)])
"""Sixty records over several files."""
STARTS = record_starts(LOG)

FIRST, SECOND, THIRD = STARTS[0], STARTS[9], STARTS[30]
ENTRIES = (EpochEntry(2, FIRST), EpochEntry(4, SECOND), EpochEntry(7, THIRD))

FOLLOWER = LinkFollower(
    cluster="C",
    group="g",
    name="b",
    incarnation="i-b",
    secret="secret",
    master="a",
    epoch=7,
    file_size_bytes=FILE_SIZE_BYTES,
    record_bytes_max=RECORD_BYTES_MAX,
    check_crc=True,
)
MASTER = LinkMaster(
    cluster="C",
    group="g",
    name="a",
    incarnation="i-a",
    members=frozenset({"b", "c"}),
    secret="secret",
    epoch=7,
    entries=ENTRIES,
    file_size_bytes=FILE_SIZE_BYTES,
)
WELCOME = Welcome(
    epoch=7,
    node="a",
    incarnation="i-a",
    epochs=ENTRIES,
    log_start=0,
    log_end=len(LOG),
    confirm=THIRD,
)
CHALLENGE = encode_message(Challenge(nonce="n-a"))
OTHERWISE = encode_message(proven(Joined(checksum="other"), "secret", "n-a", "n-b"))
JOINED = encode_message(proven(Joined(checksum="same"), "secret", "n-a", "n-b"))


def own_log(
    end: int = 0, entries: EpochEntries = (), *, confirm: int = 0, promised: int = 7
) -> OwnLog:
    return OwnLog(end=end, confirm=confirm, entries=entries, promised=promised)


def welcome_bytes(secret: str = "secret", /, **changes: object) -> bytes:
    welcome = msgspec.structs.replace(WELCOME, **changes)
    return encode_message(proven(welcome, secret, "n-a", "n-b"))


def frame(offset: int, body: bytes, *, epoch: int | None = None, start: int | None = None) -> Frame:
    """A frame that a master could send."""
    entry = entry_at(ENTRIES, offset)
    assert entry is not None
    header = FrameHeader(
        size=len(body),
        offset=offset,
        epoch=entry.epoch if epoch is None else epoch,
        epoch_start=entry.start if start is None else start,
        confirm=SECOND,
        flush_wanted=THIRD,
    )
    return Frame(header, body)


def frames(start: int, end: int, frame_bytes: int) -> list[Frame]:
    """Cut the log into frames as a master does: anywhere, but not across files and epochs."""
    found = []
    while start < end:
        file_end = start - start % FILE_SIZE_BYTES + FILE_SIZE_BYTES
        epoch_end = min((e.start for e in ENTRIES if e.start > start), default=end)
        stop = min(start + frame_bytes, file_end, epoch_end, end)
        found.append(frame(start, LOG[start:stop]))
        start = stop
    return found


class Follower:
    """A client, the log it writes and the list of epochs beside it."""

    def __init__(self, own: OwnLog | None = None, *, follower: LinkFollower = FOLLOWER) -> None:
        self.own = own or own_log()
        self.log = bytearray(LOG[: self.own.end])
        self.start = 0
        self.entries = self.own.entries
        self.client = FencedClient(follower)
        self.said = b""
        """Our ATTACH."""

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    def connect(self) -> None:
        self.client.connected(self.own, "n-b")

    def receive(self, data: bytes) -> list[Event]:
        self.client.receive_data(data)
        events = []
        while (event := self.client.next_event()) is not None:
            events.append(event)
            if isinstance(event, AttachLog):
                self.entries = event.entries
                self.start = event.offset - len(self.log)
                self.said = self.client.attach("same")
            elif isinstance(event, BeginEpoch):
                assert event.start == self.end
                kept = tuple(entry for entry in self.entries if entry.start < event.start)
                self.entries = (*kept, EpochEntry(event.epoch, event.start, event.id))
            elif isinstance(event, AppendBody):
                assert event.offset == self.end
                assert self.client.data_epoch == self.entries[-1].epoch
                self.log += event.body
        return events

    def join(self, **changes: object) -> Event:
        """Connect to a master; return how the two logs belong together."""
        self.connect()
        self.receive(CHALLENGE)
        (event,) = self.receive(welcome_bytes(**changes))
        if isinstance(event, AttachLog):
            assert self.receive(JOINED) == [Attached(event.offset)]
        return event


def greeted() -> Follower:
    follower = Follower()
    follower.connect()
    follower.receive(CHALLENGE)
    return follower


def joining() -> Follower:
    follower = greeted()
    follower.receive(welcome_bytes())
    return follower


def challenged() -> Follower:
    follower = Follower()
    follower.connect()
    return follower


def attached(own: OwnLog | None = None) -> Follower:
    follower = Follower(own)
    assert isinstance(follower.join(), AttachLog)
    return follower


def ended() -> Follower:
    follower = Follower(own_log(500, ()))
    assert isinstance(follower.join(), NeedsFullCopy)
    return follower


def broken() -> Follower:
    follower = attached()
    with pytest.raises(OffsetMismatchError):
        follower.receive(wire(frame(5, b"x")))
    return follower


def test_the_diagram_names_every_state() -> None:
    assert ha.fenced.client.__doc__ is not None
    for state in FencedClientState:
        assert state.name in ha.fenced.client.__doc__


STATES: dict[str, Callable[[], Follower]] = {
    "READY": Follower,
    "CHALLENGED": challenged,
    "GREETED": greeted,
    "JOINING": joining,
    "TRANSFER": attached,
    "ENDED": ended,
    "BROKEN": broken,
}
EVENTS: dict[str, Callable[[Follower], object]] = {
    "connected": Follower.connect,
    "CHALLENGE": lambda follower: follower.receive(CHALLENGE),
    "WELCOME": lambda follower: follower.receive(welcome_bytes()),
    "JOINED": lambda follower: follower.receive(JOINED),
    "JOINED otherwise": lambda follower: follower.receive(OTHERWISE),
    "REFUSED": lambda follower: follower.receive(encode_message(Refused(reason="no"))),
    "frame": lambda follower: follower.receive(wire(frame(0, LOG[: STARTS[3]]))),
    "report": lambda follower: follower.client.report(0, 0),
    "connection_lost": lambda follower: follower.client.connection_lost(),
}
TABLE = cells(
    {
        "READY": {
            "CHALLENGED": "connected",
            LocalHAError: "connection_lost",
        },
        "CHALLENGED": {
            "GREETED": "CHALLENGE",
            HandshakeError: "WELCOME, JOINED, JOINED otherwise, frame",
            LinkRefusedError: "REFUSED",
            "READY": "connection_lost",
        },
        "GREETED": {
            HandshakeError: "CHALLENGE, JOINED, JOINED otherwise, frame",
            "JOINING": "WELCOME",
            LinkRefusedError: "REFUSED",
            "READY": "connection_lost",
        },
        "JOINING": {
            HandshakeError: "CHALLENGE, WELCOME, frame",
            LinkRefusedError: "REFUSED",
            "TRANSFER": "JOINED",
            "ENDED": "JOINED otherwise",
            "JOINING": "report",
            "READY": "connection_lost",
        },
        "TRANSFER": {
            "TRANSFER": "CHALLENGE, REFUSED, frame, report",
            FrameError: "WELCOME, JOINED, JOINED otherwise",
            "READY": "connection_lost",
        },
        "ENDED": {
            "READY": "connection_lost",
        },
        "BROKEN": {
            "READY": "connection_lost",
        },
    }
)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state(state: str, event: str) -> None:
    follower = STATES[state]()
    outcome = TABLE.get((state, event), LocalHAError)
    act = partial(EVENTS[event], follower)
    check_cell(state, outcome, act, lambda: follower.client.state.name, broken="BROKEN")


# Handshake


def test_a_hello_says_who_asks_and_proves_it() -> None:
    follower = Follower(own_log(0, (), promised=6))
    follower.connect()
    (event,) = follower.receive(CHALLENGE)
    assert isinstance(event, SendHello)
    found = decode_message(event.data, 4096)
    assert found is not None
    hello = found[0]
    assert isinstance(hello, Hello)
    assert is_proven(hello, "secret", "n-a", "n-b")
    assert (hello.cluster, hello.group, hello.node) == ("C", "g", "b")
    assert (hello.incarnation, hello.epoch, hello.nonce) == ("i-b", 6, "n-b")


@pytest.mark.parametrize(
    ("welcome", "fault"),
    [
        (welcome_bytes("guess"), LinkFault.PROOF),
        (welcome_bytes(node="c"), LinkFault.OTHER_NODE),
        (welcome_bytes(epoch=8), LinkFault.EPOCH),
        (welcome_bytes(epochs=()), LinkFault.EPOCHS),
        (welcome_bytes(epochs=ENTRIES[:2]), LinkFault.EPOCHS),
        (welcome_bytes(epochs=ENTRIES[::-1]), LinkFault.EPOCHS),
        (welcome_bytes(log_end=THIRD - 1), LinkFault.EPOCHS),
        (welcome_bytes(log_start=10**9), LinkFault.EPOCHS),
        (welcome_bytes(log_start=100), LinkFault.PLACE),
    ],
)
def test_a_master_that_is_not_the_one_to_follow_is_not_followed(
    welcome: bytes, fault: LinkFault
) -> None:
    follower = greeted()
    with pytest.raises(HandshakeError) as caught:
        follower.receive(welcome)
    assert caught.value.fault is fault


def test_a_master_of_an_older_epoch_is_not_followed() -> None:
    with pytest.raises(MasterDeposedError):
        greeted().receive(welcome_bytes(epoch=6))


def test_what_a_master_says_to_refuse_us_moves_no_terminal() -> None:
    with pytest.raises(LinkRefusedError, match=r"refuses us: bad\?\?\[31m"):
        greeted().receive(encode_message(Refused(reason="bad\n\x1b[31m")))


def test_a_master_below_the_promise_is_not_followed() -> None:
    follower = Follower(own_log(0, (), promised=8))
    with pytest.raises(MasterDeposedError):
        follower.join()


@pytest.mark.parametrize(
    ("challenge", "fault"),
    [
        (Challenge(magic="SSH-2.0", nonce="n"), LinkFault.STRANGER),
        (Challenge(version=1, nonce="n"), LinkFault.VERSION),
        (Attach(offset=1, check_from=0, checksum=""), LinkFault.STRANGER),
    ],
)
def test_what_is_no_master_is_not_greeted(challenge: Challenge | Attach, fault: LinkFault) -> None:
    with pytest.raises(HandshakeError) as caught:
        challenged().receive(encode_message(challenge))
    assert caught.value.fault is fault


# How the two logs belong together


def test_an_empty_log_begins_where_the_masters_does() -> None:
    event = Follower().join()
    assert isinstance(event, AttachLog)
    assert (event.offset, event.entries) == (0, ENTRIES[:1])


def test_an_empty_log_begins_at_a_later_file_if_the_masters_first_ones_are_gone() -> None:
    follower = Follower()
    event = follower.join(log_start=FILE_SIZE_BYTES)
    assert isinstance(event, AttachLog)
    assert event.offset == FILE_SIZE_BYTES
    assert event.entries == tuple(e for e in ENTRIES if e.start <= FILE_SIZE_BYTES)
    end = STARTS[40]
    follower.receive(wire(*frames(FILE_SIZE_BYTES, end, 500)))
    assert bytes(follower.log) == LOG[FILE_SIZE_BYTES:end]
    assert follower.entries == ENTRIES


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_log_that_is_a_part_of_the_masters_goes_on_where_it_ends(count: int) -> None:
    """And adopts the epochs that begin where it ends, in which it has nothing yet."""
    end = (STARTS[3], SECOND, STARTS[20], THIRD)[count]
    own = tuple(entry for entry in ENTRIES if entry.start < end)
    follower = Follower(own_log(end, own))
    event = follower.join()
    assert isinstance(event, AttachLog)
    assert event.offset == end
    assert event.entries == tuple(entry for entry in ENTRIES if entry.start <= end)
    found = decode_message(follower.said, 4096)
    attach = proven(Attach(offset=end, check_from=0, checksum="same"), "secret", "n-a", "n-b")
    assert found == (attach, len(follower.said))


def test_an_epoch_of_our_own_in_which_nothing_was_written_gives_way() -> None:
    event = Follower(own_log(THIRD, (*ENTRIES[:2], EpochEntry(6, THIRD)))).join()
    assert isinstance(event, AttachLog)
    assert event.entries == ENTRIES


def test_a_tail_that_the_master_has_not_must_be_cut() -> None:
    own = (*ENTRIES[:2], EpochEntry(6, STARTS[25]))
    follower = Follower(own_log(STARTS[35], own, confirm=STARTS[25]))
    assert follower.join() == NeedsTruncation(
        cut=STARTS[25], end=STARTS[35], entries=ENTRIES[:2], master="a", epoch=7
    )
    assert follower.client.state is FencedClientState.ENDED


def test_what_was_confirmed_is_never_cut() -> None:
    own = (*ENTRIES[:2], EpochEntry(6, STARTS[25]))
    event = Follower(own_log(STARTS[35], own, confirm=STARTS[25] + 1)).join()
    assert isinstance(event, Diverged), "the master has confirmed something else since"
    assert f"part at {STARTS[25]}" in event.reason


def test_a_master_that_lacks_what_was_confirmed_is_told_so() -> None:
    own = (*ENTRIES[:2], EpochEntry(6, STARTS[25]))
    log = own_log(STARTS[35], own, confirm=STARTS[25] + 1)
    follower = Follower(log)
    event = follower.join(confirm=STARTS[25])
    assert isinstance(event, Object)
    assert f"part at {STARTS[25]}" in event.reason
    found = decode_message(event.data, 4096)
    assert found is not None
    objection = found[0]
    assert isinstance(objection, Objection)
    assert (objection.parting, objection.confirm) == (STARTS[25], STARTS[25] + 1)
    assert is_proven(objection, "secret", "n-a", "n-b")
    accepted = Follower(msgspec.structs.replace(log, may_object=False))
    assert isinstance(accepted.join(confirm=STARTS[25]), Diverged)


def test_an_epoch_that_was_given_twice_is_two_epochs() -> None:
    """A coordinator that was set back gives a number again; where it begins may be the same."""
    theirs = (*ENTRIES[:2], EpochEntry(7, THIRD, "a"))
    ours = (*ENTRIES[:2], EpochEntry(7, THIRD, "b"))
    event = Follower(own_log(STARTS[35], ours, confirm=THIRD)).join(epochs=theirs)
    assert isinstance(event, NeedsTruncation)
    assert (event.cut, event.entries) == (THIRD, theirs)
    lost = Follower(own_log(STARTS[35], ours, confirm=THIRD + 1)).join(epochs=theirs)
    assert isinstance(lost, Object)
    unknown = Follower(own_log(STARTS[35], ENTRIES)).join(epochs=theirs)
    assert isinstance(unknown, AttachLog), "the bytes before the joint are compared then"


def test_another_master_of_the_same_epoch_is_not_followed() -> None:
    follower = Follower(follower=msgspec.structs.replace(FOLLOWER, epoch_id="recorded"))
    with pytest.raises(HandshakeError) as caught:
        follower.join(epochs=(*ENTRIES[:2], EpochEntry(7, THIRD, "usurper")))
    assert caught.value.fault is LinkFault.EPOCH


def test_other_bytes_before_the_joint_are_an_alarm() -> None:
    follower = Follower(own_log(STARTS[20], ENTRIES[:2]))
    follower.connect()
    follower.receive(CHALLENGE)
    follower.receive(welcome_bytes())
    (event,) = follower.receive(OTHERWISE)
    assert isinstance(event, Diverged)
    assert f"other bytes between 0 and {STARTS[20]}" in event.reason
    assert follower.client.equal_below == 0


def test_a_joint_that_nobody_has_vouched_for_is_not_believed() -> None:
    follower = joining()
    with pytest.raises(HandshakeError) as caught:
        follower.receive(encode_message(Joined(checksum="same")))
    assert caught.value.fault is LinkFault.PROOF


def test_ids_of_epochs_are_kept() -> None:
    theirs = tuple(EpochEntry(e.epoch, e.start, f"{e.epoch:016x}") for e in ENTRIES)
    follower = Follower()
    follower.join(epochs=theirs)
    follower.receive(wire(*frames(0, len(LOG), 500)))
    assert follower.entries == theirs


def test_a_log_that_was_another_from_the_first_byte_on_is_cut_whole() -> None:
    """Its master had reached nobody when one with an empty log took its place."""
    event = Follower(own_log(STARTS[3], (EpochEntry(1, 0),))).join()
    assert isinstance(event, NeedsTruncation)
    assert event.cut == 0
    assert event.entries == ENTRIES[:1]
    confirmed = Follower(own_log(STARTS[3], (EpochEntry(1, 0),), confirm=1)).join()
    assert isinstance(confirmed, Diverged)
    unconfirmed = Follower(own_log(STARTS[3], (EpochEntry(1, 0),), confirm=1)).join(confirm=0)
    assert isinstance(unconfirmed, Object)


def test_an_epoch_with_two_beginnings_is_an_alarm() -> None:
    event = Follower(own_log(THIRD, (EpochEntry(2, 0), EpochEntry(4, SECOND + 1)))).join()
    assert isinstance(event, Diverged)
    assert "epoch 4 begins at" in event.reason


@pytest.mark.parametrize(
    ("own", "changes", "words"),
    [
        (own_log(500, ()), {}, "no epoch in common"),
        (own_log(500, (EpochEntry(1, 100),)), {}, "no epoch in common"),
        (
            own_log(STARTS[12], ENTRIES[:2]),
            {"log_start": FILE_SIZE_BYTES},
            f"begins at {FILE_SIZE_BYTES}",
        ),
    ],
)
def test_a_log_that_cannot_be_joined_has_to_be_copied_whole(
    own: OwnLog, changes: dict[str, object], words: str
) -> None:
    event = Follower(own).join(**changes)
    assert isinstance(event, NeedsFullCopy)
    assert words in event.reason


# Frames


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.integers(40, 3000),
    st.lists(st.integers(30, 2500), min_size=1, max_size=20),
    st.integers(0, 59),
)
def test_whatever_the_cuts_the_logs_become_equal(
    frame_bytes: int, reads: list[int], first: int
) -> None:
    end = STARTS[first]
    own = own_log(end, tuple(entry for entry in ENTRIES if entry.start < end))
    follower = attached(own)
    data = wire(*frames(end, len(LOG), frame_bytes))
    position = 0
    for size in cycle(reads):
        if position >= len(data):
            break
        follower.receive(data[position : position + size])
        position += size
        assert bytes(follower.log) == LOG[: follower.end]
        assert follower.end in (*STARTS, len(LOG))
    assert bytes(follower.log) == LOG
    assert follower.entries == ENTRIES


def test_an_epoch_is_told_before_its_first_byte_and_behind_the_last_one_before_it() -> None:
    events = attached().receive(wire(*frames(0, len(LOG), 4096)))
    told = [
        (event.offset if isinstance(event, AppendBody) else event.epoch)
        for event in events
        if isinstance(event, AppendBody | BeginEpoch)
    ]
    assert told.index(4) == told.index(SECOND) - 1
    assert told.index(7) == told.index(THIRD) - 1


def test_a_heartbeat_brings_the_epoch_confirm_and_what_to_flush() -> None:
    follower = attached(own_log(STARTS[20], ENTRIES[:2]))
    assert (follower.client.confirm, follower.client.flush_wanted) == (THIRD, 0)
    events = follower.receive(wire(*frames(STARTS[20], THIRD, 4096), frame(THIRD, b"")))
    assert events[-1] == BeginEpoch(7, THIRD)
    assert (follower.client.confirm, follower.client.flush_wanted) == (SECOND, THIRD)


def test_a_report_carries_the_epoch_of_the_master() -> None:
    assert decode_report(attached().client.report(50, 40), 0) == Report(7, 50, 40)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (frame(STARTS[5], LOG[STARTS[5] : STARTS[6]]), OffsetMismatchError),
        (frame(0, LOG[: STARTS[1]]), OffsetMismatchError),
        (frame(STARTS[4], b"x" * 100), CorruptTransferError),
        (frame(STARTS[4], b"", epoch=1, start=0), FrameError),
        (frame(STARTS[4], b"", epoch=2, start=1), FrameError),
        (frame(STARTS[4], b"", epoch=4, start=SECOND), FrameError),
        (frame(STARTS[4], b"", epoch=8, start=STARTS[4]), FrameError),
        (frame(STARTS[4], b"", epoch=2**31 - 1, start=STARTS[4]), FrameError),
        (b"\xff" * 104, FrameError),
    ],
    ids=["gap", "again", "no record", "old", "other start", "early", "newer", "far", "noise"],
)
def test_good_frames_before_a_bad_one_count_and_nothing_of_the_bad_one(
    bad: Frame | bytes, error: type[HAError]
) -> None:
    follower = attached()
    with pytest.raises(error):
        follower.receive(wire(*frames(0, STARTS[4], 300), bad, *frames(STARTS[4], STARTS[8], 300)))
    assert follower.client.state is FencedClientState.BROKEN
    assert bytes(follower.log) == LOG[: STARTS[4]]
    assert follower.entries == ENTRIES[:1]


def test_an_epoch_that_begins_within_a_record_is_refused() -> None:
    follower = attached()
    begin = STARTS[1] + 20
    second = frame(begin, LOG[begin : STARTS[2]], epoch=5, start=begin)
    with pytest.raises(FrameError) as caught:
        follower.receive(wire(frame(0, LOG[:begin]), second))
    assert caught.value.fault is LinkFault.PLACE
    assert follower.end == STARTS[1]


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_a_plain_frame_is_taken_as_any_other(data: st.DataObject) -> None:
    """Reads of one frame or more, cut or whole, sound or damaged: events, errors, what is said."""
    ends = [*STARTS[1:], len(LOG)]
    pieces: list[Frame | bytes] = []
    joined: list[bool] = []
    position = data.draw(st.sampled_from([0, STARTS[7], STARTS[28]]), label="position")
    begin = position
    while position < len(LOG) and len(pieces) < 12:
        following = [end for end in ends if end > position][:4]
        end = min(data.draw(st.sampled_from([*following, position, position + 50])), len(LOG))
        entry = entry_at(ENTRIES, position + data.draw(st.sampled_from([0] * 9 + [900])))
        assert entry is not None
        piece = frame(position, LOG[position:end], epoch=entry.epoch, start=entry.start)
        pieces.append(piece)
        joined.append(data.draw(st.booleans(), label="joined"))
        position = end
    sealed = [wire(piece, first=number) for number, piece in enumerate(pieces)]
    reads: list[bytes] = []
    for piece_bytes, is_joined in zip(sealed, joined, strict=True):
        read = bytearray(piece_bytes)
        if data.draw(st.integers(0, 9)) == 0:
            read[data.draw(st.integers(0, len(read) - 1))] ^= data.draw(st.integers(1, 255))
        if reads and is_joined:
            reads[-1] += bytes(read)
        else:
            reads.append(bytes(read))
    with pytest.MonkeyPatch.context() as patch:
        found = _heard(begin, reads)
        patch.setattr(ha.fenced.client, "PLAIN_FRAME_BYTES_MAX", 0)
        assert _heard(begin, reads) == found


def _heard(begin: int, reads: list[bytes]) -> list[object]:
    follower = attached(own_log(begin, tuple(e for e in ENTRIES if e.start < begin)))
    client = follower.client
    heard: list[object] = []
    try:
        for read in reads:
            client.receive_data(read)
            while (event := client.next_event()) is not None:
                if isinstance(event, AppendBody):
                    heard.append((event.offset, bytes(event.body), event.last_record_offset))
                else:
                    heard.append(event)
            heard.append((client.confirm, client.flush_wanted, client.data_epoch))
    except HAError as error:
        heard.append((type(error), str(error), client.state))
    return heard


def test_a_frame_of_whole_records_is_taken_without_a_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follower = attached()
    follower.receive(wire(frame(0, LOG[: STARTS[1]])))
    monkeypatch.setattr(FencedClient, "_gather", None)
    follower.receive(wire(frame(STARTS[1], LOG[STARTS[1] : STARTS[3]]), first=1))
    assert follower.end == STARTS[3]


ONE_FRAME = wire(frame(STARTS[1], LOG[STARTS[1] : STARTS[3]]), first=1)


@pytest.mark.parametrize("position", range(0, len(ONE_FRAME), 1))
def test_a_bit_that_flips_on_the_wire_is_noticed_and_nothing_of_the_frame_counts(
    position: int,
) -> None:
    follower = attached()
    follower.receive(wire(frame(0, LOG[: STARTS[1]])))
    data = bytearray(ONE_FRAME)
    data[position] ^= 1 << position % 8
    with pytest.raises(FrameError):
        follower.receive(bytes(data))
    assert follower.end == STARTS[1]


@given(st.binary(min_size=HEAD_BYTES, max_size=300))
def test_random_bytes_are_no_frame(data: bytes) -> None:
    follower = attached()
    with pytest.raises(RemoteHAError):
        follower.receive(data)
    assert not follower.log


@given(st.binary(max_size=300), st.sampled_from(["CHALLENGED", "GREETED"]))
def test_random_bytes_are_no_handshake(data: bytes, state: str) -> None:
    follower = STATES[state]()
    try:
        assert follower.receive(data) == []
    except RemoteHAError:
        assert follower.client.state is FencedClientState.BROKEN


@given(st.integers(0, 4000))
def test_a_connection_that_is_lost_within_a_frame_leaves_whole_records(cut: int) -> None:
    follower = attached()
    follower.receive(wire(*frames(0, len(LOG), 1000))[:cut])
    follower.client.connection_lost()
    end = follower.end
    assert end in STARTS
    follower.own = own_log(end, follower.entries)
    event = follower.join()
    assert isinstance(event, AttachLog)
    assert event.offset == end
    follower.receive(wire(*frames(end, len(LOG), 1000)))
    assert bytes(follower.log) == LOG


# Seals


def test_a_frame_that_was_left_out_sent_again_or_moved_is_noticed() -> None:
    """Heartbeats are all alike: nothing but their number tells one from another."""
    beats = [frame(0, b"") for _ in range(3)]
    sealed = [wire(beat, first=number) for number, beat in enumerate(beats)]
    for order in ((1,), (0, 0), (0, 2), (1, 0)):
        follower = attached()
        with pytest.raises(FrameError) as caught:
            follower.receive(b"".join(sealed[number] for number in order))
        assert caught.value.fault is LinkFault.SEAL
    assert attached().receive(b"".join(sealed)) == []


def test_no_epoch_is_begun_for_a_frame_that_was_forged() -> None:
    own = own_log(STARTS[20], ENTRIES[:2])
    (beat,) = [frame(STARTS[20], b"", epoch=7, start=STARTS[20])]
    assert attached(own).receive(wire(beat)) == [BeginEpoch(7, STARTS[20])]
    follower = attached(own)
    with pytest.raises(FrameError) as caught:
        follower.receive(wire(beat, first=1))
    assert caught.value.fault is LinkFault.SEAL
    assert follower.entries == ENTRIES[:2]


def test_other_bytes_with_the_right_checksum_are_noticed() -> None:
    body = LOG[: STARTS[3]]
    good = wire(frame(0, body))
    forged = bytearray(body)
    forged[60] ^= 1
    # Whoever changes packets can make a CRC fit: here by what the master itself would have sent.
    head = bytearray(good[:HEAD_BYTES])
    follower = attached()
    with pytest.raises(FrameError):
        follower.receive(bytes(head) + bytes(forged))
    assert not follower.log
    without = Follower(follower=msgspec.structs.replace(FOLLOWER, digests_bodies=False))
    without.join()
    without.receive(wire(frame(0, body), digests=False))
    assert bytes(without.log) == body
    with pytest.raises(FrameError) as caught:
        attached().receive(wire(frame(0, body), digests=False))
    assert caught.value.fault is LinkFault.DIGEST


# Both engines


@settings(deadline=None)
@given(st.integers(0, 59), st.integers(40, 3000), st.integers(30, 500))
def test_the_two_engines_understand_each_other(first: int, frame_bytes: int, cut: int) -> None:
    end = STARTS[first]
    bounds = LogBounds(0, len(LOG), SECOND)
    master = FencedConnection(MASTER, "n-a")
    follower = Follower(own_log(end, tuple(entry for entry in ENTRIES if entry.start < end)))
    follower.connect()
    (hello,) = follower.receive(master.challenge())
    assert isinstance(hello, SendHello)
    master.receive_data(hello.data)
    introduced = master.next_event(bounds)
    assert isinstance(introduced, Introduced)
    (attach,) = follower.receive(introduced.reply)
    assert isinstance(attach, AttachLog)
    master.receive_data(follower.said)
    assert master.next_event(bounds) == WantsJoin(end, 0)
    assert follower.receive(master.join("same")) == [Attached(end)]
    data = bytearray()
    while master.next_offset < len(LOG):
        start = master.next_offset
        file_left = FILE_SIZE_BYTES - start % FILE_SIZE_BYTES
        body = LOG[start : start + min(master.frame_bytes_max(), frame_bytes, file_left)]
        data += master.transfer(body, confirm=SECOND, flush_wanted=0) + body
    for start in range(0, len(data), cut):
        follower.receive(bytes(data[start : start + cut]))
    assert bytes(follower.log) == LOG
    assert follower.entries == ENTRIES
    master.receive_data(follower.client.report(len(LOG), end))
    master.next_event(bounds)
    assert (master.written, master.flushed) == (len(LOG), end)
