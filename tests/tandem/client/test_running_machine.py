import os

import pytest
import trio
from trio.testing import MockClock

from tandem.client.cluster_access import ClusterAccess
from tandem.client.event_loop import ByteStream
from tandem.client.identity import ClientIdentity
from tandem.client.producer import Producer
from tandem.client.running_machine import machine_of_task, new_identity
from tandem.client.trio_loop import TrioLoop
from tandem.wire.message import Message

IDENTITY = ClientIdentity("10.1.2.3", 7, 8)


class NoNetwork:
    """A machine from which nothing can be reached."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def new_identity(self) -> ClientIdentity:
        return IDENTITY

    async def open_stream(self, host: str, port: int, /) -> ByteStream:
        await trio.lowlevel.checkpoint()
        self.asked.append((host, port))
        raise TrioLoop.stream_errors[0]("no network")


def test_without_a_machine_a_client_is_of_this_process() -> None:
    assert new_identity("127.0.0.1:9876").process_id == os.getpid()


async def test_a_client_is_of_the_machine_of_its_task_and_of_those_it_starts(
    autojump_clock: MockClock,
) -> None:
    machine = NoNetwork()
    machine_of_task.set(machine)

    async def send() -> None:
        assert new_identity("127.0.0.1:9876") == IDENTITY
        async with Producer("127.0.0.1:9876", group="shop") as producer:
            with pytest.raises(Exception, match="no name server"):
                await producer.send(Message("Orders", b""))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
    assert set(machine.asked) == {("127.0.0.1", 9876)}


async def test_what_a_client_was_given_comes_first(autojump_clock: MockClock) -> None:
    machine, own = NoNetwork(), NoNetwork()
    machine_of_task.set(machine)
    other = ClientIdentity("10.1.2.3", 9, 10)
    access = ClusterAccess("127.0.0.1:9876", identity=other)
    async with Producer(access, group="shop", open_stream=own.open_stream) as producer:
        with pytest.raises(Exception, match="no name server"):
            await producer.send(Message("Orders", b""))
    assert own.asked
    assert not machine.asked
    assert access.core(lambda: 0.0).identity == other
