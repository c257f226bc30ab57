"""A short campaign of each kind. Long: each has a Java of its own and a group of nodes.

The whole one, of 50 rounds, is a program: see `stream_exactly_once`. What finds faults in an output
within milliseconds: tests/tandem/drill/test_stream_audit.py.
"""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.tandem.spark.campaigns.stream_exactly_once import KINDS, run_campaign

pytestmark = [pytest.mark.spark, pytest.mark.fault, pytest.mark.slow, pytest.mark.long]


def test_nothing_is_lost_or_repeated_while_workers_drivers_and_masters_are_killed(
    tmp_path: Path,
) -> None:
    tally = run_campaign(tmp_path, 2 * len(KINDS), seed=7)
    assert sum(tally.kills.values()) == 2 * len(KINDS)
    assert set(tally.kills) == set(KINDS)
    assert tally.drivers_started >= 1 + tally.kills["driver"]
    assert tally.summary.rows >= tally.acknowledged > 0
    assert tally.summary.promises_broken == 0, tally


def test_a_stream_that_leaves_an_offset_out_is_found(tmp_path: Path) -> None:
    tally = run_campaign(tmp_path, 1, plant="skip")
    assert tally.summary.missing > 0, tally
    assert tally.summary.acknowledged_missing > 0, tally


def test_a_stream_that_forgets_its_checkpoint_is_found(tmp_path: Path) -> None:
    """It is started again once, by the kill of its driver in the fourth round."""
    tally = run_campaign(tmp_path, KINDS.index("driver") + 1, plant="forget")
    assert tally.summary.promises_broken > 0, tally
