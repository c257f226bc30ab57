from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ha.classic.ha_connection
from ha.classic.ha_connection import HAConnection, HAConnectionState
from ha.classic.protocol import REPORT, encode_refusal
from ha.errors import (
    HAError,
    LocalHAError,
    NegativeReportError,
    RemoteHAError,
    ReportBeyondSentError,
    SlaveAheadError,
    SlaveRefusedError,
    SlaveTooOldError,
)
from ha.link.limits import TRANSFER_BODY_BYTES_MAX
from tests.ha.state_table import cells, check_cell

FILE_SIZE_BYTES = 1000


def waiting(*, sync_from_last_file: bool = False) -> HAConnection:
    return HAConnection(file_size_bytes=FILE_SIZE_BYTES, sync_from_last_file=sync_from_last_file)


def transferring(first_report: int = 100) -> HAConnection:
    connection = waiting()
    connection.receive_data(REPORT.pack(first_report), log_start=0, log_end=5000)
    return connection


def closed() -> HAConnection:
    connection = transferring()
    connection.close()
    return connection


def receive(connection: HAConnection, report: int, *, log_end: int = 5000) -> int | None:
    return connection.receive_data(REPORT.pack(report), log_start=0, log_end=log_end)


def test_the_diagram_names_every_state() -> None:
    assert ha.classic.ha_connection.__doc__ is not None
    for state in HAConnectionState:
        assert state.name in ha.classic.ha_connection.__doc__


