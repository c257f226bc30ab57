from collections.abc import Callable
from functools import partial
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ha.classic.ha_client
from ha.classic.ha_client import NOTHING_ACKNOWLEDGED, HAClient, HAClientState
from ha.classic.ha_connection import HAConnection
from ha.classic.protocol import REPORT, TRANSFER_HEADER
from ha.errors import (
    CorruptTransferError,
    HAError,
    LocalHAError,
    LogDivergedError,
    MalformedTransferError,
    MasterBehindError,
    OffsetMismatchError,
    RemoteHAError,
)
from ha.link.limits import TRANSFER_BODY_BYTES_MAX
from tandem.wire.message import Host
from tests.ha.small_logs import FILE_SIZE_BYTES, RECORD_BYTES_MAX, build_log, record
from tests.ha.state_table import cells, check_cell
from tests.support.log_builder import blank, record_starts

LOG = build_log([bytes([i]) * (i * 37 % 700) for i in range(60)])
"""Sixty records over several files."""


def new_client(*, check_crc: bool = True) -> HAClient:
    return HAClient(
        file_size_bytes=FILE_SIZE_BYTES, record_bytes_max=RECORD_BYTES_MAX, check_crc=check_crc
    )


def frame(offset: int, body: bytes) -> bytes:
    return TRANSFER_HEADER.pack(offset, len(body)) + body


def frames(log: bytes, start: int, frame_bytes: int) -> bytes:
    """Cut `log` from `start` on into frames as a master does: anywhere, but not across files."""
    wire = bytearray()
    while start < len(log):
        end = min(start + frame_bytes, start - start % FILE_SIZE_BYTES + FILE_SIZE_BYTES, len(log))
        wire += frame(start, log[start:end])
        start = end
    return bytes(wire)


class Slave:
    """A client and the log it writes."""

    def __init__(self, log: bytes = b"", *, check_crc: bool = True) -> None:
        self.log = bytearray(log)
        self.start = 0
        self.client = new_client(check_crc=check_crc)

    @property
    def log_end(self) -> int:
        return self.start + len(self.log)

    def connect(self) -> int:
        starts = record_starts(bytes(self.log))
        last_record = bytes(self.log[starts[-1] :]) if starts else b""
        (report,) = REPORT.unpack(self.client.connected(self.log_end, last_record))
        assert isinstance(report, int)
        return report

    def receive(self, data: bytes) -> None:
        self.client.receive_data(data)
        while (event := self.client.next_event()) is not None:
            if not self.log:
                self.start = event.offset
            assert event.offset == self.log_end
            assert event.body
            self.log += event.body


def verified_slave() -> Slave:
    """A slave with two records whose session is in TRANSFER."""
    slave = Slave(LOG[: record_starts(LOG)[2]])
    report = slave.connect()
    slave.receive(frame(report, LOG[report : slave.log_end]))
    assert slave.client.state is HAClientState.TRANSFER
    return slave


def verifying_slave() -> Slave:
    slave = Slave(LOG[: record_starts(LOG)[2]])
    slave.connect()
    return slave


def broken_slave() -> Slave:
    slave = verified_slave()
    with pytest.raises(OffsetMismatchError):
        slave.receive(frame(99_999, b"x"))
    return slave


def test_the_diagram_names_every_state() -> None:
    assert ha.classic.ha_client.__doc__ is not None
    for state in HAClientState:
        assert state.name in ha.classic.ha_client.__doc__


