"""What files have and what brokers have, cut at an offset: every message once."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import tandem
from tandem.spark.errors import OptionError, SparkSourceError
from tandem.spark.live.backfill import Backfill, BackfillGoneError, BackfillStore, file_pieces
from tandem.spark.live.chunks import AnswerError, AnswerFault, chunks, records_of
from tandem.spark.live.cluster import Cluster
from tandem.spark.live.options import LiveOptions, parse_options
from tandem.spark.live.ranges import QueueRange
from tandem.spark.live.reader import plan_batch, read_ranges
from tandem.spark.live.stream_plan import StreamPlan
from tandem.testing import RunningCluster
from tests.support.log_builder import LogBuilder
from tests.tandem.spark.live.live_world import (
    TOPIC,
    Asked,
    FakeTime,
    counting_producer,
    options,
    queue,
)

COUNT = 400


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two queues of 400 messages of different lengths, in files of 64 KiB; others among them."""
    builder = LogBuilder()
    for number in range(COUNT):
        builder.put(TOPIC, b"a%d" % number * (1 + number % 50), queue_id=0)
        builder.put("others", bytes(number))
        builder.put(TOPIC, b"b%d" % number, queue_id=1)
    return str(builder.write(tmp_path_factory.mktemp("store"), queue_file_bytes=2_000))


def backfill(asked: Asked, **given: str) -> Backfill:
    return Backfill(options(**given), asked)


def offsets(ranges: Sequence[QueueRange]) -> list[tuple[int, int]]:
    return [
        (ranges[chunk.place].queue.queue_id, offset)
        for chunk in chunks(file_pieces(ranges))
        for offset in records_of(chunk, ranges[chunk.place]).records.queue_offset.tolist()
    ]


def test_files_say_what_they_have(path: str) -> None:
    opened = BackfillStore(path)
    assert opened.bounds(queue(0)) == (0, COUNT)
    assert opened.bounds(queue(7)) == (0, 0)


def test_what_was_deleted_from_the_log_is_not_there(path: str, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path, dirs_exist_ok=True)
    oldest = min((tmp_path / "commitlog").iterdir())
    oldest.unlink()
    first, end = BackfillStore(str(tmp_path)).bounds(queue(0))
    assert 0 < first < end == COUNT
    there = [QueueRange(queue(0), first, end, store=str(tmp_path))]
    assert offsets(there) == [(0, offset) for offset in range(first, end)]
    with pytest.raises(BackfillGoneError, match="its files changed") as caught:
        offsets([QueueRange(queue(0), first - 1, end, store=str(tmp_path))])
    assert caught.value.offset == first - 1


@pytest.mark.parametrize("seed", range(20))
def test_any_range_is_read_from_files_as_it_is_at_brokers(path: str, seed: int) -> None:
    chance = random.Random(seed)
    ranges = []
    for queue_id in (0, 1):
        start, end = sorted((chance.randrange(COUNT + 1), chance.randrange(COUNT + 1)))
        ranges.append(QueueRange(queue(queue_id), start, end, store=path))
    assert offsets(ranges) == [
        (each.queue.queue_id, offset) for each in ranges for offset in range(each.start, each.end)
    ]


def test_a_unit_that_names_another_record_is_noticed(path: str, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path, dirs_exist_ok=True)
    units = tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    data = bytearray(units.read_bytes())
    data[100:120], data[200:220] = data[200:220], data[100:120]
    units.write_bytes(data)
    with pytest.raises(AnswerError) as caught:
        offsets([QueueRange(queue(0), 0, 20, store=str(tmp_path))])
    assert (caught.value.fault, caught.value.offset) == (AnswerFault.REPEATED, 6)


def test_records_beyond_the_log_are_not_there(path: str) -> None:
    with pytest.raises(BackfillGoneError) as caught:
        offsets([QueueRange(queue(0), COUNT - 1, COUNT + 1, store=path)])
    assert caught.value.offset == COUNT - 1


