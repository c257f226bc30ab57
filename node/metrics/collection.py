"""All figures of one node at a moment, for a scrape and for an export alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import trio

from node.figures.families import Base
from node.figures.figure import NO_LABELS, Figure, Labels
from node.figures.node_report import NodeReport
from node.figures.stream import figures
from node.metrics.node_figures import LoopLateness, node_figures
from store.machine.machine import Machine
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.cluster_file.settings import MetricsSettings


class Collection:
    """Where the figures of one node are collected, from its start to its end.

    Attributes:
        bases: The labels that all figures of a kind have.
        labels_of_node: Those that say which node it is: cluster, group and node.
        settings: `metrics` of the cluster file.
        exports: How exports ended, and how often.
    """

    def __init__(self, config: NodeConfig, machine: Machine, report: NodeReport) -> None:
        """Collect what is in `report`, and what the machine knows of this process."""
        self._process = machine.process
        self._wall_clock_ms = machine.wall_clock_ms
        self._began_ms = machine.wall_clock_ms()
        self._report = report
        self._late = LoopLateness()
        cluster, node = config.cluster.cluster, config.node
        self.settings: MetricsSettings = config.cluster.metrics
        self.exports: Counter[str] = Counter()
        self.labels_of_node = Labels(cluster=cluster.name, group=node.group, node=node.name)
        self.bases = {
            Base.ROCKETMQ: Labels(cluster=cluster.name, node_type="broker", node_id=node.group),
            Base.OURS: self.labels_of_node,
            Base.EXPORTER: Labels(
                cluster=cluster.name, broker=node.group, brokerIP=node.broker_address
            ),
        }

    async def watch_loop(self) -> None:
        """Find out how late tasks are, until cancelled. One task does it."""
        await self._late.run()

    def now_ms(self) -> int:
        """The time of day."""
        return self._wall_clock_ms()

    def since_ms(self, *, is_of_process: bool) -> int:
        """When counters began: with the process, or with the store that is open."""
        return self._began_ms if is_of_process else self._report.since_ms or self._began_ms

    def figures(self) -> Iterator[Figure]:
        """Yield all figures; between any two, others may have their turn."""
        began = trio.current_time()
        report = self._report
        yield from node_figures(report, self._late, self._process)
        for outcome, count in sorted(self.exports.items()):
            yield Figure("tandem_otlp_exports_total", Labels(outcome=outcome), count)
        # The broker may close while this waits for its turn.
        if (sources := report.sources) is not None:
            for figure in figures(sources, report.lags):
                if report.sources is not sources:
                    return
                yield figure
        yield Figure("tandem_figures_seconds", NO_LABELS, trio.current_time() - began)
