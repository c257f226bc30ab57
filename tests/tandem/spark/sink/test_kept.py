"""What a task of the sink opens, and what it leaves to the next one: counted, at a real node."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

import tandem
from tandem.client.cluster_access import ClusterAccess
from tandem.client.event_loop import ByteStream
from tandem.client.running_loop import running_event_loop
from tandem.spark.sink.columns import SinkColumns
from tandem.spark.sink.committed import CommittedBatches
from tandem.spark.sink.errors import RowError
from tandem.spark.sink.kept import CLIENTS_MAX, KeptClients, lent_client
from tandem.spark.sink.options import SinkOptions
from tandem.spark.sink.unique_key import RowKeys
from tandem.spark.sink.writer import Sent, send_partition
from tandem.testing import RunningCluster
from tests.support.paths import ROOT
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.tandem.spark.sink.patient import PATIENT_MS

pytestmark = [pytest.mark.slow, pytest.mark.fault]


class Opened:
    """Real connections, counted; a test can end one."""

    def __init__(self) -> None:
        self.streams: list[ByteStream] = []

    async def open(self, host: str, port: int) -> ByteStream:
        self.streams.append(await running_event_loop().open_tcp(host, port))
        return self.streams[-1]


@pytest.fixture
def opened() -> Opened:
    return Opened()


@pytest.fixture
def kept() -> Iterator[KeptClients]:
    made = KeptClients()
    yield made
    made.close()


def options(
    node: RunningCluster, topic: str, *, skip_committed: bool = False, **given: str
) -> SinkOptions:
    access_key, secret_key = given.pop("access_key", ""), given.pop("secret_key", "")
    access = ClusterAccess(node.name_servers, access_key=access_key, secret_key=secret_key)
    return SinkOptions(
        access,
        topic,
        attempt_ms=PATIENT_MS,
        skip_committed=skip_committed,
        **given,  # type: ignore[arg-type]
    )


def task(
    given: SinkOptions, opened: Opened, kept: KeptClients | None, batch: int = 0, rows: int = 10
) -> Sent:
    table = pa.RecordBatch.from_pydict({"body": [b"%d %d" % (batch, row) for row in range(rows)]})
    keys = RowKeys("w", batch, 0)
    columns = SinkColumns(("body",))
    return send_partition(given, columns, keys, "p", iter([table]), kept, opened.open)


def bodies(node: RunningCluster, topic: str) -> list[bytes]:
    with tandem.BlockingPullConsumer(node.name_servers, group="test") as consumer:
        return sorted(each.body for each in consumer.messages(topic, until_end=True))


def test_a_run_of_tasks_opens_two_connections_and_all_rows_come(
    node: RunningCluster, opened: Opened, kept: KeptClients
) -> None:
    topic = node.topic()
    for batch in range(4):
        assert task(options(node, topic), opened, kept, batch).messages == 10
    assert len(opened.streams) == 2
    expected = [b"%d %d" % (batch, row) for batch in range(4) for row in range(10)]
    assert bodies(node, topic) == expected


def test_what_is_written_is_asked_and_noted_without_a_connection_more(
    node: RunningCluster, opened: Opened, kept: KeptClients
) -> None:
    given = options(node, node.topic(), skip_committed=True)
    for batch in range(3):
        with lent_client(given, kept, opened.open) as thread:
            assert CommittedBatches(given, "q", thread).count() == batch
        task(given, opened, kept, batch)
        with lent_client(given, kept, opened.open) as thread:
            CommittedBatches(given, "q", thread).record(batch)
    assert len(opened.streams) == 2
    assert len(bodies(node, given.topic)) == 30


def test_nothing_is_kept_where_no_worker_asks(node: RunningCluster, opened: Opened) -> None:
    topic = node.topic()
    for _ in range(2):
        task(options(node, topic), opened, None)
    assert len(opened.streams) == 4


def test_a_task_that_fails_leaves_no_client(
    node: RunningCluster, opened: Opened, kept: KeptClients
) -> None:
    given = options(node, node.topic())
    task(given, opened, kept)
    nothing = pa.RecordBatch.from_pydict({"body": pa.array([None], pa.binary())})
    columns, keys = SinkColumns(("body",)), RowKeys("w", 1, 0)
    with pytest.raises(RowError):
        send_partition(given, columns, keys, "p", iter([nothing]), kept, opened.open)
    assert kept.take(given) is None


def test_a_connection_that_has_ended_meanwhile_is_opened_anew(
    node: RunningCluster, opened: Opened, kept: KeptClients
) -> None:
    given = options(node, node.topic())
    task(given, opened, kept)
    thread = kept.take(given)
    assert thread is not None
    for stream in opened.streams:
        thread.run(stream.aclose)
    kept.leave(thread)
    assert task(given, opened, kept, 1).messages == 10
    assert len(bodies(node, given.topic)) == 20
    assert len(opened.streams) > 2


def test_a_fork_has_none_and_another_user_has_its_own(
    node: RunningCluster, opened: Opened, kept: KeptClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(node, node.topic())
    task(given, opened, kept)
    other = options(node, given.topic, access_key="someone", secret_key="twelve letters")
    assert kept.take(other) is None
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        assert kept.take(given) is None
    thread = kept.take(given)
    assert thread is not None
    kept.leave(thread)


def test_routes_of_other_tasks_are_not_looked_after(
    node: RunningCluster, opened: Opened, kept: KeptClients
) -> None:
    topics = [node.topic() for _ in range(3)]
    for topic in topics:
        task(options(node, topic), opened, kept)
    thread = kept.take(options(node, topics[0]))
    assert thread is not None
    assert list(thread.client.core.routes) == topics[2:]
    kept.leave(thread)


def test_no_more_than_some_clients_are_kept(
    node: RunningCluster, opened: Opened, kept: KeptClients
) -> None:
    topic = node.topic()
    groups = [f"group-{number}" for number in range(CLIENTS_MAX + 2)]
    for group in groups:
        task(options(node, topic, group=group), opened, kept)
    found = [kept.take(options(node, topic, group=group)) for group in groups]
    assert [each is None for each in found] == [True, True, *[False] * CLIENTS_MAX]
    for each in found:
        if each is not None:
            each.close(politely=True)


def test_a_task_follows_a_change_of_the_node_while_the_client_rested(
    node: RunningCluster, opened: Opened, kept: KeptClients
) -> None:
    given = options(node, node.topic())
    task(given, opened, kept)
    name = node.status()[0].name
    node.kill(name)
    node.start(name)
    wait_until(lambda: task(given, opened, kept, 1).messages == 10)
    assert {body for body in bodies(node, given.topic) if body.startswith(b"1")} == {
        b"1 %d" % row for row in range(10)
    }


LEAVES_ONE = """
from tandem.client.cluster_access import ClusterAccess
from tandem.spark.sink.kept import ClientThread, KeptClients
from tandem.spark.sink.options import SinkOptions

kept = KeptClients()
kept.leave(ClientThread(SinkOptions(ClusterAccess("127.0.0.1:1"))))
print("the end")
"""


def test_a_worker_that_no_daemon_has_forked_ends_with_its_client() -> None:
    """As with `spark.python.use.daemon=false`: the interpreter ends by itself."""
    command = [sys.executable, "-P", "-c", LEAVES_ONE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, env=environment, capture_output=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert (ended.stdout, ended.stderr) == (b"the end\n", b"")