class TestTheSeam:
    """A queue that begins at 300 at its broker and ends at 1000; files have 0 to 400 of it."""

    def cut(self, path: str, start: int, end: int, **given: str) -> list[tuple[int, int, bool]]:
        asked = Asked(q0=1000)
        asked.firsts = {queue(0): 300}
        found = backfill(asked, backfill=path, **given).cut([QueueRange(queue(0), start, end)])
        return [(each.start, each.end, each.store == path) for each in found]

    def test_brokers_first(self, path: str) -> None:
        assert self.cut(path, 0, 1000) == [(0, 300, True), (300, 1000, False)]
        assert self.cut(path, 100, 200) == [(100, 200, True)]
        assert self.cut(path, 350, 1000) == [(350, 1000, False)]

    def test_files_first(self, path: str) -> None:
        given = {"backfillSeam": "files"}
        assert self.cut(path, 0, 1000, **given) == [(0, 400, True), (400, 1000, False)]
        assert self.cut(path, 350, 390, **given) == [(350, 390, True)]
        assert self.cut(path, 400, 1000, **given) == [(400, 1000, False)]

    def test_a_query_begins_where_the_files_do(self, path: str) -> None:
        asked = Asked(q0=1000, q7=50)
        asked.firsts = {queue(0): 300, queue(7): 5}
        found = backfill(asked, backfill=path).min_offsets([queue(0), queue(7)])
        assert found == {queue(0): 0, queue(7): 5}

    def test_the_end_is_the_brokers_word(self, path: str) -> None:
        given = options(backfill=path, backfillSeam="files")
        source = Backfill(given, Asked(q0=50, q1=7))
        found = source.cut(plan_batch(given, source))
        assert [(each.queue.queue_id, each.start, each.end) for each in found] == [
            (0, 0, 50),
            (1, 0, 7),
        ]

    @pytest.mark.parametrize("seed", range(50))
    def test_wherever_it_is_nothing_is_left_out_or_twice(self, path: str, seed: int) -> None:
        chance = random.Random(seed)
        start, end = sorted((chance.randrange(1001), chance.randrange(1001)))
        for seam in ("brokers", "files"):
            parts = self.cut(path, start, end, backfillSeam=seam)
            covered = [offset for first, stop, _ in parts for offset in range(first, stop)]
            assert covered == list(range(start, end))


@pytest.mark.parametrize("seam", ["brokers", "files"])
@pytest.mark.parametrize("seed", range(10))
def test_a_stream_goes_from_files_to_brokers(path: str, seam: str, seed: int) -> None:
    """Brokers delete and get messages, and the stream is made anew, while it catches up."""
    chance = random.Random(seed)
    asked = Asked(q0=500)
    asked.firsts = {queue(0): 300}
    given = options(backfill=path, backfillSeam=seam, startingOffsets="earliest")
    time, at, read = FakeTime(), None, list[tuple[int, int, bool]]()
    for number in range(60):
        source = Backfill(given, asked)
        plan = StreamPlan(given, source, clock=time.monotonic, sleep=time.sleep)
        at = plan.initial() if at is None else at
        end = plan.next_end(at, 20)
        for each in source.cut([each for each in plan.ranges(at, end) if len(each)]):
            assert each.store or each.start >= asked.firsts[queue(0)]
            read.append((each.start, each.end, bool(each.store)))
        at = end
        if number < 20:
            asked.ends[queue(0)] += chance.randrange(20)
            asked.firsts[queue(0)] += chance.randrange(5)
    assert [start for start, _, _ in read] == [0, *(end for _, end, _ in read[:-1])]
    assert read[-1][1] == asked.ends[queue(0)]
    assert read[0][2]
    assert not read[-1][2]


def test_a_store_by_broker_name(path: str) -> None:
    asked = Asked(q0=1000)
    asked.ends[queue(0, "broker-b")] = 10
    with pytest.raises(OptionError, match="broker-a, broker-b") as caught:
        backfill(asked, backfill=path).queues(unknown_is_error=True)
    assert caught.value.names == ("backfill",)
    source = backfill(asked, backfill=json.dumps({"broker-b": path}), backfillSeam="files")
    assert len(source.queues(unknown_is_error=True)) == 2
    found = source.cut([QueueRange(each, 0, 10) for each in sorted(asked.ends)])
    assert [each.store for each in found] == ["", path]


def test_no_store_is_said(tmp_path: Path, path: str) -> None:
    with pytest.raises(SparkSourceError):
        backfill(Asked(q0=5), backfill=str(tmp_path / "nowhere")).min_offsets([queue(0)])
    log = shutil.copytree(f"{path}/commitlog", tmp_path / "log")
    with pytest.raises(SparkSourceError, match="without its queues"):
        backfill(Asked(q0=5), backfill=str(log)).min_offsets([queue(0)])


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_the_files_of_a_node_and_the_node_say_the_same(node: RunningCluster) -> None:
    topic = node.topic(queues=2)
    with counting_producer(node) as producer:
        for number in range(300):
            producer.send(tandem.Message(topic, b"%d" % number, keys=f"k{number}"))
    given = {"nameservers": ";".join(node.name_servers), "subscribe": topic}

    def rows(found: LiveOptions) -> list[dict[str, object]]:
        with Cluster(found) as cluster:
            source = Backfill(found, cluster)
            ranges = source.cut(plan_batch(found, source))
        assert {bool(each.store) for each in ranges} == {found.backfill is not None}
        return [
            row
            for each in ranges
            for batch in read_ranges([each], found, found.columns)
            for row in batch.to_pylist()
        ]

    files = {"backfill": str(node.store_directory("broker-a-0")), "backfillseam": "files"}
    from_node, from_files = rows(parse_options(given)), rows(parse_options(given | files))
    assert len(from_node) == 300
    assert from_files == from_node
