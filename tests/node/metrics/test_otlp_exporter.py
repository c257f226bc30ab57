import logging
import zlib
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from node.figures.figure import Figure, Labels
from node.figures.node_report import NodeReport
from node.metrics.collection import Collection
from node.metrics.otlp_collector import NotTaken, NotTakenError
from node.metrics.otlp_exporter import OTLPExporter
from node.metrics.otlp_request import FIGURES_A_STEP
from store.machine.machine import this_machine
from tests.node.doubles import Broker
from tests.node.world import fenced_cluster, open_world
from tests.support.http_collector import Series
from tests.support.logged import logged

MODULE = "node.metrics.otlp_exporter"
INTERVAL = 60.0


class FakeCollector:
    """Takes what it is sent, unless it is told otherwise.

    Attributes:
        exports: When each came, and what was in it.
        trouble: Raised instead.
        answer: The body of the answer.
        seconds: How long an answer takes.
    """

    endpoint = "http://collector:4318/v1/metrics"

    def __init__(self) -> None:
        self.exports: list[tuple[float, Series]] = []
        self.trouble: NotTaken | None = None
        self.answer = b""
        self.seconds = 0.0

    async def send(self, body: bytes) -> bytes:
        self.exports.append((trio.current_time(), Series(zlib.decompress(body, 31))))
        await trio.sleep(self.seconds)
        if self.trouble is not None:
            raise NotTakenError("it is away", self.trouble)
        return self.answer


def collection_of(directory: Path, report: NodeReport | None = None) -> Collection:
    node = fenced_cluster(directory).node("a1")
    machine = msgspec.structs.replace(this_machine(), process=None)
    return Collection(node, machine, report or NodeReport())


async def run_for(intervals: float, exporter: OTLPExporter, collection: Collection) -> None:
    with trio.move_on_after(intervals * INTERVAL):
        await exporter.run(collection)


def exporter_to(collector: FakeCollector) -> OTLPExporter:
    return OTLPExporter(collector, interval_seconds=INTERVAL)


async def test_figures_are_exported_at_once_and_at_every_interval(
    tmp_path: Path, autojump_clock: object
) -> None:
    collector = FakeCollector()
    await run_for(3.5, exporter_to(collector), collection_of(tmp_path))
    began = collector.exports[0][0]
    assert [at - began for at, _ in collector.exports] == [0, 60, 120, 180]
    own = {"cluster": "DefaultCluster", "group": "broker-a", "node": "a1"}
    last = collector.exports[-1][1]
    assert last.values("tandem_broker_running", **own) == [0]
    assert last.values("tandem_otlp_exports_total", outcome="taken") == [3]
    assert last.resource["service.instance.id"] == "a1"
    assert last.resource["service.namespace"] == "DefaultCluster"


async def test_a_slow_collector_gets_the_next_export_when_it_is_due(
    tmp_path: Path, autojump_clock: object
) -> None:
    collector = FakeCollector()
    collector.seconds = 1.25 * INTERVAL
    await run_for(5, exporter_to(collector), collection_of(tmp_path))
    began = collector.exports[0][0]
    assert [at - began for at, _ in collector.exports] == [0, 120, 240]


async def test_each_change_of_state_is_one_line(
    tmp_path: Path, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector, collection = FakeCollector(), collection_of(tmp_path)
    exporter = exporter_to(collector)
    lines = []
    for trouble, answer in (
        (NotTaken.UNREACHABLE, b""),
        (NotTaken.REFUSED, b""),
        (None, b""),
        (None, b"\x0a\x02\x08\x03"),
        (None, b"<html>"),
        (None, b""),
    ):
        collector.trouble, collector.answer = trouble, answer
        caplog.clear()
        await run_for(2.5, exporter, collection)
        lines.append((logged(caplog, MODULE), logged(caplog, MODULE, logging.INFO)))
    assert [len(all_lines) for _, all_lines in lines] == [1] * 6
    assert [len(warnings) for warnings, _ in lines] == [1, 1, 0, 1, 1, 0]
    assert lines[2][1] == [(collector.endpoint, 6)]  # so many were lost
    assert dict(collection.exports) == {"unreachable": 3, "refused": 6, "taken": 6, "partly": 3}


async def test_the_first_export_that_is_taken_is_said_once(
    tmp_path: Path, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector = FakeCollector()
    await run_for(9, exporter_to(collector), collection_of(tmp_path))
    assert logged(caplog, MODULE, logging.INFO) == [(collector.endpoint, INTERVAL)]


async def test_a_mistake_in_a_figure_is_one_export_that_is_missing(
    tmp_path: Path, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    report, collector = NodeReport(), FakeCollector()
    sources = msgspec.structs.replace(Broker().sources(), live=lambda: [None])
    collection, exporter = collection_of(tmp_path, report), exporter_to(collector)
    with report.serving(sources):
        await run_for(1.5, exporter, collection)
    assert not collector.exports
    assert "a bug" in caplog.text
    await run_for(0.5, exporter, collection)
    assert len(collector.exports) == 1


async def test_others_have_their_turn_while_much_is_encoded(
    tmp_path: Path, autojump_clock: object
) -> None:
    report, collector, turns = NodeReport(), FakeCollector(), 0
    many = [Figure("tandem_acks_total", Labels(contract=str(n)), n) for n in range(1_000)]
    sources = msgspec.structs.replace(Broker().sources(), live=lambda: many)
    exporter, collection = exporter_to(collector), collection_of(tmp_path, report)

    async def take_turns() -> None:
        nonlocal turns
        while not collector.exports:
            turns += 1
            await trio.lowlevel.checkpoint()

    with report.serving(sources):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_turns)
            nursery.start_soon(run_for, 0.5, exporter, collection)
    assert turns > len(many) / FIGURES_A_STEP


@pytest.mark.slow
async def test_nodes_export_what_they_are_through_a_change_of_master(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    collectors = {name: FakeCollector() for name in ("a1", "a2", "a3")}
    async with open_world(fenced_cluster(tmp_path)) as world:
        for name, collector in collectors.items():
            world.exporters[name] = OTLPExporter(collector, interval_seconds=1.0)

        def roles() -> dict[str, str]:
            found = {}
            for name, collector in collectors.items():
                _, last = collector.exports[-1]
                for metric, labels in last.points:
                    if metric == "tandem_role":
                        found[name] = dict(labels)["role"]
            return found

        await world.start("a1", "a2", "a3")
        await trio.sleep(20)
        (master,) = (name for name, role in roles().items() if role == "master")
        collectors[master].trouble = NotTaken.UNREACHABLE
        await world.kill(master)
        await trio.sleep(30)
        after = {name: role for name, role in roles().items() if name != master}
        assert sorted(after.values()) == ["follower", "master"]
        # A dead node exports nothing, and the others say that they have lost it.
        (new,) = (name for name, role in after.items() if role == "master")
        _, last = collectors[new].exports[-1]
        assert last.values("tandem_replica_connected", replica=master) == [0]
        assert last.values("tandem_elections_won_total") == [1]
