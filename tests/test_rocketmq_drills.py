"""The table of drills of RocketMQ is filled in several goes: benchmarks/rocketmq_drills.py."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import rocketmq_drills
from benchmarks.rocketmq_drills import (
    NOT_RUN,
    NOT_RUN_MAX,
    PATIENCE_OF_OURS,
    PATIENCE_OF_ROCKETMQ,
    Configuration,
    Row,
    add_row,
    drill_command,
    fill,
    in_order,
    next_row,
    read_rows,
    row_of,
    table,
    together,
    with_table,
)
from tandem.cluster_file.choices import GroupKind
from tandem.drill.scenario_file import FOLDER, choose
from tandem.drill.targets.tandem_cluster import TandemTarget

A, B = ("a", "kill"), ("b", "kill")
ROWS = {place: Configuration(place[0], (), ("kill",)) for place in (A, B)}


def row(place: tuple[str, str], runs: int = 2, **changes: Any) -> Row:  # noqa: ANN401 - as a Row
    usual = Row(configuration=place[0], scenario=place[1], runs=runs, verdict="PASSED")
    return msgspec.structs.replace(usual, **changes)


def options(
    keep: Path, total: int = 4, minutes: float = 60.0, repeat: int = 2
) -> argparse.Namespace:
    return argparse.Namespace(keep=keep, total=total, minutes=minutes, repeat=repeat)


def test_a_second_go_plays_what_the_first_has_left(tmp_path: Path) -> None:
    keep = tmp_path / "rows.jsonl"
    add_row(keep, row(A, runs=3))
    played: list[tuple[tuple[str, str], int]] = []

    def play(place: tuple[str, str], runs: int) -> Row:
        played.append((place, runs))
        return row(place, runs=runs)

    fill(ROWS, options(keep, total=6, repeat=4), play)
    fill(ROWS, options(keep, total=6, repeat=4), play)

    assert played == [(B, 4), (A, 3), (B, 2)]
    assert {each.place: each.runs for each in together(read_rows(keep))} == {A: 6, B: 6}


def test_a_row_whose_drills_cannot_be_run_waits_for_the_next_go(tmp_path: Path) -> None:
    keep = tmp_path / "rows.jsonl"
    played: list[tuple[str, str]] = []

    def play(place: tuple[str, str], runs: int) -> Row:
        played.append(place)
        return row(place, runs=0, verdict=NOT_RUN) if place == A else row(place, runs=runs)

    fill(ROWS, options(keep), play)

    assert Counter(played) == {A: NOT_RUN_MAX, B: 2}
    assert next_row([A, B], read_rows(keep), 4, Counter()) == A


def test_no_drill_begins_when_the_time_is_over(tmp_path: Path) -> None:
    fill(ROWS, options(tmp_path / "rows.jsonl", minutes=0.0), lambda *_: pytest.fail("played"))


def test_a_line_that_a_crash_has_torn_costs_that_line_alone(tmp_path: Path) -> None:
    keep = tmp_path / "rows.jsonl"
    assert read_rows(keep) == []
    add_row(keep, row(A))
    keep.write_bytes(keep.read_bytes() + b'{"configuration": "a", "scen')
    add_row(keep, row(B))

    assert [each.place for each in read_rows(keep)] == [A, B]


def test_drills_of_one_row_are_added_up() -> None:
    rows = [
        row(A, lost=1, unavailable_seconds=[1.0, 9.0], longest_seconds=9.0),
        row(A, lost=2, unavailable_seconds=[2.0, 3.0], longest_seconds=3.0, verdict="FAILED"),
        row(A, runs=0, verdict=NOT_RUN, note="exit status 2"),
    ]

    (whole,) = together(rows)

    assert (whole.runs, whole.lost) == (4, 3)
    assert (whole.median_seconds, whole.longest_seconds) == (2.5, 9.0)
    assert whole.verdict == "1 FAILED, 1 NOT RUN, 1 PASSED"
    assert whole.note == "exit status 2"
    assert "| 4 | 0 | 3 |" in table([whole])


def test_a_run_that_was_not_possible_or_ended_before_its_fault_counts_for_none() -> None:
    summary = {
        "unavailability": [{"median_seconds": 1.5, "max_seconds": 1.5}],
        "runs": [
            {"outcome": "ran to its end", "unavailable_seconds": 1.5},
            {"outcome": "not possible here: x", "unavailable_seconds": None},
            {"outcome": "ended early", "unavailable_seconds": None},
        ],
        **dict.fromkeys(("sync_acknowledged", "sync_lost", "duplicated", "stored_again"), 7),
        "out_of_order": 1,
        "read_out_of_order": 2,
        "identical_by_slave": {"x": False},
        "verdict": "PASSED",
        "stopped_because": "",
        "shorter_slaves": None,
    }

    found = row_of(ROWS[A], "kill", summary, 61.04)

    assert (found.runs, found.unavailable_seconds, found.wall_seconds) == (1, [1.5], 61.0)
    assert (found.out_of_order, found.differ) == (3, 1)

    early = {
        **summary,
        "stopped_because": "x could not go on",
        "identical_by_slave": {"x": False, "y": False, "z": True},
        "shorter_slaves": ["x"],
    }
    assert row_of(ROWS[A], "kill", early).differ == 1, "x had no time to catch up"


def test_what_is_kept_in_the_repository_can_be_read() -> None:
    places = {row.place for row in read_rows(rocketmq_drills.KEPT)}
    known = {
        (each.name, name)
        for each in (*rocketmq_drills.CONFIGURATIONS, *rocketmq_drills.OURS)
        for name in each.scenarios
    }
    assert places <= known
    assert places


def test_the_page_has_the_table_of_what_is_kept() -> None:
    places = [
        (each.name, name)
        for each in (*rocketmq_drills.CONFIGURATIONS, *rocketmq_drills.OURS)
        for name in each.scenarios
    ]
    page = rocketmq_drills.PAGE.read_text("utf-8")
    known = together(in_order(places, read_rows(rocketmq_drills.KEPT)))
    assert with_table(page, known) == page, "write it: `benchmarks.rocketmq_drills --page`"


def test_every_row_has_a_scenario_of_rocketmqs_for_its_kind_of_group() -> None:
    for each in (*rocketmq_drills.CONFIGURATIONS, *rocketmq_drills.OURS):
        is_elected = "controller" in each.options or each.name == "TandemMQ, fenced"
        kind = GroupKind.FENCED if is_elected else GroupKind.CLASSIC
        assert choose(each.scenarios, kind, short=False, folder=rocketmq_drills.SCENARIOS)


def test_a_row_of_another_version_has_its_jars(tmp_path: Path) -> None:
    given = argparse.Namespace(rocketmq="maven:5.3.3")
    jars = set()
    for each in rocketmq_drills.CONFIGURATIONS:
        command = drill_command(each, each.scenarios[0], 4, given, tmp_path)
        patience = command[command.index("--patience") + 1]
        assert patience == str(PATIENCE_OF_ROCKETMQ.get(each.scenarios[0], 1))
        place = command[command.index("--rocketmq") + 1]
        assert place == f"maven:{each.name.split(',')[0]}" or not each.name[0].isdigit()
        jars.add(place)
    assert jars == {"maven:5.3.3", "maven:5.5.0"}


def test_our_groups_play_the_scenarios_of_rocketmq_with_as_much_patience(tmp_path: Path) -> None:
    given = argparse.Namespace(rocketmq="maven:5.3.3")
    fenced, classic = rocketmq_drills.OURS

    command = drill_command(classic, "slave-loss", 4, given, tmp_path)

    assert str(FOLDER / "rocketmq" / "slave-loss.yaml") in command
    assert command[command.index("--patience") + 1] == str(PATIENCE_OF_OURS)
    config = Path(command[command.index("--config") + 1])
    assert TandemTarget(config).group.kind is GroupKind.CLASSIC
    (tmp_path / "fenced").mkdir()
    command = drill_command(fenced, "slaves-kill", 4, given, tmp_path / "fenced")
    assert str(FOLDER / "slaves-kill.yaml") in command, "RocketMQ's waits for sends that are OK"
    assert TandemTarget(tmp_path / "fenced" / config.name).group.kind is GroupKind.FENCED
