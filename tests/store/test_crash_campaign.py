"""No crash costs what was promised, whatever it hits; and the campaign that says so can see.

A seed that fails is told with the command that repeats it.
"""

import logging
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from tests.store.crash_campaign import main, run_seed, table_of
from tests.store.crash_check import BrokenPromiseError
from tests.store.crash_history import History
from tests.store.crash_mutants import MUTANTS, Mutant, caught_by, line_of
from tests.store.crash_plan import draw_plan

SEEDS: Final = (9, 12, 26, 34)
"""Few that together cut every kind of step; the long tests play hundreds."""
CRASH_POINTS_MIN: Final = 280
SEEDS_PER_LONG_TEST: Final = 25
LONG_TESTS: Final = 14
"""Of at least 1,500 crash points each: 21,000."""

KINDS: Final = {
    *(f"run: create {area}" for area in ("log", "queue", "batch queue", "ext", "index")),
    *(f"run: sync {area}" for area in ("log", "queue", "batch queue", "ext", "index")),
    *(f"close: sync {area}" for area in ("log", "queue", "batch queue", "ext", "index")),
    *(f"recover: sync {area}" for area in ("log", "queue", "batch queue", "ext", "checkpoint")),
    *(f"recover: remove {area}" for area in ("log", "queue", "batch queue", "ext", "index")),
    *(f"recover: create {area}" for area in ("checkpoint", "queue", "batch queue", "ext")),
    *(f"recover: write {area}" for area in ("log", "queue", "batch queue", "ext")),
    *(f"run: {step} fingerprints" for step in ("create", "link", "sync")),
    *("run: replace log-start.json", "recover: replace log-start.json"),
    *("recover: replace torn", "recover: replace abort"),
    *("run: write log", "run: commit log", "run: link log", "run: remove log"),
    *("run: remove queue", "run: remove index", "run: sync checkpoint"),
    *("run: between puts", "run: between rounds", "run: between deletions"),
    *("close: commit log", "close: remove abort", "close: sync checkpoint"),
    *("close: replace queue-ends.json", "recover: remove queue-ends.json"),
}
"""What has to be cut, or the figures speak of faults that never happened."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of recoveries have a lot to say."""
    caplog.set_level(logging.CRITICAL)


def run_seeds(seeds: Iterable[int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += run_seed(seed)
    sys.stdout.write(table_of(counts))
    return counts


@pytest.mark.slow
@pytest.mark.thorough
def test_no_crash_costs_what_was_promised() -> None:
    counts = run_seeds(SEEDS)
    assert sum(counts.values()) >= CRASH_POINTS_MIN
    kinds = {name.split(", ")[1] for name in counts}
    assert not KINDS - kinds
    for mode in ("kill", "power loss"):
        cut = sum(count for name, count in counts.items() if name.startswith(mode))
        assert cut > CRASH_POINTS_MIN // 5


@pytest.mark.long
@pytest.mark.parametrize("part", range(LONG_TESTS))
def test_no_crash_of_many_costs_what_was_promised(part: int) -> None:
    first = 1000 + part * SEEDS_PER_LONG_TEST
    counts = run_seeds(range(first, first + SEEDS_PER_LONG_TEST))
    assert sum(counts.values()) >= 1500


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [6, 15, 17, 63])
def test_no_crash_at_any_single_step_costs_what_was_promised(seed: int) -> None:
    assert sum(run_seed(seed, every_step=True).values()) > 500


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_a_mistake_in_the_store_is_noticed(mutant: Mutant) -> None:
    seeds, finding = caught_by(mutant)
    sys.stdout.write(line_of(mutant, seeds, finding))
    assert seeds, f"nobody noticed: {mutant.title}"


def test_every_setting_is_met() -> None:
    plans = [draw_plan(seed) for seed in range(40)]
    for setting in (
        "enable_consume_queue_ext",
        "enabled_append_prop_crc",
        "force_verify_prop_crc",
        "transient_store_pool_enable",
    ):
        assert {plan.settings[setting] for plan in plans} == {False, True}, setting
    for setting in ("store_path_commit_log", "store_host"):
        assert {setting in plan.settings for plan in plans} == {False, True}, setting
    assert len({plan.settings["flush_disk_type"] for plan in plans}) == 2
    for fact in ("is_slave", "clock_jumps", "cleans", "loses_queues"):
        assert {getattr(plan, fact) for plan in plans} == {False, True}, fact


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    assert run_seed(3) == run_seed(3)


@pytest.mark.slow
def test_a_broken_promise_says_how_to_repeat_it(capsys: pytest.CaptureFixture[str]) -> None:
    (mutant,) = (mutant for mutant in MUTANTS if "standing" in mutant.title)
    with mutant.applied(), pytest.raises(BrokenPromiseError) as caught:
        main(["0"])
    command = str(caught.value).split("\n")[1]
    assert command == "repeat: python -m tests.store.crash_campaign 0"
    with mutant.applied():
        assert main(["0-1"]) == 1
    assert command in capsys.readouterr().out


def test_a_history_notices_a_record_that_is_not_what_was_put() -> None:
    history = History(4096)
    with pytest.raises(AssertionError):
        history.forget(100)
