import pytest
import trio
import trio.testing

from tandem.drill.scenario import NotPossibleError, UnmetError
from tests.tandem.drill.fake_world import MASTER, SLAVES, World


async def test_power_is_cut_of_nodes_that_run_and_of_those_that_do_not(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play("kill slave 1", "cut the power of every node")

    assert world.up == {}
    assert world.done == [f"cut power {node}" for node in (MASTER, *SLAVES)]


async def test_a_disk_is_lost_when_its_node_is_down(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play("kill slave 1", "lose the disk of slave 1")
    assert world.done == [f"lose {SLAVES[0]}", f"new disk {SLAVES[0]}"]

    with pytest.raises(UnmetError):
        await world.play("lose the disk of slave 2")
    assert [(each.expected, each.is_liveness) for each in world.failed] == [
        ("lose the disk of slave 2", False)
    ]


async def test_syncs_are_slow_and_fast_again_or_forgotten(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play(
        "let syncs of the master take 0.5 s longer",
        "let syncs of the master be fast again",
        "let the disk of slave 1 forget what is synced",
    )
    assert world.done == [f"slow {MASTER} 0.5", f"slow {MASTER} 0", f"lie {SLAVES[0]}"]


async def test_what_waits_is_due_by_a_clock_that_is_wrong(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    await world.play(
        "set the clock of the master 30 s ahead",
        "set the clock of slave 1 20 s back",
        "set the clock of every node right",
    )
    assert world.done[:2] == [f"clock {MASTER} 30", "early 30"]
    assert world.done[2:4] == [f"clock {SLAVES[0]} -20", "early -20"]
    assert world.done[4:] == [f"clock {node} 0" for node in (MASTER, *SLAVES)]


async def test_without_machines_nothing_of_that_is_possible(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    classic = World()
    nursery.start_soon(classic.run)
    for sentence in ("cut the power of slave 1", "set the clock of slave 1 right"):
        with pytest.raises(NotPossibleError):
            await classic.play(sentence)
    assert classic.done == []
    assert set(classic.up) == {MASTER, *SLAVES}


async def test_nobody_is_killed_where_power_cannot_be_cut(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    world.machines_are_missing = True
    with pytest.raises(NotPossibleError):
        await world.play("cut the power of every node")
    assert set(world.up) == {MASTER, *SLAVES}


FAULTS_THAT_LEAVE_TRACES = (
    ("kill slave 1", "cut the power of slave 1"),
    ("kill slave 1", "lose the disk of slave 1"),
    ("let the disk of slave 1 forget what is synced",),
    ("let syncs of slave 1 take 0.5 s longer", "let syncs of slave 1 be fast again"),
    ("set the clock of slave 1 30 s ahead", "set the clock of every node right"),
    ("set the clock of slave 1 30 s back",),
    ("fill the disk of the coordinator",),
)


@pytest.mark.parametrize("sentences", FAULTS_THAT_LEAVE_TRACES)
@pytest.mark.parametrize("are_felt", [True, False])
async def test_what_a_fault_did_is_seen_by_something_else_than_what_has_done_it(
    sentences: tuple[str, ...],
    are_felt: bool,  # noqa: FBT001 - a parameter
    world: World,
    autojump_clock: trio.testing.MockClock,
) -> None:
    world.faults_are_felt = are_felt
    await world.play(*sentences)
    world.stage.effects.end_all()
    assert [effect.is_felt for effect in world.stage.effects.found] == [are_felt]
