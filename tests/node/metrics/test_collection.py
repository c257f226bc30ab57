from pathlib import Path

import msgspec
import trio

from node.figures.node_report import NodeReport
from node.metrics.collection import Collection
from node.metrics.node_figures import LOOP_SECONDS
from store.machine.machine import this_machine
from tests.node.doubles import Broker
from tests.node.figures.seen import by_name, values
from tests.node.world import fenced_cluster


def collection_of(directory: Path, report: NodeReport, now_ms: list[int]) -> Collection:
    machine = msgspec.structs.replace(
        this_machine(), process=None, wall_clock_ms=lambda: now_ms[-1]
    )
    return Collection(fenced_cluster(directory).node("a1"), machine, report)


async def test_figures_are_those_of_the_node_and_of_its_broker_while_that_is_open(
    tmp_path: Path, autojump_clock: object
) -> None:
    report = NodeReport()
    collection = collection_of(tmp_path, report, [1])
    assert "tandem_role" not in values(collection.figures())
    with report.serving(Broker().sources()):
        stream = collection.figures()
        seen = next(figure for figure in stream if figure.name == "tandem_role")
        assert seen.value == 1
    # It was closed while others had their turn.
    assert not list(stream)


async def test_counters_count_since_the_process_or_the_store_began(tmp_path: Path) -> None:
    report, now_ms = NodeReport(), [10]
    collection = collection_of(tmp_path, report, now_ms)
    now_ms.append(99)
    assert (collection.now_ms(), collection.since_ms(is_of_process=True)) == (99, 10)
    assert collection.since_ms(is_of_process=False) == 10
    sources = msgspec.structs.replace(Broker().sources(), wall_clock_ms=lambda: 50)
    with report.serving(sources):
        assert collection.since_ms(is_of_process=False) == 50


async def test_it_knows_how_late_the_loop_is_and_how_exports_ended(
    tmp_path: Path, autojump_clock: object
) -> None:
    collection = collection_of(tmp_path, NodeReport(), [1])
    collection.exports["taken"] += 2
    with trio.move_on_after(3.5 * LOOP_SECONDS):
        await collection.watch_loop()
    figures = list(collection.figures())
    assert values(figures)["tandem_loop_late_seconds_count"] == 3
    assert by_name(figures)["tandem_otlp_exports_total"] == [({"outcome": "taken"}, 2)]
