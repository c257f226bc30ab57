"""What a run is made of. That it ends as single pulls do is in tests/node/handlers."""

import mmap
import struct
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from node.handlers.pull_runs import pull_runs
from tandem.wire import native
from tandem.wire.pull_run import (
    ANSWERS_BYTES_MAX,
    NO_UNITS,
    PLACES_MAX,
    PULL_HEADS,
    PULLS_MAX,
    Answered,
    LogPiece,
    PullPlace,
    PullRuns,
    QueueUnits,
)
from tandem.wire.remoting_command import (
    FRAME_HEAD,
    RemotingCommand,
    SerializeType,
    decode_frame_parts,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import PullMessageRequestHeader

pytestmark = pytest.mark.skipif(native.loops is None, reason="no C compiler at installation")

ENCODINGS: Final = [SerializeType.JSON, SerializeType.MSGPACK]
CODES: Final = [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE]
UNIT: Final = struct.Struct(">qiq")
LOG_FIRST: Final = 1_000_000
RECORD_BYTES: Final = 10
LOG: Final = bytes(range(250)) * 40


def frame(
    number: int,
    offset: int = 0,
    queue_id: int = 0,
    *,
    code: int = RequestCode.PULL_MESSAGE,
    encoding: SerializeType = SerializeType.JSON,
    **changes: object,
) -> bytes:
    fields: dict[str, object] = {
        "consumer_group": "g",
        "topic": "T",
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": number,
        "suspend_timeout_millis": 0,
        "sub_version": 7,
        "subscription": "*",
        **changes,
    }
    header = PullMessageRequestHeader(**fields)  # type: ignore[arg-type]
    return encode_frame(RemotingCommand(code, number, ext=header, serialize_type=encoding))


def units(count: int, *, step: int = RECORD_BYTES, size: int = RECORD_BYTES) -> bytearray:
    """Units of records in a row, `step` bytes from each other."""
    return bytearray(
        b"".join(UNIT.pack(LOG_FIRST + step * number, size, number % 5) for number in range(count))
    )


def queue(count: int, **changes: object) -> QueueUnits:
    found = QueueUnits(units(count), 100, 100 + count, 100, 50, 100 + count)
    return found._replace(**changes)  # type: ignore[arg-type]


def piece(_offset: int) -> LogPiece:
    return LogPiece(LOG, LOG_FIRST, LOG_FIRST + len(LOG))


def run_of(*frames: bytes) -> PullRuns:
    run = pull_runs()
    assert run is not None
    assert run.find(b"head" + b"".join(frames), 4)
    assert run.count == len(frames)
    return run


def answers(
    run: PullRuns,
    *queues: QueueUnits,
    tags_codes: set[int] | None = None,
    piece_of: Callable[[int], LogPiece | None] = piece,
    min_physical_offset: int = LOG_FIRST,
    bytes_max: int = 262_144,
) -> list[RemotingCommand]:
    frames = run.answer(
        queues,
        piece_of,
        tags_codes=tags_codes,
        min_physical_offset=min_physical_offset,
        bytes_max=bytes_max,
    )
    return list(commands(bytes(frames)))


def commands(frames: bytes) -> Iterator[RemotingCommand]:
    while frames:
        total, word = FRAME_HEAD.unpack_from(frames)
        body = FRAME_HEAD.size + (word & 0xFFFFFF)
        yield decode_frame_parts(
            word >> 24, frames[FRAME_HEAD.size : body], frames[body : total + 4]
        )
        frames = frames[total + 4 :]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("code", CODES)
def test_a_run_is_found_with_its_queues(code: int, encoding: SerializeType) -> None:
    frames = [
        frame(number, 100 + number, number % 3, code=code, encoding=encoding) for number in range(7)
    ]
    assert all(each[FRAME_HEAD.size :].startswith(PULL_HEADS) for each in frames)
    run = run_of(*frames)
    assert run.places() == [PullPlace(0, 100), PullPlace(1, 101), PullPlace(2, 102)]
    assert run.commits() == [(number % 3, number) for number in range(7)]
    assert run.end == 4 + sum(map(len, frames))
    header = run.header()
    assert (header.consumer_group, header.topic, header.subscription) == ("g", "T", "*")
    assert (header.queue_id, header.queue_offset, header.max_msg_nums) == (0, 100, 32)
    assert (header.sys_flag, header.commit_offset, header.sub_version) == (4, 0, 7)
    assert header.expression_type is None


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "field", ["consumer_group", "topic", "subscription", "expression_type", "broker_name"]
)
def test_what_is_not_ascii_is_in_no_run(field: str, encoding: SerializeType) -> None:
    run = pull_runs()
    assert run is not None
    assert run.find(frame(1, encoding=encoding, **{field: "St/dte"}), 0)  # type: ignore[arg-type]
    assert not run.find(frame(1, encoding=encoding, **{field: "St\u00e4dte"}), 0)  # type: ignore[arg-type]


