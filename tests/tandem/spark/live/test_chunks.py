import itertools

import msgspec
import pytest

from tandem.spark.live.chunks import (
    AnswerError,
    AnswerFault,
    Chunk,
    arrow_batch,
    chunks,
    records_of,
)
from tandem.spark.live.pull_window import Piece
from tandem.spark.live.ranges import QueueRange
from tandem.wire.message import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, MessageExt, encode_record
from tests.tandem.client.fake_broker import message_ext
from tests.tandem.spark.live.live_world import queue

RANGE = QueueRange(queue(0), 0, 1000, "cluster-a")
INNER_BATCH = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG


def stored(offset: int, **changes: object) -> MessageExt:
    body = b"body %d" % offset
    return msgspec.structs.replace(message_ext(body, queue_offset=offset), **changes)


def a_chunk(
    start: int, end: int, *messages: MessageExt, holes: tuple[tuple[int, int], ...] = ()
) -> Chunk:
    data = bytearray(b"".join(map(encode_record, messages)))
    return Chunk(0, start, end, data, list(holes))


def damaged(chunk: Chunk) -> Chunk:
    """The same with another body."""
    return msgspec.structs.replace(chunk, data=chunk.data.replace(b"body", b"bodi"))


def offsets(chunk: Chunk) -> list[int]:
    found: list[int] = records_of(chunk, RANGE).records.queue_offset.tolist()
    return found


def test_pieces_are_joined_up_to_a_size_and_within_a_range() -> None:
    pieces = [Piece(0, 0, 32, b"aa"), Piece(0, 32, 64, b"bb"), Piece(0, 64, 70, b"cc")]
    pieces += [Piece(1, 5, 9, b"dd")]
    found = list(chunks([pieces[:1], [], pieces[1:]], chunk_bytes=4))
    assert [(each.place, each.start, each.end, bytes(each.data)) for each in found] == [
        (0, 0, 64, b"aabb"),
        (0, 64, 70, b"cc"),
        (1, 5, 9, b"dd"),
    ]
    assert list(chunks([])) == []


def test_a_hole_is_remembered() -> None:
    (found,) = chunks([[Piece(0, 0, 5, b"a"), Piece(0, 5, 9, b""), Piece(0, 9, 11, b"b")]])
    assert (found.start, found.end, found.holes) == (0, 11, [(5, 9)])


def test_records_are_those_of_the_offsets() -> None:
    assert offsets(a_chunk(3, 6, *map(stored, (3, 4, 5)))) == [3, 4, 5]


def test_what_is_known_to_be_lost_may_be_missing() -> None:
    chunk = a_chunk(0, 10, *map(stored, (2, 3, 8)), holes=((0, 2), (4, 6), (6, 8), (9, 10)))
    assert offsets(chunk) == [2, 3, 8]
    assert offsets(a_chunk(0, 5, holes=((0, 5),))) == []


@pytest.mark.parametrize(
    ("chunk", "fault", "offset"),
    [
        (a_chunk(3, 6, *map(stored, (3, 5))), AnswerFault.MISSING, 4),
        (a_chunk(3, 6, *map(stored, (4, 5))), AnswerFault.MISSING, 3),
        (a_chunk(3, 6, *map(stored, (3, 4))), AnswerFault.MISSING, 5),
        (a_chunk(3, 6), AnswerFault.MISSING, 3),
        (a_chunk(3, 5, *map(stored, (4, 3))), AnswerFault.REPEATED, 3),
        (a_chunk(3, 5, *map(stored, (3, 3, 4))), AnswerFault.REPEATED, 3),
        (a_chunk(3, 5, *map(stored, (2, 3, 4))), AnswerFault.REPEATED, 2),
        (a_chunk(0, 9, stored(0), stored(8), holes=((1, 3), (4, 8))), AnswerFault.MISSING, 3),
        (a_chunk(0, 1, stored(0, queue_id=1)), AnswerFault.OTHER_QUEUE, -1),
        (a_chunk(0, 1, stored(0, topic="others")), AnswerFault.OTHER_QUEUE, -1),
        (damaged(a_chunk(0, 1, stored(0))), AnswerFault.CRC, 0),
    ],
)
def test_anything_else_is_refused(chunk: Chunk, fault: AnswerFault, offset: int) -> None:
    with pytest.raises(AnswerError, match="is something else") as caught:
        records_of(chunk, RANGE)
    assert (caught.value.fault, caught.value.offset) == (fault, offset)


