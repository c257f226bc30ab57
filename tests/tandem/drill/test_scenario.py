import pytest
import trio
import trio.testing

from tandem.drill.outcomes import NOT_SENT, SEND_OK, SLAVE_NOT_AVAILABLE, SendMode
from tandem.drill.scenario import NodeFailedError, Roles, Stage, UnmetError
from tandem.drill.scenario_file import find_scenario
from tests.tandem.drill.fake_world import MASTER, World


async def slave_loss(stage: Stage) -> None:
    await play_file(stage, "slave-loss")


async def master_loss(stage: Stage) -> None:
    await play_file(stage, "master-loss")


async def play_file(stage: Stage, name: str) -> None:
    for step in find_scenario(name).steps:
        await step.play(stage)


def phase_names(world: World) -> list[str]:
    return [phase.name for phase in world.timeline.phases]


async def test_losing_the_slaves_of_a_sound_cluster_holds_every_expectation(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    nursery.start_soon(world.run)

    await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    assert world.failed == []
    assert phase_names(world) == [
        "start",
        "steady",
        "kill-slaves",
        "slaves-down",
        "restart-slaves",
        "catch-up",
        "recovered",
        "drain",
    ]
    down = world.timeline.phases[3]
    assert set(down.sends) == {("sync", SLAVE_NOT_AVAILABLE), ("async", SEND_OK)}
    assert [fault.text for fault in world.timeline.faults] == [
        "kill -9 broker-a-1, broker-a-2",
        "start broker-a-1, broker-a-2",
    ]


async def test_losing_the_master_of_a_sound_cluster_holds_every_expectation(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    nursery.start_soon(world.run)

    await master_loss(world.stage)
    nursery.cancel_scope.cancel()

    assert world.failed == []
    assert phase_names(world) == [
        "start",
        "steady",
        "kill-master",
        "master-down",
        "restart-master",
        "re-attach",
        "recovered",
        "drain",
    ]
    down = world.timeline.phases[3]
    assert set(down.sends) == {("sync", NOT_SENT), ("async", NOT_SENT)}
    assert down.messages_read > 0


async def test_the_time_under_load_is_what_was_asked_for(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    nursery.start_soon(world.run)
    started = trio.current_time()

    await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    assert 20.0 <= trio.current_time() - started < 26.0


async def test_a_wrong_answer_while_the_slaves_are_down_is_noted_and_the_scenario_goes_on(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()

    def lies_once_in_a_while(mode: SendMode) -> str:
        status = world.usual_answer(mode)
        answered = world.timeline.phase.sends.total()
        return SEND_OK if status == SLAVE_NOT_AVAILABLE and answered % 40 == 38 else status

    world.answer = lies_once_in_a_while
    nursery.start_soon(world.run)

    await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    (expectation,) = world.failed
    assert expectation.phase == "slaves-down"
    assert expectation.expected == "every sync send answers SLAVE_NOT_AVAILABLE"
    assert "SEND_OK" in expectation.seen
    assert phase_names(world)[-1] == "drain"


async def test_an_answer_without_a_reason_is_noted(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    world.reason = ""
    nursery.start_soon(world.run)

    await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    assert [expectation.expected for expectation in world.failed] == [
        "each answer that is not SEND_OK gives a reason"
    ]


async def test_slaves_that_never_catch_up_end_the_scenario(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()

    async def starts_for_nothing(node: str) -> None:
        await trio.sleep(0.1)

    world.start = starts_for_nothing  # type: ignore[method-assign]  # the fault to be found
    nursery.start_soon(world.run)

    with pytest.raises(UnmetError):
        await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    (expectation,) = world.failed
    assert expectation.expected == "every node is in sync"
    assert expectation.seen == (
        "broker-a-1 not connected, 0 bytes behind, broker-a-2 not connected, 0 bytes behind"
    )
    assert expectation.waited_seconds == pytest.approx(20.0, abs=0.1)
    assert phase_names(world)[-1] == "catch-up"


async def test_a_node_that_does_not_start_ends_the_scenario_with_its_own_words(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    world.refuse_to_start = "the log is torn at 4096"
    nursery.start_soon(world.run)

    with pytest.raises(UnmetError):
        await master_loss(world.stage)
    nursery.cancel_scope.cancel()

    (expectation,) = world.failed
    assert expectation.expected == f"{MASTER} is back: recovered and listening"
    assert expectation.seen == f"{MASTER} did not start: the log is torn at 4096"


async def test_a_node_that_hangs_in_its_start_is_not_waited_for_for_ever(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()

    async def hangs(node: str) -> None:
        await trio.sleep_forever()

    world.start = hangs  # type: ignore[method-assign]
    nursery.start_soon(world.run)

    with pytest.raises(UnmetError):
        await master_loss(world.stage)
    nursery.cancel_scope.cancel()

    assert world.failed[0].seen == "not within 30 s"


async def test_consumers_that_stop_with_the_master_are_noted(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()

    async def kills_reading_too(node: str) -> None:
        await trio.lowlevel.checkpoint()
        del world.up[node]
        world.reading = False

    async def starts_reading_too(node: str) -> None:
        await trio.lowlevel.checkpoint()
        world.up[node] = trio.current_time()
        world.reading = True

    world.kill = kills_reading_too  # type: ignore[method-assign]
    world.start = starts_reading_too  # type: ignore[method-assign]
    nursery.start_soon(world.run)

    await master_loss(world.stage)
    nursery.cancel_scope.cancel()

    (expectation,) = world.failed
    assert expectation.expected == "consumers go on reading"
    assert expectation.seen == "0 messages read"


async def test_a_node_that_ends_by_itself_is_noted(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()

    async def end_in_the_last_steady_phase() -> None:
        while world.timeline.phases[-1:] == [] or world.timeline.phase.name != "recovered":
            await trio.sleep(0.1)
        world.exits = ["broker-a-2 ended with 1"]

    nursery.start_soon(world.run)
    nursery.start_soon(end_in_the_last_steady_phase)

    with pytest.raises(UnmetError):
        await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    expectation = world.failed[0]
    assert expectation.expected == "no node ended by itself"
    assert expectation.seen == "broker-a-2 ended with 1"


async def test_nobody_waits_for_a_node_that_ended_by_itself(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    del world.up[MASTER]
    world.exits = [f"{MASTER} ended with status 1: a bug"]
    nursery.start_soon(world.run)

    with pytest.raises(UnmetError):
        await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    (expectation,) = world.failed
    assert expectation.seen.endswith(f"; {MASTER} ended with status 1: a bug")
    assert expectation.waited_seconds < 1


async def test_the_rest_of_an_input_is_waited_for(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    world.stage.rest_seconds_max = 5.0
    world.lines_left = 12
    nursery.start_soon(world.run)

    with pytest.raises(UnmetError):
        await slave_loss(world.stage)
    nursery.cancel_scope.cancel()

    assert world.failed[0].seen == "12 lines to go"


async def test_a_phase_begins_when_the_sends_of_the_one_before_are_answered(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    world = World()
    await world.stage.begin("before")
    before = world.timeline.sent()

    async def answer_later() -> None:
        await trio.sleep(3)
        world.timeline.answered(
            trio.current_time(), before, "sync", SEND_OK, reason="", send_id="x", latency_ms=1
        )

    nursery.start_soon(answer_later)
    started = trio.current_time()
    await world.stage.begin("after")

    assert 3 <= trio.current_time() - started < 3.2
    assert before.ended_at == started


def test_words_for_nodes_mean_what_they_meant_when_the_scenario_began() -> None:
    roles = Roles(["a", "b", "c"])
    roles.old_master = "b"
    assert roles.find("the master", "c") == ["c"]
    assert roles.find("the old master", "c") == ["b"]
    assert roles.find("slave 1", "c") == ["a"]
    assert roles.find("the slaves", "c") == ["a", "c"]
    assert roles.find("the others", "c") == ["a", "b"]
    assert roles.find("every node", "") == ["a", "b", "c"]
    assert roles.find("c", "") == ["c"]
    for nobody in ("the master", "slave 3", "somebody"):
        with pytest.raises(NodeFailedError):
            roles.find(nobody, "")


async def test_unavailability_is_the_longest_time_without_an_ack_after_the_first_fault() -> None:
    world = World()
    world.timeline.start_phase(0.0, "a-scenario", "steady")
    world.stage.now = lambda: 10.0
    assert world.stage.unavailable() == (None, None)
    world.timeline.sync_acks.extend([1.0, 2.0, 9.0, 12.0, 12.5])
    world.stage.fault("kill -9 b")
    world.stage.now = lambda: 13.0
    assert world.stage.unavailable() == (2.0, 10.0)
