from pathlib import Path

import trio

from tandem.client import SendResult
from tandem.drill.consumers.both_loads import BothLoads
from tandem.drill.consumers.load import ConsumerLoad
from tandem.drill.consumers.promises import Promises
from tandem.drill.ledger import Ledger
from tandem.drill.orders import Orders
from tandem.drill.timeline import Timeline
from tandem.drill.workload import Clock, Workload, producer_states
from tandem.wire.message import Message
from tests.tandem.drill.consumers.planted_consumers import GROUPS, PlantedConsumers


class Loads:
    def __init__(self, directory: Path, not_promised: dict[str, str] | None = None) -> None:
        self.ledger = Ledger(directory / "ledger.ndjson")
        self.promises = Promises(GROUPS, not_promised=not_promised or {})
        self.timeline = Timeline()
        clock = Clock(0.0, 0.0)
        self.workload = Workload(
            topic="x",
            source=Orders(1),
            ledger=self.ledger,
            timeline=self.timeline,
            clock=clock,
            rate_per_second=10.0,
            producers=producer_states(1, 1),
        )
        self.consumers = ConsumerLoad(
            ledger=self.ledger,
            promises=self.promises,
            wall_ms=lambda: 0.0,
            broker_of=lambda _: "b",
        )


async def test_what_consumers_are_owed_is_left_to_handle(tmp_path: Path) -> None:
    loads = Loads(tmp_path)
    both = BothLoads(loads.workload, loads.consumers)
    assert both.left_to_handle() == ""

    loads.promises.take(PlantedConsumers().lines[0])

    assert both.left_to_handle() == "1 sends in flight"
    assert (both.left_to_send(), both.left_to_read()) == (0, 0)
    assert BothLoads(loads.workload, None).left_to_handle() is None


async def test_what_nobody_promised_is_counted_by_itself(tmp_path: Path) -> None:
    loads = Loads(tmp_path, {"consumers_owed_plain": "why"})
    both = BothLoads(loads.workload, loads.consumers)
    for line in PlantedConsumers().lines[:2]:
        loads.promises.take(line)

    assert both.left_to_handle() == ""
    assert both.left_unpromised() == 2  # each of two groups lacks it
    assert BothLoads(loads.workload, None).left_unpromised() == 0


async def test_both_are_paused_and_resumed_together(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    loads = Loads(tmp_path)
    both = BothLoads(loads.workload, loads.consumers)
    sent: list[str] = []

    class Sends:
        async def send(self, message: Message) -> SendResult:
            sent.append(message.keys if isinstance(message.keys, str) else "")
            await trio.sleep_forever()
            raise AssertionError

    async with trio.open_nursery() as nursery:
        nursery.start_soon(loads.consumers.send_plain, Sends(), 10.0)
        both.pause()
        await trio.sleep(1)
        assert sent == []
        both.resume()
        await trio.sleep(1)
        assert sent
        nursery.cancel_scope.cancel()
    BothLoads(loads.workload, None).resume()
