"""Campaigns: what they show of many seeds."""

import io

import pytest
from rich.console import Console

from tests.sim.__main__ import main
from tests.sim.campaign import campaign


@pytest.mark.sim
@pytest.mark.slow
def test_a_campaign_says_what_was_hit_and_what_came_out() -> None:
    console = Console(file=io.StringIO(), width=120)
    reports = campaign(range(3, 6), jobs=1, console=console)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert [report.seed for report in reports] == [3, 4, 5]
    assert "faults that did something" in output
    assert "sends: OK" in output
    assert "3 seeds, 0 failed" in output


@pytest.mark.sim
@pytest.mark.slow
def test_a_campaign_of_classic_groups() -> None:
    console = Console(file=io.StringIO(), width=120)
    reports = campaign(range(3, 5), jobs=1, kind="classic", console=console)
    assert not any(report.findings for report in reports)


def test_anything_else_is_refused() -> None:
    assert main(["nonsense"]) == 2
