from node.figures.node_report import NodeReport
from tests.node.doubles import Broker


async def test_there_are_sources_while_a_broker_serves() -> None:
    report, sources = NodeReport(), Broker().sources()
    for number in (1, 2):
        with report.serving(sources):
            assert (report.sources, report.rounds_count) == (sources, number)
            assert report.since_ms == sources.wall_clock_ms()
        assert report.sources is None
        assert report.since_ms is None