def test_a_run_has_an_end() -> None:
    run = pull_runs()
    assert run is not None
    assert run.find(b"".join(frame(number) for number in range(PULLS_MAX + 1)), 0)
    assert run.count == PULLS_MAX
    assert run.find(b"".join(frame(1, queue_id=number) for number in range(PLACES_MAX + 1)), 0)
    assert run.count == PLACES_MAX
    assert not run.find(b"", 0)
    assert not run.find(frame(1)[:-1], 0)
    for encoding in ENCODINGS:
        assert not run.find(frame(1, code=RequestCode.GET_MAX_OFFSET, encoding=encoding), 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "TT"},
        {"topic": "U"},
        {"consumer_group": "gg"},
        {"subscription": "*||a"},
        {"subscription": None},
        {"expression_type": "SQL92"},
        {"sub_version": 8},
        {"max_msg_nums": 31},
        {"sys_flag": 5},
        {"code": RequestCode.LITE_PULL_MESSAGE},
        {"encoding": SerializeType.MSGPACK},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_first", [False, True])
def test_of_a_run_all_are_of_one_kind(changes: dict[str, object], *, is_first: bool) -> None:
    run = pull_runs()
    assert run is not None
    two = [frame(1), frame(2, **changes)]  # type: ignore[arg-type]
    assert run.find(b"".join(two[::-1] if is_first else two), 0)
    assert run.count == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_is_answered(encoding: SerializeType) -> None:
    run = run_of(*(frame(2**number, 100 + number, encoding=encoding) for number in range(31)))
    found = answers(run, queue(60))
    assert [answer.opaque for answer in found] == [2**number for number in range(31)]
    assert [answer.body for answer in found] == [
        LOG[10 * n : 10 * min(60, n + 32)] for n in range(31)
    ]
    assert run.answered() == [
        Answered(0, 31, sum(min(32, 60 - n) for n in range(31)), run.answered()[0].body_bytes, 160)
    ]
    assert run.answered()[0].body_bytes == 10 * run.answered()[0].messages
    assert not run.is_full


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({}, 20),
        ({"end": 105}, 5),
        ({"max_offset": 107}, 7),
        ({"end": 105, "max_offset": 103}, 3),
        ({"lowest": 101}, 0),
        ({"max_offset": 100}, 0),
        ({"end": 100}, 0),
        ({"first": 101}, 0),
    ],
)
def test_no_unit_is_read_that_is_out_of_bounds(changes: dict[str, int], messages: int) -> None:
    run = run_of(frame(1, 100))
    found = answers(run, queue(20, **changes))
    assert [len(answer.body) for answer in found] == [10 * messages] * bool(messages)
    assert run.count == len(found)


def test_records_that_are_not_side_by_side_are_gathered() -> None:
    run = run_of(frame(1, 100))
    (answer,) = answers(run, queue(20, units=units(20, step=25)))
    assert answer.body == b"".join(LOG[25 * n : 25 * n + 10] for n in range(20))
    (answer,) = answers(run_of(frame(1, 100)), queue(20), tags_codes={1, 3})
    assert answer.body == b"".join(LOG[10 * n : 10 * n + 10] for n in range(20) if n % 5 in {1, 3})
    assert answers(run_of(frame(1, 100)), queue(20), tags_codes=set()) == []


def test_a_tag_is_looked_for_in_so_many_units() -> None:
    changed = units(900)
    UNIT.pack_into(changed, 20 * 850, LOG_FIRST, 10, 77)
    run = run_of(frame(1, 151), frame(2, 150))
    assert [each.opaque for each in answers(run, queue(900, units=changed), tags_codes={77})] == [1]


def test_the_address_of_an_extension_is_no_tag() -> None:
    changed = units(20)
    UNIT.pack_into(changed, 20 * 3, LOG_FIRST + 30, 10, -(1 << 31) - 1)
    assert answers(run_of(frame(1, 100)), queue(20, units=changed), tags_codes={1}) == []
    (answer,) = answers(run_of(frame(1, 100)), queue(20, units=changed))
    assert len(answer.body) == 200
    UNIT.pack_into(changed, 20 * 3, LOG_FIRST + 30, 10, -(1 << 31))
    (answer,) = answers(run_of(frame(1, 100)), queue(20, units=changed), tags_codes={1})
    assert len(answer.body) == 40