@pytest.mark.parametrize("size", [1, 4, 60, 95, 130])
def test_half_a_record_is_refused(size: int) -> None:
    whole = a_chunk(0, 2, stored(0), stored(1))
    with pytest.raises(AnswerError) as caught:
        records_of(Chunk(0, 0, 2, whole.data[:size], []), RANGE)
    assert caught.value.fault is AnswerFault.BROKEN


def test_the_crc_of_bodies_is_looked_at_unless_told_otherwise() -> None:
    part = records_of(damaged(a_chunk(0, 1, stored(0))), RANGE, check_crc=False)
    assert part.batch(["crcOk"]).column(0).to_pylist() == [None]


class TestBatches:
    """A record that holds a batch of four, from offset 4 on, between single messages."""

    batch = stored(4, sys_flag=INNER_BATCH, properties={"INNER_NUM": "4"})
    everything = (*map(stored, (2, 3)), batch, *map(stored, (8, 9)))

    def test_it_stands_for_its_messages(self) -> None:
        assert offsets(a_chunk(2, 10, *self.everything)) == [2, 3, 4, 8, 9]

    def test_it_is_read_once_if_two_pulls_bring_it(self) -> None:
        messages = (*map(stored, (2, 3)), self.batch, self.batch, *map(stored, (8, 9)))
        assert offsets(a_chunk(2, 10, *messages)) == [2, 3, 4, 8, 9]

    def test_to_be_split_it_comes_to_every_range_that_has_a_part_of_it(self) -> None:
        for start, end, found in ((2, 6, [2, 3, 4]), (6, 7, [4]), (7, 10, [4, 8, 9])):
            there = [each for each in self.everything if start - 4 < each.queue_offset < end]
            there = [each for each in there if each is self.batch or each.queue_offset >= start]
            part = records_of(a_chunk(start, end, *there), RANGE, split=True)
            assert part.records.queue_offset.tolist() == found
        twice = a_chunk(2, 10, *map(stored, (2, 3)), self.batch, self.batch, *self.everything[3:])
        part = records_of(twice, RANGE, split=True)
        assert part.records.queue_offset.tolist() == [2, 3, 4, 8, 9]

    @pytest.mark.parametrize("cuts", [*itertools.combinations(range(3, 10), 2)])
    def test_wherever_a_queue_is_cut_each_record_is_in_one_range(
        self, cuts: tuple[int, int]
    ) -> None:
        found = []
        for start, end in itertools.pairwise((2, *cuts, 10)):
            there = [
                each
                for each in self.everything
                for count in (4 if each is self.batch else 1,)
                if each.queue_offset < end and each.queue_offset + count > start
            ]
            found += offsets(a_chunk(start, end, *there))
        assert found == [2, 3, 4, 8, 9]


def test_columns_say_where_a_record_was_read() -> None:
    part = records_of(a_chunk(0, 2, stored(0), stored(1)), RANGE)
    names = ["body", "clusterName", "brokerName", "queueOffset"]
    batch = arrow_batch(part, RANGE, names)
    assert batch.schema.names == names
    assert batch.to_pylist() == [
        {
            "body": b"body %d" % offset,
            "clusterName": "cluster-a",
            "brokerName": "broker-a",
            "queueOffset": offset,
        }
        for offset in (0, 1)
    ]
    only = arrow_batch(part, RANGE, ["brokerName"])
    assert only.column(0).to_pylist() == ["broker-a"] * 2
