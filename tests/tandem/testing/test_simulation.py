"""A test of a user, played with seeds; and what they see when a seed fails."""

import inspect
import os
import random
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
import trio

import tandem
from tandem.testing import Effects, SimulatedCluster, simulated_cluster
from tandem.testing.errors import (
    NotSimulatedError,
    RealThing,
    SimulatedTimeError,
)

pytestmark = [pytest.mark.sim, pytest.mark.slow]


async def send_some(cluster: SimulatedCluster, count: int = 5) -> list[str]:
    lines = []
    async with tandem.Producer(cluster.name_servers, group="shop") as producer:
        for number in range(count):
            result = await producer.send(tandem.Message("Orders", b"", keys=str(number)))
            lines.append(f"{trio.current_time():.6f} {result.msg_id} {result.status.name}")
    return lines


def test_a_seed_decides_time_ids_and_chance() -> None:
    seen: dict[int, list[list[str]]] = {1: [], 2: []}

    @simulated_cluster(seeds=(1, 2, 1, 2), jobs=1)
    async def play(cluster: SimulatedCluster) -> None:
        lines = await send_some(cluster)
        await cluster.recover()
        lines += [f"{trio.current_time():.6f}", cluster.master(), str(time.time())]
        lines += [str(random.random()), str(uuid.uuid4()), os.urandom(8).hex()]
        seen[cluster.seed].append(lines)

    play()
    assert seen[1][0] == seen[1][1]
    assert seen[2][0] == seen[2][1]
    assert seen[1][0] != seen[2][0]


def test_nothing_is_lost_when_nodes_are_hurt() -> None:
    @simulated_cluster(seeds=6, jobs=1)
    async def play(cluster: SimulatedCluster) -> None:
        effects = Effects()

        async def service() -> None:
            async with tandem.Consumer(cluster.name_servers, group="billing") as consumer:
                async for message in consumer.subscribe("Orders"):
                    effects.handled(message.keys)

        await cluster.start_process(service)
        async with tandem.Producer(cluster.name_servers, group="shop") as producer:
            for number in range(10):
                effects.sending(str(number))
                if number == 5:
                    assert cluster.kill_master()
                result = await producer.send(tandem.Message("Orders", b"", keys=str(number)))
                if result.status is tandem.SendStatus.SEND_OK:
                    effects.sent(str(number))
        await cluster.recover()
        with trio.move_on_after(60):
            while effects.missing:
                await trio.sleep(0.5)
        effects.check_none_lost()

    play()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_seed_that_fails_says_how_to_repeat_it(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @simulated_cluster(seeds=range(10, 22), jobs=jobs, faults=())
    async def play(cluster: SimulatedCluster) -> None:
        cluster.kill("broker-a-2")
        await trio.sleep(0.1)
        assert cluster.seed < 15, "too high"

    with pytest.raises(AssertionError, match="too high") as raised:
        play()
    (note,) = raised.value.__notes__
    (first, *others) = note.splitlines()
    assert first.startswith("seed 15; again: TANDEM_SEEDS=15 pytest ")
    assert "test_a_seed_that_fails_says_how_to_repeat_it" in first
    assert any("kill broker-a-2" in line for line in others)
    monkeypatch.setenv("TANDEM_SEEDS", "15")
    with pytest.raises(AssertionError, match="too high"):
        play()
    monkeypatch.setenv("TANDEM_SEEDS", "3")
    play()


def test_what_is_real_is_refused_even_if_nobody_minds() -> None:
    @simulated_cluster(seeds=1)
    async def play(cluster: SimulatedCluster) -> None:
        with suppress(NotSimulatedError):
            await trio.to_thread.run_sync(cluster.master)

    with pytest.raises(NotSimulatedError) as raised:
        play()
    assert raised.value.thing is RealThing.THREAD


def test_a_thread_that_idles_since_before_is_refused_like_a_new_one() -> None:
    async def use_a_thread() -> None:
        await trio.to_thread.run_sync(time.time)

    @simulated_cluster(seeds=1)
    async def play(_: SimulatedCluster) -> None:
        await use_a_thread()

    trio.run(use_a_thread)
    with pytest.raises(NotSimulatedError):
        play()
    trio.run(use_a_thread)


def test_a_client_that_blocks_is_refused() -> None:
    @simulated_cluster(seeds=1)
    async def play(cluster: SimulatedCluster) -> None:
        with tandem.BlockingProducer(cluster.name_servers, group="shop") as producer:
            producer.send(tandem.Message("Orders", b""))

    with pytest.raises(NotSimulatedError):
        play()


def test_a_client_that_was_made_outside_is_opened_inside() -> None:
    producer = tandem.Producer("127.0.0.1:9876", group="shop")

    @simulated_cluster(seeds=1)
    async def play(_: SimulatedCluster) -> None:
        async with producer:
            await producer.send(tandem.Message("Orders", b""))

    play()


def test_what_waits_for_ever_fails() -> None:
    @simulated_cluster(seeds=1, seconds_max=20)
    async def play(_: SimulatedCluster) -> None:
        await trio.sleep_forever()

    with pytest.raises(SimulatedTimeError) as raised:
        play()
    assert raised.value.seconds == 20


def test_no_fault_happens_that_was_not_asked_for() -> None:
    @simulated_cluster(seeds=4, faults=(), jobs=1)
    async def play(cluster: SimulatedCluster) -> None:
        first = cluster.master()
        await trio.sleep(20)
        assert cluster.master() == first
        assert all(map(cluster.is_up, cluster.nodes))

    play()


def test_an_error_of_a_process_is_that_of_the_test() -> None:
    @simulated_cluster(seeds=1, faults=())
    async def play(cluster: SimulatedCluster) -> None:
        async def service() -> None:
            raise LookupError("of the service")

        await cluster.start_process(service)
        await trio.sleep_forever()

    with pytest.raises(LookupError, match="of the service"):
        play()


def test_what_is_no_fault_is_refused_before_any_seed() -> None:
    with pytest.raises(ValueError, match="kill_master"):
        simulated_cluster(faults=("explode",))  # type: ignore[arg-type]


@simulated_cluster(seeds=1)
async def test_other_arguments_are_fixtures(cluster: SimulatedCluster, tmp_path: Path) -> None:
    """This one is a test of a user as it is."""
    assert tmp_path.is_dir()
    assert len(cluster.nodes) == 3


def test_what_is_made_is_a_plain_function_with_the_other_parameters() -> None:
    made = test_other_arguments_are_fixtures
    assert not inspect.iscoroutinefunction(made)
    assert list(inspect.signature(made).parameters) == ["tmp_path"]
    assert made.__doc__
