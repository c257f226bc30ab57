from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

from tandem.cluster_file.choices import GroupKind
from tandem.cluster_file.errors import ClusterError
from tandem.drill.errors import DrillError, NotReadyError
from tandem.drill.history import read_history
from tandem.drill.nemesis import Case, World, case_of, scenario_text
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import SEND_OK, SendMode
from tandem.drill.random_drill import RandomDrill, RandomResult, result_lines
from tandem.drill.scenario import UnmetError
from tandem.drill.scenario_file import Scenario, parse_scenario, read_scenario
from tandem.drill.summary import Summary
from tests.tandem.drill import samples
from tests.tandem.drill.fake_world import World as MadeUpCluster

WORLD = World(group=GroupKind.FENCED, nodes=("broker-a-0", "broker-a-1", "broker-a-2"))
LOST = samples.summary(found=samples.audit(sync_lost=2))
SECONDS = 50.0


class Drills:
    """Drills that take no time: what the scenario says decides what they come to."""

    def __init__(self, out: Path, becomes: Callable[[list[str], int], Summary]) -> None:
        self.out = out
        self.held: list[DrillOptions] = []
        self.said: list[str] = []
        self.seconds = 0.0
        self._becomes = becomes

    def hold(self, options: DrillOptions) -> int:
        self.held.append(options)
        self.seconds += SECONDS
        (name,) = options.scenarios
        steps = [step.text for step in read_scenario(Path(name)).steps]
        summary = self._becomes(steps, options.seed)
        options.out.mkdir(exist_ok=True)
        (options.out / "summary.json").write_bytes(msgspec.json.encode(summary))
        return 0

    def run(self, **options: object) -> RandomResult:
        chosen = msgspec.structs.replace(DrillOptions(minutes=2.0, seed=100), **options)
        return RandomDrill(
            chosen,
            WORLD,
            out=self.out,
            hold=self.hold,
            now=lambda: self.seconds,
            say=self.said.append,
        ).run()


def test_episodes_follow_each_other_until_the_time_is_over(tmp_path: Path) -> None:
    drills = Drills(tmp_path, lambda steps, seed: samples.summary())
    result = drills.run(history=tmp_path / "drill", label="abc")

    assert (result.verdict, result.exit_status) == ("PASSED", 0)
    assert [episode.seed for episode in result.episodes] == [100, 101, 102]
    assert [options.seed for options in drills.held] == [100, 101, 102]
    assert [run.label for run in read_history(tmp_path / "drill").runs] == ["abc"] * 3
    assert result_lines(result)[0].startswith("PASSED: 3 episodes, seeds 100 to 102")
    assert len(drills.said) == 3


def test_what_broke_is_shortened_and_written_as_a_scenario(tmp_path: Path) -> None:
    wanted = case_of(101, WORLD).rounds[2][0].step
    drills = Drills(
        tmp_path,
        lambda steps, seed: LOST if seed == 101 and wanted in steps else samples.summary(),
    )
    result = drills.run()

    assert (result.verdict, result.exit_status, result.seed) == ("FAILED", 1, 101)
    assert (result.broken, result.faults) == (["sync_lost"], 1)
    assert (result.is_repeated, result.is_shortest) == (True, True)
    steps = [step.text for step in read_scenario(Path(result.scenario)).steps]
    assert wanted in steps
    assert len(steps) == len(case_of(101, WORLD, rounds=0).steps()) + 6
    whole = read_scenario(tmp_path / "random-101.yaml")
    assert [step.text for step in whole.steps] == case_of(101, WORLD).steps()
    assert (tmp_path / "broken/summary.json").exists()
    assert (tmp_path / "shortest/summary.json").exists()
    assert f"tandem drill {result.scenario}" in result_lines(result)[-1]


def test_with_the_seed_that_broke_its_episode_is_the_first(tmp_path: Path) -> None:
    wanted = case_of(101, WORLD).rounds[2][0].step
    drills = Drills(tmp_path, lambda steps, seed: LOST if wanted in steps else samples.summary())
    first = drills.run(seed=101).episodes[0]
    assert (first.seed, first.verdict, first.broken) == (101, "FAILED", ["sync_lost"])


def test_what_does_not_break_again_is_written_whole(tmp_path: Path) -> None:
    answers = iter([LOST])
    drills = Drills(tmp_path, lambda steps, seed: next(answers, samples.summary()))
    result = drills.run()
    assert (result.verdict, result.is_repeated, result.is_shortest) == ("FAILED", False, False)
    steps = [step.text for step in read_scenario(Path(result.scenario)).steps]
    assert steps == case_of(100, WORLD).steps()


def test_a_slow_machine_shows_nothing_and_the_next_seed_follows(tmp_path: Path) -> None:
    drills = Drills(tmp_path, lambda steps, seed: samples.inconclusive())
    result = drills.run()
    assert (result.verdict, result.exit_status, len(result.episodes)) == ("INCONCLUSIVE", 3, 3)
    mixed = Drills(
        tmp_path,
        lambda steps, seed: samples.inconclusive() if seed == 101 else samples.summary(),
    ).run()
    assert mixed.verdict == "PASSED"
    assert "101" in result_lines(mixed)[1]


def test_an_interruption_ends_it(tmp_path: Path) -> None:
    drills = Drills(tmp_path, lambda steps, seed: samples.summary(interrupted=True))
    result = drills.run()
    assert (result.verdict, result.exit_status, len(result.episodes)) == ("INTERRUPTED", 130, 1)


