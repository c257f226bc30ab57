import msgspec
import pyarrow as pa
import pytest

from tandem.client.cluster_access import ClusterAccess
from tandem.spark.live.chunks import Chunk
from tandem.spark.live.gathered import CHUNKS_MAX, gathered, records_together
from tandem.spark.live.options import LiveOptions
from tandem.spark.live.ranges import QueueRange
from tandem.spark.live.reader import batches_of
from tandem.wire.message import (
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
    MessageExt,
    encode_record,
)
from tests.tandem.client.fake_broker import message_ext
from tests.tandem.spark.live.live_world import queue

RANGES = [
    QueueRange(queue(0), 0, 1000, "cluster-a"),
    QueueRange(queue(1), 0, 1000, "cluster-a"),
    QueueRange(msgspec.structs.replace(queue(0), topic="others"), 0, 1000, "cluster-a"),
    QueueRange(msgspec.structs.replace(queue(0), broker_name="elsewhere"), 0, 1000, "cluster-a"),
    QueueRange(queue(2), 0, 1000, "cluster-b"),
]


def stored(place: int, offset: int, **changes: object) -> MessageExt:
    of = RANGES[place].queue
    message = message_ext(b"body %d" % offset, queue_offset=offset)
    return msgspec.structs.replace(
        message, **{"topic": of.topic, "queue_id": of.queue_id, **changes}
    )


def a_chunk(place: int, start: int, *messages: MessageExt, end: int | None = None) -> Chunk:
    data = bytearray(b"".join(map(encode_record, messages)))
    return Chunk(place, start, start + len(messages) if end is None else end, data, [])


def plain(place: int, start: int, count: int) -> Chunk:
    return a_chunk(place, start, *(stored(place, start + n) for n in range(count)))


def damaged(chunk: Chunk) -> Chunk:
    """The same with another body."""
    return msgspec.structs.replace(chunk, data=chunk.data.replace(b"body", b"bodi"))


def test_records_of_several_queues_and_topics_are_seen_at_once() -> None:
    group = [plain(0, 7, 3), plain(1, 0, 1), plain(2, 40, 2)]
    found = records_together(group, RANGES)
    assert found is not None
    assert found.records.queue_offset.tolist() == [7, 8, 9, 0, 40, 41]
    assert found.topics.to_pylist() == [RANGES[0].queue.topic] * 4 + ["others"] * 2
    assert found.store == RANGES[0].queue.broker_name


@pytest.mark.parametrize(
    "group",
    [
        pytest.param([msgspec.structs.replace(plain(0, 0, 1), holes=[(1, 2)], end=2)], id="hole"),
        pytest.param([plain(0, 0, 2), plain(1, 0, 0)], id="an empty one"),
        pytest.param([a_chunk(0, 0, stored(0, 0), end=2), plain(1, 0, 1)], id="one is missing"),
        pytest.param(
            [a_chunk(0, 0, stored(0, 0), end=2), a_chunk(1, 0, stored(1, 0), stored(1, 1), end=1)],
            id="one too few, and one too many",
        ),
        pytest.param([a_chunk(0, 0, stored(0, 0), stored(0, 0))], id="one twice"),
        pytest.param([a_chunk(0, 0, stored(0, 1), stored(0, 0))], id="the wrong way round"),
        pytest.param([plain(0, 0, 1), a_chunk(1, 0, stored(0, 0))], id="of another queue"),
        pytest.param(
            [plain(0, 0, 1), a_chunk(2, 0, stored(0, 0, topic="third"))], id="of another topic"
        ),
        pytest.param(
            [a_chunk(0, 0, stored(2, 0)), a_chunk(2, 0, stored(0, 0))], id="topics change places"
        ),
        pytest.param([plain(0, 0, 1), damaged(plain(1, 0, 1))], id="a body is another"),
        pytest.param(
            [a_chunk(0, 0, stored(0, 0, sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG))],
            id="a batch in a record",
        ),
    ],
)
def test_what_is_unusual_is_left_to_the_long_way(group: list[Chunk]) -> None:
    assert records_together(group, RANGES) is None


@pytest.mark.parametrize("size", [0, 1, 4, 60, 95])
def test_half_a_record_is_left_to_the_long_way(size: int) -> None:
    cut = msgspec.structs.replace(plain(0, 0, 1), data=plain(0, 0, 1).data[:size])
    assert records_together([cut, plain(1, 0, 1)], RANGES) is None
    assert records_together([plain(1, 0, 1), cut], RANGES) is None


