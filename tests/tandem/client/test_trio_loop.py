import trio

from tandem.client.trio_loop import TrioLoop


async def test_a_woken_task_costs_one_turn_of_the_scheduler() -> None:
    parked = TrioLoop().parked()
    turns = []

    class Turns(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            turns.append(task)

    async with trio.open_nursery() as nursery:

        async def wake() -> None:
            parked.wake(1)

        nursery.start_soon(wake)
        instrument = Turns()
        trio.lowlevel.add_instrument(instrument)
        assert await parked.wait(lambda: None) == 1
        trio.lowlevel.remove_instrument(instrument)
    assert len(turns) == 2  # the one that wakes, and this one


async def test_tcp_connects() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        stream = await TrioLoop().open_tcp("127.0.0.1", listener.socket.getsockname()[1])
        theirs = await listener.accept()
        await stream.send_all(b"ping")
        assert await theirs.receive_some() == b"ping"
        await stream.aclose()
        await theirs.aclose()