def test_an_interruption_of_the_search_keeps_what_is_broken(tmp_path: Path) -> None:
    answers = iter([LOST, samples.summary(interrupted=True)])
    result = Drills(tmp_path, lambda steps, seed: next(answers)).run()
    assert (result.verdict, result.exit_status, result.is_shortest) == ("FAILED", 1, False)
    assert Path(result.scenario).exists()


@pytest.mark.parametrize("refused", [DrillError, ClusterError])
def test_a_play_of_the_search_that_cannot_be_held_breaks_nothing(
    refused: type[Exception], tmp_path: Path
) -> None:
    drills = Drills(tmp_path, lambda steps, seed: LOST)
    hold = drills.hold

    def once(options: DrillOptions) -> int:
        if drills.held:
            raise refused("no port is free")
        return hold(options)

    drills.hold = once  # type: ignore[method-assign]
    result = drills.run()
    assert (result.verdict, result.is_repeated) == ("FAILED", False)
    assert any("no port is free" in line for line in drills.said)


def test_what_cannot_be_held_at_all_is_an_error(tmp_path: Path) -> None:
    def refuse(steps: list[str], seed: int) -> Summary:
        raise DrillError("no port is free")

    with pytest.raises(DrillError):
        Drills(tmp_path, refuse).run()


def test_what_was_not_seen_is_a_name_without_what_was_seen_instead(tmp_path: Path) -> None:
    run = msgspec.structs.replace(samples.RUN, name="random")
    unmet = samples.summary(runs=[run], expectations=[samples.expectation(held=False)])
    result = Drills(tmp_path, lambda steps, seed: unmet).run()
    assert result.broken == ["expected: every sync send answers SLAVE_NOT_AVAILABLE"]


def test_a_cluster_that_a_slow_machine_did_not_get_ready_shows_nothing(tmp_path: Path) -> None:
    def not_ready(seed: int, *, machine_was_slow: bool) -> Summary:
        if seed == 100:
            raise NotReadyError("no topic", late_seconds=1.0, machine_was_slow=machine_was_slow)
        return samples.summary()

    drills = Drills(tmp_path, lambda steps, seed: not_ready(seed, machine_was_slow=True))
    verdicts = [episode.verdict for episode in drills.run().episodes]
    assert verdicts == ["INCONCLUSIVE", "PASSED", "PASSED"]
    with pytest.raises(NotReadyError):
        Drills(tmp_path, lambda steps, seed: not_ready(seed, machine_was_slow=False)).run()


async def lost_by_a_forgetful_broker(scenario: Scenario) -> int:
    """Play a scenario on a made-up cluster; return how many acknowledged messages it forgot.

    Its proxy forgets one message with every kill of a node after a link was cut.
    """
    acknowledged: set[int] = set()
    stored: set[int] = set()
    async with trio.open_nursery() as nursery:
        world = MadeUpCluster(is_fenced=True)
        answer, kill, cut = world.usual_answer, world.kill, world.cut
        was_cut: list[str] = []

        def send(mode: SendMode) -> str:
            status = answer(mode)
            if status == SEND_OK:
                acknowledged.add(len(acknowledged))
                stored.add(len(acknowledged) - 1)
            return status

        def cut_and_note(source: str, target: str, *, replication_only: bool = False) -> None:
            was_cut.append(source)
            cut(source, target, replication_only=replication_only)

        async def kill_and_forget(node: str) -> None:
            await kill(node)
            if was_cut and stored:
                stored.discard(max(stored))

        world.answer = send
        world.cut = cut_and_note  # type: ignore[method-assign]
        world.kill = kill_and_forget  # type: ignore[method-assign]
        nursery.start_soon(world.run)
        world.stage.bind("random")
        with suppress(UnmetError):
            for step in scenario.steps:
                await step.play(world.stage)
        nursery.cancel_scope.cancel()
    return len(acknowledged - stored)


def forgotten(scenario: Scenario) -> int:
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(lost_by_a_forgetful_broker, scenario, clock=clock)


@pytest.mark.slow
def test_a_broker_that_forgets_is_found_by_chance_and_by_what_is_written_again(
    tmp_path: Path,
) -> None:
    """On virtual time. What is written, played again, breaks again; without a fault it does not."""
    place = tmp_path / "random.yaml"
    seed = next(
        seed
        for seed in range(1_000)
        if {"cut", "kill"} <= set(_verbs(case_of(seed, WORLD)))
        and len(_verbs(case_of(seed, WORLD))) > 6
        and _breaks(case_of(seed, WORLD))
    )
    drills = Drills(
        tmp_path,
        lambda steps, seed: samples.summary(
            found=samples.audit(sync_lost=forgotten(read_scenario(place)))
        ),
    )

    result = drills.run(seed=seed)

    assert (result.verdict, result.broken, result.seed) == ("FAILED", ["sync_lost"], seed)
    assert (result.is_repeated, result.is_shortest, result.faults) == (True, True, 2)
    assert result.episodes[-1].faults > 2
    written = read_scenario(Path(result.scenario))
    verbs = [step.text.split()[0] for step in written.steps]
    assert verbs.index("cut") < verbs.index("kill")
    assert (verbs.count("cut"), verbs.count("kill")) == (1, 1)
    assert not {"freeze", "stop", "delay", "limit", "reset", "disturb"} & set(verbs)
    assert forgotten(written) >= 1
    for verb in ("cut", "kill"):
        steps = tuple(step for step in written.steps if step.text.split()[0] != verb)
        assert forgotten(msgspec.structs.replace(written, steps=steps)) == 0


def _verbs(case: Case) -> list[str]:
    return [fault.step.split()[0] for faults in case.rounds for fault in faults]


def _breaks(case: Case) -> bool:
    return forgotten(parse_scenario(scenario_text(case, "x"), "random", "here")) > 0
