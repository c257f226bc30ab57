"""A master that alone has messages, readers of its files, and a switch that cuts them off.

Real processes: both followers are frozen while the master takes messages that nobody waits for, and
then it is killed. What readers of its directory have had must be in the log of its group for good;
a reader that is not bounded shows that there was something to be cut.
"""

import json
from pathlib import Path

import pytest

import tandem
from tandem.spark.commitlog.options import parse_options
from tandem.spark.commitlog.parts import read_part
from tandem.spark.commitlog.stream import CommitLogStream, Marks, from_json, to_json
from tandem.spark.commitlog.table import plan_table
from tandem.spark.jobs.archive_job import run_archive, verify_archive
from tandem.spark.jobs.runner import HereRunner
from tandem.spark.jobs.settings import ArchiveSettings, OpenFile
from tandem.testing import RunningCluster, running_fenced_cluster
from tests.support.patience import ATTEMPT_MS, COUNTED, PATIENCE_MS, PATIENT_LEASE, wait_until

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.thorough]

TOPIC = "orders"
CONFIRMED, ALONE, LATER = 200, 100, 50


class Stream:
    """A stream over one store, as Spark runs it; it is started anew for each batch."""

    def __init__(self, store: Path, **given: str) -> None:
        raw = {"path": str(store), "topic": TOPIC, "startingOffsets": "earliest", **given}
        self.options = parse_options(raw)
        self.at: Marks | None = None
        self.bodies: list[str] = []

    def batch(self) -> None:
        stream = CommitLogStream(self.options)
        start = stream.initial() if self.at is None else self.at
        end = from_json(json.loads(json.dumps(to_json(stream.next_end(start, None)))))
        for part in stream.splits(start, end):
            self.bodies += bodies(read_part(part, self.options, ("body",)))
        self.at = end


def bodies(batches) -> list[str]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    return [row["body"].decode() for batch in batches for row in batch.to_pylist()]


def table(store: Path, **given: str) -> list[str]:
    options = parse_options({"path": str(store), "topic": TOPIC, **given})
    return [
        body for part in plan_table(options) for body in bodies(read_part(part, options, ("body",)))
    ]


def send(cluster: RunningCluster, kind: str, count: int, ack: tandem.Ack) -> None:
    with tandem.BlockingProducer(
        cluster.name_servers,
        group="shop",
        ack=ack,
        send_msg_timeout_ms=PATIENCE_MS,
        attempt_timeout_ms=ATTEMPT_MS,
    ) as producer:
        for number in range(count):
            producer.send(tandem.Message(TOPIC, b"%s %d" % (kind.encode(), number)))


def test_a_cut_takes_nothing_that_readers_of_files_have_had(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    with running_fenced_cluster(
        tmp_path / "cluster", proxied=True, settings=PATIENT_LEASE | COUNTED
    ) as cluster:
        with tandem.BlockingAdmin(cluster.name_servers) as admin:
            admin.create_topic(TOPIC, queue_nums=1)
        send(cluster, "confirmed", CONFIRMED, tandem.Ack.REPLICATED)
        master = cluster.wait_for_master()
        store = cluster.store_directory(master)
        wait_until(lambda: len(table(store)) == CONFIRMED)

        others = [name for name in cluster.nodes if name != master]
        # Not frozen: what has come to a frozen node is read by it once it goes on.
        links = [cluster.cut(master, name) for name in others]
        send(cluster, "alone", ALONE, tandem.Ack.ASYNC)
        cluster.kill(master)

        bounded = Stream(store)
        unbounded = Stream(store, includeUnconfirmed="true", failOnDataLoss="false")
        for stream in (bounded, unbounded):
            stream.batch()
        assert len(bounded.bodies) == len(table(store)) == CONFIRMED
        assert len(unbounded.bodies) == CONFIRMED + ALONE
        assert len(table(store, includeUnconfirmed="true")) == CONFIRMED + ALONE
        archive = ArchiveSettings(
            archive=str(tmp_path / "archive"),
            stores={"broker-a": str(store)},
            open_file=OpenFile.TAKE,
        )
        archived = run_archive(archive, HereRunner())
        assert archived.rows >= CONFIRMED

        for link in links:
            link.undo()
        cluster.wait_for_master()
        send(cluster, "later", LATER, tandem.Ack.REPLICATED)
        cluster.start(master)
        cluster.wait_in_sync()
        expected = [f"confirmed {number}" for number in range(CONFIRMED)]
        expected += [f"later {number}" for number in range(LATER)]
        wait_until(lambda: len(table(store)) == len(expected))
        assert list((store / "truncated").iterdir())

        assert table(store) == expected
        bounded.batch()
        assert bounded.bodies == expected
        assert set(unbounded.bodies) - set(expected)
        assert verify_archive(archive, HereRunner()).faults == []
        assert run_archive(archive, HereRunner()).faults == []
