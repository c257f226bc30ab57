"""What a test does to a simulated cluster and to its own processes."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

import tandem
from tandem.cluster_file.errors import UnknownNodeError
from tandem.testing import SimulatedCluster, simulated_cluster

pytestmark = [pytest.mark.sim, pytest.mark.slow]


def play(test: Callable[[SimulatedCluster], Awaitable[None]], *, seeds: int = 1) -> None:
    simulated_cluster(seeds=seeds, faults=(), jobs=1)(test)()


def test_a_killed_master_is_replaced_and_comes_back_in_sync() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        first = cluster.kill_master()
        assert first in cluster.nodes
        assert not cluster.is_up(first)
        assert cluster.master() == ""
        assert cluster.kill_master() == ""
        with trio.fail_after(20):
            while not cluster.master():
                await trio.sleep(0.1)
        assert cluster.master() != first
        await cluster.recover()
        assert cluster.is_up(first)

    play(test, seeds=3)


@pytest.mark.parametrize("fault", ["freeze", "partition", "power_off", "stop", "reset", "slow"])
def test_a_group_recovers_from_each_fault(fault: str) -> None:
    async def test(cluster: SimulatedCluster) -> None:
        master = cluster.master()
        match fault:
            case "freeze":
                cluster.freeze(master, 5.0)
            case "partition":
                cluster.partition(master)
            case "power_off":
                cluster.power_off(master)
            case "stop":
                cluster.stop(master)
            case "reset":
                cluster.reset_connections(master)
            case "slow":
                cluster.slow_disk(master, 0.5)
        async with tandem.Producer(cluster.name_servers, group="shop") as producer:
            # One that is cut off from its group takes the message, and cannot say that it stays.
            with suppress(tandem.SendInDoubtError):
                result = await producer.send(tandem.Message("Orders", b""))
                assert result.status is tandem.SendStatus.SEND_OK
        if fault in ("freeze", "partition", "power_off", "stop"):
            assert cluster.master() not in ("", master)
        await cluster.recover()

    play(test)


def test_nothing_happens_to_a_node_that_is_not_there() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        with pytest.raises(UnknownNodeError):
            cluster.kill("broker-b-1")
        with pytest.raises(UnknownNodeError):
            cluster.partition("broker-a-1", "broker-b-1")

    play(test)


def test_a_killed_process_never_runs_again_and_the_next_one_is_another() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        seen = []

        async def service(word: str) -> None:
            seen.append(word)
            try:
                await trio.sleep(1)
                seen.append("slept")
            finally:
                seen.append("goodbye")

        process = await cluster.start_process(service, "hello", name="greeter")
        assert process.name == "greeter"
        await trio.sleep(0.5)
        process.kill()
        process.kill()
        await trio.sleep(5)
        assert seen == ["hello"]
        process.start()
        process.start()
        await trio.sleep(5)
        assert seen == ["hello", "hello", "slept", "goodbye"]
        assert not process.is_up

    play(test)


def test_a_frozen_process_goes_on_where_it_was() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        times = []

        async def service() -> None:
            while True:
                await trio.sleep(1)
                times.append(trio.current_time())

        begin = trio.current_time()
        process = await cluster.start_process(service)
        process.freeze(4.5)
        await trio.sleep(6)
        assert [round(time - begin, 1) for time in times] == [4.5, 5.5]

    play(test)


def test_clients_of_a_killed_process_are_gone_for_the_group() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        members: list[str] = []

        async def member(name: str) -> None:
            async with tandem.Consumer(cluster.name_servers, group="billing") as consumer:
                async for message in consumer.subscribe("Orders"):
                    if message.body == b"later":
                        members.append(name)  # noqa: PERF401 - it has no end

        one = await cluster.start_process(member, "one")
        await cluster.start_process(member, "two")
        async with tandem.Producer(cluster.name_servers, group="shop") as producer:
            await producer.send(tandem.Message("Orders", b"first"))
            await trio.sleep(30)
            one.kill()
            await trio.sleep(1)
            for queue_id in range(4):
                await producer.send(tandem.Message("Orders", b"later"), queue_id=queue_id)
            await trio.sleep(60)
        assert members == ["two"] * 4

    play(test)


def test_two_clients_are_two_for_the_brokers() -> None:
    async def test(cluster: SimulatedCluster) -> None:
        ids = [tandem.Consumer(cluster.name_servers, group="billing").client_id for _ in range(2)]
        assert len(set(ids)) == 2

    play(test)