STATES: dict[str, Callable[[], Slave]] = {
    "READY": Slave,
    "VERIFY": verifying_slave,
    "TRANSFER": verified_slave,
    "BROKEN": broken_slave,
}
NEXT_RECORD = frame(record_starts(LOG)[2], LOG[record_starts(LOG)[2] : record_starts(LOG)[3]])
SAME_RECORD = frame(record_starts(LOG)[1], LOG[record_starts(LOG)[1] : record_starts(LOG)[2]])
EVENTS: dict[str, Callable[[Slave], object]] = {
    "connected": Slave.connect,
    "next record": lambda slave: slave.receive(NEXT_RECORD),
    "last again": lambda slave: slave.receive(SAME_RECORD),
    "heartbeat": lambda slave: slave.receive(frame(slave.log_end, b"")),
    "heartbeat at overlap": lambda slave: slave.receive(frame(record_starts(LOG)[1], b"")),
    "connection_lost": lambda slave: slave.client.connection_lost(),
}
TABLE = cells(
    {
        "READY": {
            "TRANSFER": "connected",
            LocalHAError: "next record, last again, heartbeat, heartbeat at overlap"
            ", connection_lost",
        },
        "VERIFY": {
            LocalHAError: "connected",
            OffsetMismatchError: "next record, heartbeat",
            "TRANSFER": "last again",
            MasterBehindError: "heartbeat at overlap",
            "READY": "connection_lost",
        },
        "TRANSFER": {
            LocalHAError: "connected",
            "TRANSFER": "next record, heartbeat",
            OffsetMismatchError: "last again, heartbeat at overlap",
            "READY": "connection_lost",
        },
        "BROKEN": {
            LocalHAError: "connected, next record, last again, heartbeat, heartbeat at overlap",
            "READY": "connection_lost",
        },
    }
)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_state(state: str, event: str) -> None:
    slave = STATES[state]()
    outcome = TABLE[state, event]
    act = partial(EVENTS[event], slave)
    check_cell(state, outcome, act, lambda: slave.client.state.name, broken="BROKEN")


# Where a session begins


def test_an_empty_slave_reports_zero() -> None:
    assert Slave().connect() == 0


def test_a_slave_reports_the_start_of_its_last_record() -> None:
    starts = record_starts(LOG)
    assert Slave(LOG[: starts[7]]).connect() == starts[6]


def test_a_slave_with_one_record_never_reports_zero() -> None:
    """A Java master would begin at its last file; source: DefaultHAConnection."""
    slave = Slave(LOG[: record_starts(LOG)[1]])
    assert slave.connect() == 1
    slave.receive(frame(1, LOG[1:]))
    assert slave.log == LOG


def test_a_log_that_ends_with_a_file_compares_the_end_of_file_record() -> None:
    slave = Slave(LOG[: 2 * FILE_SIZE_BYTES])
    assert slave.connect() == record_starts(slave.log)[-1]
    slave.receive(frames(LOG, record_starts(slave.log)[-1], 500))
    assert slave.log == LOG


def test_a_log_without_records_that_begins_later_reports_its_end() -> None:
    client = new_client()
    assert client.connected(2 * FILE_SIZE_BYTES, b"") == REPORT.pack(2 * FILE_SIZE_BYTES)
    client.receive_data(frame(3 * FILE_SIZE_BYTES, record(3 * FILE_SIZE_BYTES)))
    with pytest.raises(OffsetMismatchError):
        client.next_event()


def test_nothing_is_reported_before_the_logs_are_compared() -> None:
    slave = Slave(LOG[: record_starts(LOG)[2]])
    report = slave.connect()
    assert slave.client.heartbeat(slave.log_end) is None
    assert slave.client.report(slave.log_end) is None
    slave.receive(frame(report, LOG[report : slave.log_end - 1]))
    assert slave.client.report(slave.log_end) is None
    slave.receive(frame(slave.log_end - 1, LOG[slave.log_end - 1 : slave.log_end]))
    assert slave.client.report(slave.log_end) == REPORT.pack(slave.log_end)


def test_only_news_is_reported_but_a_heartbeat_always() -> None:
    slave = verified_slave()
    slave.client.report(slave.log_end)
    assert slave.client.report(slave.log_end) is None
    assert slave.client.heartbeat(slave.log_end) == REPORT.pack(slave.log_end)
    assert slave.client.report(slave.log_end + 1) == REPORT.pack(slave.log_end + 1)


def test_a_log_of_another_history_is_found_before_anything_is_appended() -> None:
    starts = record_starts(LOG)
    mine = LOG[: starts[1]] + record(starts[1], b"written by another master")
    slave = Slave(mine)
    report = slave.connect()
    with pytest.raises(LogDivergedError) as info:
        slave.receive(frames(LOG, report, 3000))
    assert slave.log == mine
    assert starts[1] <= info.value.offset < len(mine)


