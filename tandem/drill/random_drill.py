"""`tandem drill random`: drills of chance, one after the other, until time is over or one breaks.

Each episode is a drill of its own, with a fresh cluster and an audit: that of seed S + k plays what
`--seed S+k` plays first. One that breaks a promise is made as short as it can be, and written as a
scenario that `tandem drill FILE` plays.

    OUT/episode            the report of the last episode
    OUT/broken             of the one that broke
    OUT/shortest           of the shortest case that broke
    OUT/random-SEED.yaml   the scenario that broke, and random-SEED-shortest.yaml; they stay
"""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tandem.cluster_file.errors import ClusterError
from tandem.drill.errors import DrillError, NotReadyError
from tandem.drill.keeping import keep
from tandem.drill.nemesis import Case, World, case_of, scenario_text
from tandem.drill.options import (
    RANDOM_MINUTES_DEFAULT,
    SHORT_RATE_PER_SECOND,
    DrillOptions,
)
from tandem.drill.outcomes import EXIT_STATUSES, Verdict
from tandem.drill.run_record import RunRecord
from tandem.drill.shrinking import Broken, Shrunk, StoppedError, shrink

PROMISE: Final = "Whatever is done to nodes and links, nothing acknowledged is lost; all recovers."


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """One drill of chance."""

    seed: int
    verdict: Verdict
    faults: int
    seconds: float
    broken: list[str]


class RandomResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a random drill came to. What is about a broken promise is empty without one."""

    verdict: Verdict
    exit_status: int
    seed: int
    """With this seed, the first episode is the one that broke."""
    episodes: list[Episode]
    broken: list[str] = []
    scenario: str = ""
    """The file with the shortest steps that still broke it."""
    faults: int = 0
    plays: int = 0
    """How many plays the search for it took."""
    is_repeated: bool = False
    is_shortest: bool = False


class RandomDrill:
    """Episodes, and the search for what broke.

    `hold` plays one drill and returns its exit status, `now` are seconds of a steady clock, `say`
    takes a line about how it goes. `out` is the drill's alone.
    """

    def __init__(
        self,
        options: DrillOptions,
        world: World,
        *,
        out: Path,
        hold: Callable[[DrillOptions], int],
        now: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._world = world
        self._out = out
        self._hold = hold
        self._now = now
        self._say = say

    def run(self) -> RandomResult:
        """Play until the time is over, something breaks, or somebody stops it.

        Raises:
            DrillError, ClusterError: an episode cannot be played.
        """
        minutes = self._options.minutes or RANDOM_MINUTES_DEFAULT
        ends_at = self._now() + minutes * 60
        episodes: list[Episode] = []
        seed = self._options.seed
        while not episodes or self._now() < ends_at:
            case = case_of(seed, self._world)
            episode = self._episode(case)
            episodes.append(episode)
            self._say(_of_episode(episode))
            if episode.verdict == "FAILED":
                return self._shortened(case, frozenset(episode.broken), episodes)
            if episode.verdict == "INTERRUPTED":
                break
            seed += 1
        verdict = _together([episode.verdict for episode in episodes])
        return RandomResult(
            verdict=verdict,
            exit_status=EXIT_STATUSES[verdict],
            seed=self._options.seed,
            episodes=episodes,
        )

    def _episode(self, case: Case) -> Episode:
        """Play a whole case. A cluster that a slow machine did not get ready shows nothing."""
        self._write("random.yaml", case, [f"seed {case.seed}"])
        out = self._out / "episode"
        began_at = self._now()
        verdict: Verdict = "INCONCLUSIVE"
        broken: Broken = frozenset()
        try:
            self._hold(self._of_case(case, out))
        except NotReadyError as error:
            if not error.machine_was_slow:
                raise
            self._say(str(error))
        else:
            record = keep(out, self._options.history, self._options.label)
            verdict, broken = record.verdict, broken_in(record)
        return Episode(
            seed=case.seed,
            verdict=verdict,
            faults=case.faults,
            seconds=round(self._now() - began_at, 3),
            broken=sorted(broken),
        )

    def _of_case(self, case: Case, out: Path) -> DrillOptions:
        return msgspec.structs.replace(
            self._options,
            scenarios=(str(self._out / "random.yaml"),),
            rate_per_second=self._options.rate_per_second or SHORT_RATE_PER_SECOND,
            out=out,
            repeat=1,
            seed=case.seed,
            json=False,
            history=None,
            minutes=None,
        )

    def _write(self, name: str, case: Case, comments: Sequence[str]) -> Path:
        path = self._out / name
        try:
            path.write_text(scenario_text(case, PROMISE, comments), encoding="utf-8")
        except OSError as error:
            raise DrillError(f"cannot write the scenario {path}: {error.strerror}") from error
        return path

    def _shortened(self, case: Case, broken: Broken, episodes: list[Episode]) -> RandomResult:
        """Search for the shortest case that breaks the same; what is known is on disk."""
        self._move("episode", "broken")
        name = f"random-{case.seed}"
        what = ", ".join(sorted(broken))
        found = [f"seed {case.seed}: found broken: {what}"]
        self._write(f"{name}.yaml", case, found)
        self._say(f"seed {case.seed} broke {what}; looking for the shortest steps that break it")
        shrunk = shrink(case, broken, self._again)
        path = self._write(f"{name}-shortest.yaml", shrunk.case, [*found, _in_words(shrunk)])
        return RandomResult(
            verdict="FAILED",
            exit_status=EXIT_STATUSES["FAILED"],
            seed=case.seed,
            episodes=episodes,
            broken=sorted(broken),
            scenario=str(path),
            faults=shrunk.case.faults,
            plays=shrunk.plays,
            is_repeated=shrunk.is_repeated,
            is_shortest=shrunk.is_shortest,
        )

    def _again(self, case: Case) -> Broken:
        """Play a shorter case; what could not be played to its end breaks nothing."""
        self._write("random.yaml", case, [f"seed {case.seed}, in part"])
        out = self._out / "episode"
        try:
            self._hold(self._of_case(case, out))
            record = keep(out, None, self._options.label)
        except (DrillError, ClusterError) as error:
            self._say(f"{case.faults} faults: could not be played: {error}")
            return frozenset()
        broken = broken_in(record)
        came_to = ", ".join(sorted(broken)) or record.verdict
        self._say(f"{_many(case.faults, 'fault')}: {came_to}")
        if record.verdict == "INTERRUPTED":
            raise StoppedError
        if broken:
            self._move("episode", "shortest")
        return broken

    def _move(self, source: str, target: str) -> None:
        """Keep a report under another name."""
        shutil.rmtree(self._out / target, ignore_errors=True)
        try:
            (self._out / source).replace(self._out / target)
        except OSError as error:
            raise DrillError(f"cannot keep the report in {self._out}: {error.strerror}") from error


def broken_in(record: RunRecord) -> Broken:
    """Return by name what a drill found broken: counts, and what was expected and not seen.

    Names of nodes and figures stay in them: two cases break the same if they break one of these.
    """
    if record.verdict != "FAILED":
        return frozenset()
    unmet = [words.partition("; seen: ")[0] for each in record.scenarios for words in each.failed]
    found = frozenset([*record.broken, *unmet])
    return found or frozenset([record.why or "no audit"])


def result_lines(result: RandomResult) -> list[str]:
    """Return what is said at the end."""
    seeds = [episode.seed for episode in result.episodes]
    lines = [
        f"{result.verdict}: {_many(len(seeds), 'episode')}, seeds {seeds[0]} to {seeds[-1]},"
        f" {_many(sum(each.faults for each in result.episodes), 'fault')}"
    ]
    if result.verdict != "FAILED":
        inconclusive = [each.seed for each in result.episodes if each.verdict == "INCONCLUSIVE"]
        if inconclusive:
            lines.append("nothing was shown with the seeds " + ", ".join(map(str, inconclusive)))
        return lines
    lines.append(f"broken with seed {result.seed}: {', '.join(result.broken)}")
    lines.append(f"{_many(result.faults, 'fault')} {_how(result)}; {_many(result.plays, 'play')}")
    lines.append(f"play them again: tandem drill {result.scenario}")
    return lines


def _how(result: RandomResult) -> str:
    if not result.is_repeated:
        return "as they were played: it has not broken again"
    if not result.is_shortest:
        return "left: the search was not ended, and fewer may do"
    return "left, of which none can be left out"


def _of_episode(episode: Episode) -> str:
    words = f"seed {episode.seed}: {episode.verdict}, {_many(episode.faults, 'fault')}"
    return f"{words}, {episode.seconds:.0f} s"


def _in_words(shrunk: Shrunk) -> str:
    if not shrunk.is_repeated:
        times = _many(shrunk.plays, "play")
        return f"it has not broken again in {times}: these are all of its steps"
    how = "none of its faults can be left out" if shrunk.is_shortest else "fewer faults may do"
    return f"{how}, after {_many(shrunk.plays, 'play')}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict for episodes of which none failed: what some show, others need not show again."""
    ranks: tuple[Verdict, ...] = ("INTERRUPTED", "PASSED", "INCONCLUSIVE")
    return next((verdict for verdict in ranks if verdict in verdicts), "NOT POSSIBLE")
