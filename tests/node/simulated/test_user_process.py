import pytest
import trio

from node.simulated.play import Room
from node.simulated.user_process import UserMachine
from tests.node.simulated.group_world import played

pytestmark = [pytest.mark.sim, pytest.mark.slow]


def test_a_process_reaches_the_group_until_it_is_killed() -> None:
    async def test(room: Room) -> None:
        streams = []

        async def work(machine: UserMachine) -> None:
            streams.append(await machine.open_stream("127.0.0.1", 9876))
            await streams[-1].receive_some(1)
            streams.clear()

        process = room.new_process("one", work)
        process.start()
        await trio.sleep(0.1)
        assert process.is_up
        assert process.kill()
        assert not process.kill()
        await trio.sleep(1)
        (stream,) = streams
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"late")

    played(test)


def test_nobody_listens_is_an_error_of_trio() -> None:
    async def test(room: Room) -> None:
        with pytest.raises(trio.BrokenResourceError):
            await room.own_machine().open_stream("127.0.0.1", 1)

    played(test)


def test_each_life_has_its_number_and_the_address_stays() -> None:
    async def test(room: Room) -> None:
        lives = []

        async def work(machine: UserMachine) -> None:
            lives.append((machine.ip, machine.life))
            await trio.sleep_forever()

        process = room.new_process("one", work)
        for _ in range(2):
            process.start()
            await trio.sleep(0.1)
            process.kill()
        (first, second) = lives
        assert first[0] == second[0]
        assert (first[1], second[1]) == (1, 2)

    played(test)


def test_a_frozen_process_that_is_killed_does_not_go_on() -> None:
    async def test(room: Room) -> None:
        ticks = []

        async def work(_: UserMachine) -> None:
            while True:
                await trio.sleep(1)
                ticks.append(trio.current_time())

        process = room.new_process("one", work)
        process.start()
        await trio.sleep(2.5)
        assert process.freeze(2.0)
        assert not process.freeze(2.0)
        process.kill()
        await trio.sleep(10)
        assert len(ticks) == 2

    played(test)


def test_what_a_process_raises_ends_the_run() -> None:
    async def test(room: Room) -> None:
        async def work(_: UserMachine) -> None:
            raise LookupError

        room.new_process("one", work).start()
        await trio.sleep_forever()

    with pytest.raises(ExceptionGroup):
        played(test)


def test_what_a_killed_process_raises_at_the_end_is_nobodys_business() -> None:
    async def test(room: Room) -> None:
        async def work(_: UserMachine) -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise LookupError

        process = room.new_process("one", work)
        process.start()
        await trio.sleep(0.1)
        process.kill()

    played(test)
