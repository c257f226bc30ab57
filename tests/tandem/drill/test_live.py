import io

import trio
import trio.testing
from rich.console import Console

from tandem.drill.live import Events, LiveView
from tandem.drill.outcomes import SEND_OK, SLAVE_NOT_AVAILABLE
from tandem.drill.replication import Replication, SlaveReport
from tandem.drill.scenario import Expectation
from tandem.drill.timeline import Timeline
from tests.tandem.drill import samples


def view_of(timeline: Timeline, *, terminal: bool) -> tuple[LiveView, io.StringIO, Replication]:
    output = io.StringIO()
    replication = Replication({"broker-a-1": "127.0.0.2"}, timeline)
    view = LiveView(
        console=Console(file=output, width=100, force_terminal=terminal),
        timeline=timeline,
        expectations=[samples.expectation(), samples.expectation(held=False)],
        replication=replication,
        left_to_read=lambda: 1234,
        now=trio.current_time,
    )
    return view, output, replication


def test_events_come_in_the_order_in_which_they_happened_and_once() -> None:
    timeline = Timeline()
    expectations: list[Expectation] = []
    events = Events(timeline, expectations)
    timeline.start_phase(3.0, "slave-loss", "slaves-down")
    timeline.fault(3.5, "kill -9 broker-a-1")
    timeline.start_phase(5.0, "slave-loss", "restart-slaves")
    expectations.append(samples.expectation())

    assert [line.plain for line in events.fresh()] == [
        "   3.0 s  slave-loss: slaves-down",
        "   3.5 s    ⚡ kill -9 broker-a-1",
        "   4.0 s    ✓ every sync send answers SLAVE_NOT_AVAILABLE",
        "   5.0 s  slave-loss: restart-slaves",
    ]
    assert events.fresh() == []


def test_an_expectation_that_did_not_hold_is_told_with_what_was_seen() -> None:
    events = Events(Timeline(), [samples.expectation(held=False)])

    (line,) = events.fresh()

    assert "✗ expected: every sync send" in line.plain
    assert "seen: 19 SLAVE_NOT_AVAILABLE, 1 SEND_OK" in line.plain


async def test_without_a_terminal_there_are_only_lines(
    autojump_clock: trio.testing.MockClock,
) -> None:
    timeline = Timeline()
    view, output, _ = view_of(timeline, terminal=False)
    timeline.start_phase(trio.current_time(), "slave-loss", "start")

    with trio.move_on_after(11):
        await view.run()

    text = output.getvalue()
    assert "\x1b" not in text
    assert text.count("to read") == 2
    assert "slave-loss: start" in text


async def test_events_of_the_last_moment_are_still_told(
    autojump_clock: trio.testing.MockClock,
) -> None:
    timeline = Timeline()
    view, output, _ = view_of(timeline, terminal=False)

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(view.run)
            await trio.sleep(1)
            timeline.fault(1.0, "the very last")
            scope.cancel()

    assert "the very last" in output.getvalue()


async def test_the_table_shows_rates_lag_and_readers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    timeline = Timeline()
    view, output, replication = view_of(timeline, terminal=True)
    base = trio.current_time()
    phase = timeline.start_phase(base, "slave-loss", "slaves-down")
    for _ in range(40):
        for mode, status in (("sync", SLAVE_NOT_AVAILABLE), ("async", SEND_OK)):
            timeline.sent()
            timeline.answered(
                trio.current_time(),
                phase,
                "sync" if mode == "sync" else "async",
                status,
                reason="",
                send_id="x",
                latency_ms=1,
            )
        await trio.sleep(0.05)
    replication.sampled(trio.current_time(), 5000, [SlaveReport("127.0.0.2", 2000, 3000)])

    with trio.move_on_after(0.6):
        await view.run()

    text = output.getvalue()
    assert "20/s" in text
    assert "SLAVE_NOT_AVAILABLE" in text
    assert "3,000 bytes behind" in text
    assert "1,234 behind" in text
    narrow = LiveView(
        console=Console(file=io.StringIO(), width=60, force_terminal=True),
        timeline=timeline,
        expectations=[],
        replication=replication,
        left_to_read=lambda: 1234,
        now=trio.current_time,
    )
    lines = narrow.table().plain.splitlines()
    assert max(map(len, lines)) <= 60
    assert "consumers    0/s read, 1,234 behind" in lines