STATES: dict[str, Callable[[], HAConnection]] = {
    "WAIT_REPORT": waiting,
    "TRANSFER": transferring,
    "CLOSED": closed,
}
EVENTS: dict[str, Callable[[HAConnection], object]] = {
    "report": lambda connection: receive(connection, 100),
    "bad report": lambda connection: receive(connection, 6000),
    "transfer": lambda connection: connection.transfer(10),
    "heartbeat": HAConnection.heartbeat,
    "close": HAConnection.close,
}
TABLE = cells(
    {
        "WAIT_REPORT": {
            "TRANSFER": "report",
            SlaveAheadError: "bad report",
            LocalHAError: "transfer, heartbeat",
            "CLOSED": "close",
        },
        "TRANSFER": {
            "TRANSFER": "report, transfer, heartbeat",
            ReportBeyondSentError: "bad report",
            "CLOSED": "close",
        },
        "CLOSED": {
            "CLOSED": "report, bad report, close",
            LocalHAError: "transfer, heartbeat",
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


def test_the_first_report_is_where_sending_begins_and_acknowledges_nothing() -> None:
    connection = waiting()
    assert receive(connection, 100) is None
    assert connection.slave_request_offset == 100
    assert connection.next_offset == 100
    assert connection.slave_ack_offset == -1


def test_later_reports_acknowledge() -> None:
    connection = transferring(100)
    connection.transfer(50)
    assert receive(connection, 120) == 120
    assert receive(connection, 150) == 150
    assert connection.slave_ack_offset == 150


def test_the_same_report_again_is_no_news() -> None:
    connection = transferring(100)
    assert receive(connection, 100) == 100
    assert receive(connection, 100) is None


def test_a_slave_may_take_an_acknowledgement_back() -> None:
    connection = transferring(100)
    receive(connection, 100)
    assert receive(connection, 90) == 90


def test_of_many_reports_the_last_complete_one_counts() -> None:
    connection = transferring(0)
    connection.transfer(500)
    data = b"".join(REPORT.pack(offset) for offset in (10, 20, 30)) + b"\0\0\0"
    assert connection.receive_data(data, log_start=0, log_end=5000) == 30
    rest = REPORT.pack(500)[3:]
    assert connection.receive_data(rest, log_start=0, log_end=5000) == 500


def test_reports_may_arrive_one_byte_at_a_time() -> None:
    connection = waiting()
    for byte in REPORT.pack(100):
        assert connection.state is HAConnectionState.WAIT_REPORT
        connection.receive_data(bytes([byte]), log_start=0, log_end=5000)
    connection.transfer(10)
    acks = [
        connection.receive_data(bytes([byte]), log_start=0, log_end=5000)
        for byte in REPORT.pack(110)
    ]
    assert acks == [None] * 7 + [110]


def test_headers_follow_one_another_and_a_heartbeat_moves_nothing() -> None:
    connection = transferring(100)
    assert connection.transfer(50) == (100).to_bytes(8, "big") + (50).to_bytes(4, "big")
    assert connection.heartbeat() == (150).to_bytes(8, "big") + bytes(4)
    assert connection.transfer(1) == (150).to_bytes(8, "big") + (1).to_bytes(4, "big")


@pytest.mark.parametrize("size", [0, -1, TRANSFER_BODY_BYTES_MAX + 1])
def test_a_frame_that_a_java_slave_cannot_hold_is_our_own_bug(size: int) -> None:
    with pytest.raises(LocalHAError):
        transferring().transfer(size)


def test_an_empty_slave_gets_the_whole_log() -> None:
    connection = waiting()
    connection.receive_data(REPORT.pack(0), log_start=2000, log_end=5500)
    assert connection.next_offset == 2000


def test_an_empty_slave_gets_the_last_file_if_set_so() -> None:
    """Source: DefaultHAConnection.WriteSocketService.run."""
    connection = waiting(sync_from_last_file=True)
    connection.receive_data(REPORT.pack(0), log_start=2000, log_end=5500)
    assert connection.next_offset == 5000


def test_a_slave_that_is_ahead_is_refused() -> None:
    with pytest.raises(SlaveAheadError, match="is ahead of the master by 1 bytes: refused") as info:
        receive(waiting(), 5001)
    assert (info.value.slave_end, info.value.master_end, info.value.ahead_bytes) == (5001, 5000, 1)


def test_a_slave_at_the_very_end_is_not_ahead() -> None:
    assert receive(waiting(), 5000) is None


def test_a_report_above_what_was_sent_ends_the_connection() -> None:
    connection = transferring(100)
    connection.transfer(50)
    with pytest.raises(ReportBeyondSentError, match=r"reported offset 151.*below 150 were sent"):
        receive(connection, 151)
    assert connection.slave_ack_offset == -1


def test_a_slave_below_the_first_byte_of_the_log_is_refused() -> None:
    connection = waiting()
    with pytest.raises(SlaveTooOldError):
        connection.receive_data(REPORT.pack(1999), log_start=2000, log_end=5000)


def test_a_negative_first_report_is_refused() -> None:
    with pytest.raises(NegativeReportError):
        receive(waiting(), -1)


def test_a_refusal_of_a_longer_slave_says_by_how_much() -> None:
    connection = transferring(4900)
    with pytest.raises(SlaveAheadError, match="ahead of the master by 30 bytes"):
        connection.receive_data(encode_refusal(5030), log_start=0, log_end=5000)


def test_a_refusal_acknowledges_nothing() -> None:
    connection = transferring(4900)
    with pytest.raises(SlaveRefusedError, match="stopped at offset 5000"):
        connection.receive_data(encode_refusal(5000), log_start=0, log_end=5000)
    assert connection.slave_ack_offset == -1


@settings(deadline=None)
@given(st.binary(max_size=64), st.integers(1, 9))
def test_random_bytes_are_accepted_or_refused_and_never_acknowledge_unsent_bytes(
    data: bytes, piece_bytes: int
) -> None:
    connection = waiting()
    try:
        for start in range(0, len(data), piece_bytes):
            piece = data[start : start + piece_bytes]
            connection.receive_data(piece, log_start=0, log_end=5000)
    except RemoteHAError:
        assert connection.state is HAConnectionState.CLOSED
    assert connection.slave_ack_offset <= max(connection.next_offset, -1)


PIECES = st.one_of(
    st.sampled_from([-2000, -1, 0, 1, 90, 100, 101, 150, 160, 170, 5000]).map(REPORT.pack),
    st.binary(max_size=17),
)


def said(
    connection: HAConnection, data: bytes, *, first: bool
) -> tuple[int | type[HAError] | None, HAConnectionState, int]:
    """What comes of a piece, with a look at whether it is one report before, or without."""
    outcome: int | type[HAError] | None
    try:
        outcome = connection.take_report(data) if first else None
        if outcome is None:
            outcome = connection.receive_data(data, log_start=0, log_end=5000)
    except HAError as error:
        outcome = type(error)
    return outcome, connection.state, connection.slave_ack_offset


@pytest.mark.parametrize("start", [waiting, transferring])
@given(pieces=st.lists(st.one_of(PIECES, st.integers(1, 40)), max_size=12))
def test_a_read_that_is_one_report_is_taken_as_any_other(
    start: Callable[[], HAConnection], pieces: list[bytes | int]
) -> None:
    one, other = start(), start()
    for piece in pieces:
        if isinstance(piece, bytes):
            assert said(one, piece, first=True) == said(other, piece, first=False)
        elif one.state is HAConnectionState.TRANSFER:
            assert one.transfer(piece) == other.transfer(piece)