def test_a_difference_in_the_very_last_byte_is_found() -> None:
    end = record_starts(LOG)[2]
    other = LOG[: end - 1] + bytes([LOG[end - 1] ^ 1])
    slave = Slave(other)
    report = slave.connect()
    with pytest.raises(LogDivergedError) as info:
        slave.receive(frame(report, LOG[report:end]))
    assert info.value.offset == end - 1


def test_a_master_without_our_last_record_is_behind() -> None:
    slave = Slave(LOG[: record_starts(LOG)[2]])
    report = slave.connect()
    with pytest.raises(MasterBehindError) as info:
        slave.receive(frame(report, b""))
    assert (info.value.log_end, info.value.master_end) == (slave.log_end, report)


def test_the_master_chooses_where_an_empty_slave_begins() -> None:
    log = build_log([b"x"], start=2 * FILE_SIZE_BYTES)
    slave = Slave()
    slave.connect()
    slave.receive(frame(5 * FILE_SIZE_BYTES, b"") + frame(2 * FILE_SIZE_BYTES, log))
    assert slave.start == 2 * FILE_SIZE_BYTES
    assert slave.log == log


# Frames and cuts


@pytest.mark.parametrize("frame_bytes", [1, 7, 91, 500, FILE_SIZE_BYTES])
@pytest.mark.parametrize("check_crc", [True, False])
def test_a_whole_log_arrives_whatever_the_frame_size(frame_bytes: int, *, check_crc: bool) -> None:
    slave = Slave(check_crc=check_crc)
    slave.connect()
    slave.receive(frames(LOG, 0, frame_bytes))
    assert slave.log == LOG


@pytest.mark.slow
def test_a_whole_log_arrives_one_byte_at_a_time() -> None:
    slave = Slave()
    slave.connect()
    for byte in frames(LOG, 0, 1000):
        slave.receive(bytes([byte]))
        assert slave.log_end in (0, len(LOG), *record_starts(LOG))
    assert slave.log == LOG


def test_all_that_one_read_brings_is_one_append() -> None:
    body = LOG[: record_starts(LOG)[5]]
    client = new_client()
    client.connected(0, b"")
    client.receive_data(frames(body, 0, 100))
    event = client.next_event()
    assert event is not None
    assert event.body == body
    assert event.last_record_offset == record_starts(LOG)[4]
    assert client.next_event() is None


def test_an_append_never_crosses_a_file() -> None:
    client = new_client()
    client.connected(0, b"")
    client.receive_data(frames(LOG, 0, 1000))
    while (event := client.next_event()) is not None:
        last = event.offset + len(event.body) - 1
        assert event.offset // FILE_SIZE_BYTES == last // FILE_SIZE_BYTES
        assert event.last_record_offset in record_starts(LOG)


def test_v6_hosts_and_long_topics_pass() -> None:
    first = record(0, b"v6", host=Host("2001:db8::1", 10911))
    log = first + record(len(first), b"v2", topic="%RETRY%" + "g" * 200)
    slave = Slave()
    slave.connect()
    slave.receive(frame(0, log))
    assert slave.log == log


def test_a_second_session_begins_where_the_first_one_broke() -> None:
    slave = Slave()
    slave.connect()
    cut = record_starts(LOG)[10] + 50
    slave.receive(frame(0, LOG[:cut]))
    slave.client.connection_lost()
    assert slave.log_end == record_starts(LOG)[10]
    assert slave.connect() == record_starts(LOG)[9]
    slave.receive(frames(LOG, record_starts(LOG)[9], 700))
    assert slave.log == LOG


