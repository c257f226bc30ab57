import trio
import trio.testing

from node.figures.node_report import NodeReport
from node.metrics.node_figures import LOOP_SECONDS, LoopLateness, node_figures
from store.machine.process import this_process
from tests.node.figures.seen import values


async def test_what_is_known_without_a_broker() -> None:
    found = values(node_figures(NodeReport(), LoopLateness(), this_process))
    assert (found["tandem_broker_running"], found["tandem_elections_won_total"]) == (0, 0)
    assert found["process_open_fds"] > 0
    simulated = values(node_figures(NodeReport(), LoopLateness(), None))
    assert not any(name.startswith("process_") for name in simulated)


async def test_the_loop_is_looked_at_ten_times_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    late = LoopLateness()
    with trio.move_on_after(10.5 * LOOP_SECONDS):
        await late.run()
    assert values(node_figures(NodeReport(), late, None))["tandem_loop_late_seconds_count"] == 10
