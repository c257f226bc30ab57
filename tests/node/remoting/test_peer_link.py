import logging

import pytest
import trio

from node.errors import RequestError
from node.remoting.peer_link import REQUEST_SECONDS_MAX, RETRY_SECONDS_MAX, PeerLink
from node.remoting.remoting_client import RemotingClient
from store.machine.network import ConnectionLost, Listener
from tandem.cluster_file.settings import NodeSettings
from tests.node.doubles import FakeStream
from tests.support.logged import logged

PEER = NodeSettings("a0", "broker-a", 0, "10.0.0.1")


class Flaky:
    """A network that can be down, and the repeated task with the times of its runs."""

    def __init__(self) -> None:
        self.down = False
        self.error: Exception | None = None
        self.hang_seconds = 0.0
        self.runs: list[float] = []
        self.dials: list[float] = []

    async def connect(self, host: str, port: int, *, source: str | None) -> FakeStream:
        await trio.lowlevel.checkpoint()
        assert (host, port, source) == ("10.0.0.1", 10911, "10.0.0.2")
        self.dials.append(trio.current_time())
        if self.down:
            raise ConnectionLost("refused")
        return FakeStream()

    async def listen(self, host: str, port: int) -> Listener:
        raise NotImplementedError

    async def task(self, client: RemotingClient) -> None:
        await trio.sleep(self.hang_seconds)
        self.runs.append(trio.current_time())
        if self.error:
            raise self.error

    def link(self) -> PeerLink:
        return PeerLink(self, "10.0.0.2", PEER, "copying", self.task)


async def test_the_task_is_repeated_on_one_connection(autojump_clock: object) -> None:
    world = Flaky()
    begin = trio.current_time()
    with trio.move_on_after(10.5):
        await world.link().run(3.0)
    assert [run - begin for run in world.runs] == pytest.approx([0, 3, 6, 9])
    assert len(world.dials) == 1


async def test_a_hurry_shortens_the_interval_but_not_to_nothing(autojump_clock: object) -> None:
    world = Flaky()
    link = world.link()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run, 3.0)
        await trio.sleep(1)
        for _ in range(5):
            link.hurry()
        await trio.sleep(0.01)
        assert len(world.runs) == 2
        link.hurry()
        await trio.sleep(0.5)
        assert len(world.runs) == 3
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("error", [ConnectionLost("cut"), RequestError(1, "disk full")])
async def test_a_failure_is_logged_once_and_tried_again(
    autojump_clock: object, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    world = Flaky()
    world.error = error
    with caplog.at_level(logging.INFO):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.link().run, 3.0)
            await trio.sleep(RETRY_SECONDS_MAX * 4.5)
            assert len(world.runs) == 5
            world.error = None
            await trio.sleep(RETRY_SECONDS_MAX)
            nursery.cancel_scope.cancel()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_peer_that_is_down_is_dialled_again(autojump_clock: object) -> None:
    world = Flaky()
    world.down = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.link().run, 3.0)
        await trio.sleep(2.5)
        assert len(world.dials) == 3
        world.down = False
        await trio.sleep(1)
        assert len(world.runs) == 1
        nursery.cancel_scope.cancel()


async def test_a_task_that_hangs_is_given_up(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    world = Flaky()
    world.hang_seconds = 100
    with trio.move_on_after(REQUEST_SECONDS_MAX + 1.5):
        await world.link().run(3.0)
    assert len(world.dials) == 2
    assert len(logged(caplog, "node.remoting.peer_link")) == 1