SHORT_LOG = LOG[: record_starts(LOG)[20]]
SHORT_LOG_RECORDS = len(record_starts(SHORT_LOG))


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=10),
    st.lists(st.integers(1, 5000), min_size=1, max_size=10),
    st.integers(0, SHORT_LOG_RECORDS),
)
def test_any_cut_into_frames_and_pieces_gives_the_same_log(
    frame_sizes: list[int], piece_sizes: list[int], records_before: int
) -> None:
    slave = Slave(SHORT_LOG[: [*record_starts(SHORT_LOG), len(SHORT_LOG)][records_before]])
    offset = slave.connect()
    wire = bytearray()
    for size in cycle(frame_sizes):
        end = min(offset + size, offset - offset % FILE_SIZE_BYTES + FILE_SIZE_BYTES)
        wire += frame(offset, SHORT_LOG[offset:end])
        offset = min(end, len(SHORT_LOG))
        if offset == len(SHORT_LOG):
            break
    position = 0
    for size in cycle(piece_sizes):
        if position >= len(wire):
            break
        slave.receive(bytes(wire[position : position + size]))
        position += size
    assert slave.log == SHORT_LOG


# What is refused


BAD_FRAMES = {
    "negative size": TRANSFER_HEADER.pack(0, -1),
    "too big for a frame": TRANSFER_HEADER.pack(0, TRANSFER_BODY_BYTES_MAX + 1),
    "negative offset": TRANSFER_HEADER.pack(-1, 5),
    "beyond the last offset": TRANSFER_HEADER.pack(2**63 - 1, 5),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_malformed_header_is_refused(name: str) -> None:
    slave = Slave()
    slave.connect()
    with pytest.raises(MalformedTransferError):
        slave.receive(BAD_FRAMES[name])


def damaged(at: int, value: bytes) -> bytes:
    good = record(0, b"some body")
    return good[:at] + value + good[at + len(value) :]


BAD_RECORDS = {
    "size below the smallest": damaged(0, (90).to_bytes(4, "big")),
    "negative size": damaged(0, b"\xff\xff\xff\xff"),
    "size above the largest": damaged(0, (RECORD_BYTES_MAX + 1).to_bytes(4, "big")),
    "unknown magic": damaged(4, b"\0\0\0\1"),
    "body CRC": damaged(8, b"\0\0\0\1"),
    "another offset": damaged(28, (1).to_bytes(8, "big")),
    "body length": damaged(84, (10).to_bytes(4, "big")),
    "a body byte": damaged(90, b"X"),
    "zeros": bytes(100),
    "end-of-file record too short": blank(FILE_SIZE_BYTES - 8),
    "end-of-file record too long": blank(FILE_SIZE_BYTES + 8),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
@pytest.mark.parametrize("piece_bytes", [1, 8, 5000])
def test_a_bad_record_is_never_handed_out(name: str, piece_bytes: int) -> None:
    slave = Slave()
    slave.connect()
    wire = frame(0, BAD_RECORDS[name])
    with pytest.raises(CorruptTransferError) as info:
        for start in range(0, len(wire), piece_bytes):
            slave.receive(wire[start : start + piece_bytes])
    assert info.value.offset == 0
    assert not slave.log


def test_good_records_before_a_bad_one_are_handed_out() -> None:
    starts = record_starts(LOG)
    wire = frame(0, LOG[: starts[5]] + bytes(200))
    slave = Slave()
    slave.connect()
    with pytest.raises(CorruptTransferError):
        slave.receive(wire)
    assert slave.log == LOG[: starts[5]]


def test_good_frames_before_a_bad_one_are_handed_out() -> None:
    starts = record_starts(LOG)
    wire = frame(0, LOG[: starts[5]]) + frame(starts[6], LOG[starts[6] :])
    slave = Slave()
    slave.connect()
    with pytest.raises(OffsetMismatchError):
        slave.receive(wire)
    assert slave.log == LOG[: starts[5]]


def test_a_session_after_a_broken_one_works() -> None:
    slave = broken_slave()
    slave.client.connection_lost()
    assert slave.connect() == record_starts(LOG)[1]
    slave.receive(frames(LOG, record_starts(LOG)[1], 1000))
    assert slave.log == LOG


def test_a_bad_body_passes_only_with_the_check_turned_off() -> None:
    slave = Slave(check_crc=False)
    slave.connect()
    slave.receive(frame(0, BAD_RECORDS["a body byte"]))
    assert slave.log == BAD_RECORDS["a body byte"]


def test_a_record_must_leave_room_for_the_end_of_file_record() -> None:
    """Source: CommitLog's END_FILE_MIN_BLANK_LENGTH, 8 bytes."""
    client = HAClient(file_size_bytes=200, record_bytes_max=2048, check_crc=True)
    client.connected(0, b"")
    body = bytes(193 - len(record(0, b"")))
    client.receive_data(frame(0, record(0, body)))
    with pytest.raises(CorruptTransferError):
        client.next_event()


def test_a_record_too_big_for_the_file_is_refused_before_it_is_all_there() -> None:
    client = HAClient(file_size_bytes=200, record_bytes_max=2048, check_crc=True)
    client.connected(0, b"")
    client.receive_data(frame(0, record(0, bytes(1000)))[:30])
    with pytest.raises(CorruptTransferError):
        client.next_event()


def test_a_new_log_may_not_begin_where_nothing_fits() -> None:
    client = new_client()
    client.connected(0, b"")
    client.receive_data(frame(FILE_SIZE_BYTES - 5, b"12345678"))
    with pytest.raises(CorruptTransferError):
        client.next_event()


@settings(deadline=None)
@given(
    data=st.binary(max_size=400), piece_bytes=st.integers(1, 50), begin_with_a_header=st.booleans()
)
def test_random_bytes_are_accepted_or_refused_and_nothing_else(
    data: bytes, piece_bytes: int, *, begin_with_a_header: bool
) -> None:
    slave = Slave()
    slave.connect()
    if begin_with_a_header:
        data = frame(0, data)
    try:
        for start in range(0, len(data), piece_bytes):
            slave.receive(data[start : start + piece_bytes])
    except RemoteHAError:
        assert slave.client.state is HAClientState.BROKEN


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(0, 7), st.integers(1, 4000))
def test_a_flipped_bit_never_changes_the_log(at: int, bit: int, piece_bytes: int) -> None:
    """What no check covers (a topic's letter, a queue id) may be wrong; lengths never are."""
    wire = bytearray(frames(LOG, 0, 1500))
    wire[at] ^= 1 << bit
    slave = Slave()
    slave.connect()
    try:
        for start in range(0, len(wire), piece_bytes):
            slave.receive(bytes(wire[start : start + piece_bytes]))
    except RemoteHAError:
        pass
    ends = {0, len(LOG), *record_starts(LOG)}
    assert slave.log_end in ends


# Both engines, joined by a pretend wire


class Pair:
    """A master's connection and a slave; what one says the other hears in pieces."""

    def __init__(self, master_log: bytes, slave_log: bytes) -> None:
        self.master_log = master_log
        self.slave = Slave(slave_log)
        self.connection = HAConnection(file_size_bytes=FILE_SIZE_BYTES, sync_from_last_file=False)

    def reports(self, data: bytes | None) -> None:
        for byte in data or b"":
            self.connection.receive_data(bytes([byte]), log_start=0, log_end=len(self.master_log))

    def run(self, frame_bytes: int, piece_bytes: int) -> None:
        self.reports(REPORT.pack(self.slave.connect()))
        while (offset := self.connection.next_offset) < len(self.master_log):
            limit = offset - offset % FILE_SIZE_BYTES + FILE_SIZE_BYTES
            body = self.master_log[offset : min(offset + frame_bytes, limit)]
            wire = self.connection.transfer(len(body)) + body
            for start in range(0, len(wire), piece_bytes):
                self.slave.receive(wire[start : start + piece_bytes])
                self.reports(self.slave.client.report(self.slave.log_end))
        self.slave.receive(self.connection.heartbeat())


@settings(deadline=None)
@given(st.integers(0, len(record_starts(LOG)) - 1), st.integers(50, 5000), st.integers(300, 6000))
def test_a_pair_ends_with_equal_logs_and_everything_acknowledged(
    records_before: int, frame_bytes: int, piece_bytes: int
) -> None:
    pair = Pair(LOG, LOG[: record_starts(LOG)[records_before]])
    pair.run(frame_bytes, piece_bytes)
    assert pair.slave.log == LOG
    assert pair.connection.slave_ack_offset == len(LOG)


@settings(deadline=None)
@given(st.integers(1, len(record_starts(LOG)) - 1), st.integers(1, len(record_starts(LOG)) - 1))
def test_a_slave_that_is_ahead_never_acknowledges(slave_records: int, master_records: int) -> None:
    starts = record_starts(LOG)
    if slave_records <= master_records:
        slave_records, master_records = master_records + 1, slave_records
    slave_log = LOG[: [*starts, len(LOG)][slave_records]]
    pair = Pair(LOG[: starts[master_records]], slave_log)
    with pytest.raises(RemoteHAError):
        pair.run(1000, 100)
    assert pair.slave.log == slave_log
    assert pair.connection.slave_ack_offset == -1


def shadow_client() -> HAClient:
    return HAClient(
        file_size_bytes=FILE_SIZE_BYTES,
        record_bytes_max=RECORD_BYTES_MAX,
        check_crc=True,
        acknowledges=False,
    )


@pytest.mark.parametrize("held", [0, 1, 20])
def test_a_shadow_asks_once_and_acknowledges_nothing(held: int) -> None:
    """Not even what it reports first is repeated once the master has read it."""
    starts = [*record_starts(LOG), len(LOG)]
    end = starts[held]
    client = shadow_client()
    last = LOG[starts[held - 1] : end] if held else b""
    (first,) = REPORT.unpack(client.connected(end, last))
    assert first <= (starts[held - 1] or 1 if held else 0)
    if not held:  # before it has heard anything, a heartbeat must not spoil the first report
        assert client.heartbeat(end) == REPORT.pack(first)
    reports = []
    for piece in range(0, len(wire := frames(LOG, first, 700)), 500):
        client.receive_data(wire[piece : piece + 500])
        while (event := client.next_event()) is not None:
            end = event.offset + len(event.body)
        report = client.report(end)
        reports += [] if report is None else list(REPORT.unpack(report))
    assert reports == [NOTHING_ACKNOWLEDGED]
    assert client.heartbeat(end) == REPORT.pack(NOTHING_ACKNOWLEDGED)
    assert end > starts[-3]


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_a_plain_frame_is_taken_as_any_other(data: st.DataObject) -> None:
    """Reads of one frame or more, cut or whole, sound or damaged: events, errors and reports."""
    starts = [*record_starts(LOG), len(LOG)]
    reads: list[bytes] = []
    position = 0
    while position < len(LOG) and len(reads) < 12:
        following = [start for start in starts if start >= position][:4]
        end = min(data.draw(st.sampled_from([*following, position + 50]), label="end"), len(LOG))
        wrong = data.draw(st.sampled_from([0] * 9 + [FILE_SIZE_BYTES]), label="wrong offset")
        read = bytearray(frame(position + wrong, LOG[position:end]))
        if data.draw(st.integers(0, 9)) == 0:
            read[data.draw(st.integers(0, len(read) - 1))] ^= data.draw(st.integers(1, 255))
        is_joined = data.draw(st.booleans(), label="joined")
        if reads and is_joined:
            reads[-1] += bytes(read)
        else:
            reads.append(bytes(read))
        position = end
    for acknowledges in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            found = _heard(reads, acknowledges=acknowledges)
            patch.setattr(ha.classic.ha_client, "PLAIN_FRAME_BYTES_MAX", 0)
            assert _heard(reads, acknowledges=acknowledges) == found


def _heard(reads: list[bytes], *, acknowledges: bool) -> list[object]:
    client = HAClient(
        file_size_bytes=FILE_SIZE_BYTES,
        record_bytes_max=RECORD_BYTES_MAX,
        check_crc=True,
        acknowledges=acknowledges,
    )
    heard: list[object] = [client.connected(0, b"")]
    log_end = 0
    try:
        for read in reads:
            client.receive_data(read)
            while (event := client.next_event()) is not None:
                log_end = event.offset + len(event.body)
                heard.append((event.offset, bytes(event.body), event.last_record_offset))
            heard.append(client.report(log_end))
    except HAError as error:
        heard.append((type(error), str(error), client.state))
    return heard