def test_what_is_no_record_is_left_to_the_long_way() -> None:
    whole = plain(0, 0, 2)
    more = msgspec.structs.replace(whole, data=whole.data + b"more")
    assert records_together([more], RANGES) is None
    shorter = bytearray(encode_record(stored(0, 0, properties={"NAME": "value"})))
    size_at = len(shorter) - len(b"NAME\1value\2") - 2
    assert shorter[size_at + 1] == len(b"NAME\1value\2")
    shorter[size_at + 1] -= 1
    unsound = [Chunk(0, 0, 1, shorter, [])]
    assert records_together(unsound, RANGES) is None
    assert records_together(unsound, RANGES, check_crc=False) is None


def test_a_record_in_two_chunks_belongs_to_neither() -> None:
    """Together the bytes are two sound records; by itself neither chunk is."""
    first, second = plain(0, 0, 1), plain(1, 0, 1)
    both = first.data + second.data
    group = [
        msgspec.structs.replace(first, data=both[:50]),
        msgspec.structs.replace(second, data=both[50:]),
    ]
    assert records_together(group, RANGES) is None


def test_the_crc_of_bodies_is_not_looked_at_if_nobody_wants_it() -> None:
    found = records_together([damaged(plain(0, 0, 1))], RANGES, check_crc=False)
    assert found is not None
    assert found.batch(["crcOk"]).column(0).to_pylist() == [None]


def test_chunks_are_put_together_up_to_a_size_and_within_a_broker_of_a_cluster() -> None:
    short = [plain(0, 0, 1), plain(1, 0, 1), plain(2, 0, 1), plain(3, 0, 1), plain(4, 0, 1)]
    places = [[each.place for each in group] for group in gathered(short, RANGES)]
    assert places == [[0, 1, 2], [3], [4]]
    by_size = gathered(short[:3], RANGES, len(short[0].data) + len(short[1].data))
    assert [len(group) for group in by_size] == [2, 1]
    assert [len(group) for group in gathered([plain(0, 0, 1)] * 5, RANGES, 1)] == [1] * 5
    many = [len(group) for group in gathered([plain(0, 0, 0)] * (CHUNKS_MAX + 1), RANGES)]
    assert many == [CHUNKS_MAX, 1]
    assert list(gathered([], RANGES)) == []


NAMES = ["topic", "brokerName", "clusterName", "queueId", "queueOffset", "body", "keys"]


def rows(group: list[Chunk], **changes: object) -> list[dict[str, object]]:
    options = msgspec.structs.replace(LiveOptions(ClusterAccess("127.0.0.1:9876")), **changes)
    batches = list(batches_of([group], RANGES, options, NAMES))
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def one_by_one(group: list[Chunk], **changes: object) -> list[dict[str, object]]:
    return [row for chunk in group for row in rows([chunk], **changes)]


@pytest.mark.parametrize("decompress", [True, False])
def test_rows_are_those_of_each_chunk_by_itself(*, decompress: bool) -> None:
    group = [plain(0, 7, 3), plain(1, 0, 1), plain(2, 40, 2)]
    assert rows(group, decompress=decompress) == one_by_one(group, decompress=decompress)
    assert len(rows(group)) == 6
    assert [row["topic"] for row in rows(group)][3:] == [RANGES[0].queue.topic, "others", "others"]


def test_compressed_bodies_are_decompressed_all_the_same() -> None:
    import zlib  # noqa: PLC0415

    packed = stored(1, 3, body=zlib.compress(b"long" * 99), sys_flag=COMPRESSED_FLAG)
    group = [plain(0, 7, 2), a_chunk(1, 3, packed)]
    assert rows(group)[2]["body"] == b"long" * 99
    assert rows(group) == one_by_one(group)
    assert rows(group, decompress=False)[2]["body"] != b"long" * 99


def test_a_batch_in_a_record_goes_the_long_way_and_loses_no_neighbour() -> None:
    batch = stored(
        1, 4, sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG, properties={"INNER_NUM": "2"}
    )
    group = [plain(0, 7, 2), a_chunk(1, 4, batch, end=6)]
    assert [row["queueOffset"] for row in rows(group, decompress=False)] == [7, 8, 4]


def test_only_the_wanted_rows_come() -> None:
    tagged = a_chunk(1, 0, stored(1, 0, properties={"TAGS": "red"}), stored(1, 1))
    group = [plain(0, 7, 2), tagged]
    assert [row["queueOffset"] for row in rows(group, tags=frozenset({"red"}))] == [0]
    assert rows(group, tags=frozenset({"none"})) == []