@pytest.mark.parametrize(
    "unit",
    [
        (LOG_FIRST, 2**31 - 1, 0),
        (LOG_FIRST, 0, 0),
        (LOG_FIRST, -1, 0),
        (LOG_FIRST - 1, 10, 0),
        (-1, 10, 0),
        (LOG_FIRST + len(LOG) - 9, 10, 0),
        (LOG_FIRST + len(LOG), 10, 0),
        (2**63 - 1, 10, 0),
    ],
)
def test_a_unit_that_makes_no_sense_ends_the_run(unit: tuple[int, int, int]) -> None:
    changed = units(20)
    UNIT.pack_into(changed, 20 * 10, *unit)
    run = run_of(*(frame(number, 100 + number, max_msg_nums=8) for number in (1, 2, 10, 3)))
    assert [answer.opaque for answer in answers(run, queue(20, units=changed))] == [1, 2]
    assert run.count == 2


def test_files_of_the_log_are_asked_for_as_they_are_needed() -> None:
    asked = []

    def of_100(offset: int) -> LogPiece | None:
        asked.append(offset)
        first = offset // 100 * 100
        at = first - LOG_FIRST
        return LogPiece(LOG[at : at + 100], first, first + 100) if at < 700 else None

    run = run_of(*(frame(number, 100 + 5 * number, max_msg_nums=5) for number in range(20)))
    found = answers(run, queue(200), piece_of=of_100)
    assert [answer.body for answer in found] == [LOG[50 * n : 50 * n + 50] for n in range(14)]
    assert asked == [LOG_FIRST + 100 * number for number in range(8)]
    assert (run.count, run.is_full) == (14, False)


def test_of_too_many_files_the_run_ends() -> None:
    def of_10(offset: int) -> LogPiece:
        return LogPiece(LOG[offset - LOG_FIRST :][:10], offset, offset + 10)

    run = run_of(*(frame(number, 100 + number, max_msg_nums=1) for number in range(20)))
    assert len(answers(run, queue(200), piece_of=of_10)) == 8
    assert run.is_full
    run = run_of(frame(1, 100))
    assert answers(run, queue(200), piece_of=of_10) == []
    assert run.count == 0


def test_what_may_be_in_one_answer_is_bounded() -> None:
    for bytes_max, count in [(1, 1), (9, 1), (10, 1), (19, 1), (20, 2), (99, 9), (320, 32)]:
        (answer,) = answers(run_of(frame(1, 100)), queue(60), bytes_max=bytes_max)
        assert len(answer.body) == 10 * count


@pytest.mark.parametrize("less", range(0, 300, 5))
def test_a_run_that_has_no_more_room_says_so(less: int) -> None:
    """However near the end of the room the last one comes."""
    log = bytes(ANSWERS_BYTES_MAX)
    size = ANSWERS_BYTES_MAX // 4 - less
    first = 10**18 - 100  # its digits take room
    run = run_of(*(frame(2**31 - 1, first + number) for number in range(6)))
    found = answers(
        run,
        QueueUnits(units(6, step=0, size=size), first, first + 6, first, first, first + 6),
        piece_of=lambda _: LogPiece(log, LOG_FIRST, LOG_FIRST + len(log)),
        bytes_max=1,
    )
    assert 3 <= len(found) <= 4
    assert {len(answer.body) for answer in found} == {size}
    assert run.is_full
    # The next run is another one.
    assert len(answers(run_of(frame(1, 100)), queue(6))) == 1


def test_units_and_log_that_cannot_be_written_are_read() -> None:
    with mmap.mmap(-1, len(LOG)) as log:
        log[:] = LOG
        both = bytes(units(20)), memoryview(log).toreadonly()
        (answer,) = answers(
            run_of(frame(1, 100)),
            queue(20, units=both[0]),
            piece_of=lambda _: LogPiece(both[1], LOG_FIRST, LOG_FIRST + len(LOG)),
        )
        assert answer.body == LOG[:200]
        both[1].release()


def test_nothing_is_kept_of_what_was_read() -> None:
    """A file of the log can be closed after each run."""
    log = mmap.mmap(-1, len(LOG))
    answers(
        run_of(frame(1, 100)),
        queue(20),
        piece_of=lambda _: LogPiece(log, LOG_FIRST, LOG_FIRST + len(LOG)),
    )
    log.close()


def test_of_a_queue_without_units_nothing_is_answered() -> None:
    run = run_of(frame(1, 100), frame(2, 0, 1), frame(3, 101))
    assert [answer.opaque for answer in answers(run, queue(20), NO_UNITS)] == [1]
    assert [place.queue_id for place in run.answered()] == [0]
