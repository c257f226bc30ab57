"""Drills of chance with real nodes: a planted fault is found, made short, and breaks again."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tandem.drill import random_drill, session
from tandem.drill.auditing import AuditRequest, audit_with_progress
from tandem.drill.command import run_drill
from tandem.drill.nemesis import case_of
from tandem.drill.outcomes import EXIT_BROKEN
from tandem.drill.plan import Plan
from tandem.drill.play import play
from tandem.drill.scenario_file import read_scenario
from tandem.spark.audit.rules import AuditSummary
from tests.faults.drills import a_drill, change_a_byte, draw_nothing, signals_as_before

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

SEED = 85
"""Three faults in two rounds, one of them a kill."""


@pytest.fixture(autouse=True)
def _quietly(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    draw_nothing(monkeypatch)
    with signals_as_before():
        yield


def kills_in(file: Path) -> list[str]:
    return [step.text for step in read_scenario(file).steps if step.text.startswith("kill ")]


def test_what_a_planted_fault_breaks_is_left_alone_by_the_search_and_breaks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: where a node was killed, the disk of a slave has another byte at the end."""
    played: list[bool] = []

    async def noted(plan: Plan, *others: Any) -> None:  # noqa: ANN401 - as `play` has them
        (scenario,) = plan.scenarios
        played.append(any(step.text.startswith("kill ") for step in scenario.steps))
        await play(plan, *others)

    async def damage_and_audit(request: AuditRequest, console: Console) -> AuditSummary:
        if played[-1]:
            change_a_byte(request.stores[next(n for n in request.stores if n != request.master)])
        return await audit_with_progress(request, console)

    monkeypatch.setattr(session, "play", noted)
    monkeypatch.setattr(session, "audit_with_progress", damage_and_audit)
    monkeypatch.setattr(random_drill, "case_of", partial(case_of, rounds=2))
    options = msgspec.structs.replace(
        a_drill(tmp_path, "random", kind="classic"),
        seed=SEED,
        minutes=1.0,
        duration_seconds=None,
        patience=10.0,
    )

    assert run_drill(options) == EXIT_BROKEN

    out = options.out
    shortest = out / f"random-{SEED}-shortest.yaml"
    assert len(kills_in(out / f"random-{SEED}.yaml")) == 1
    assert len(kills_in(shortest)) == 1
    text = shortest.read_text()
    assert "slaves_not_identical" in text
    assert "none of its faults can be left out" in text
    assert not any(word in text for word in ("stop broker", "freeze broker"))
    assert (out / "shortest" / "summary.json").exists()
    assert f"play them again: tandem drill {shortest}" in capsys.readouterr().out

    again = msgspec.structs.replace(options, scenarios=(str(shortest),), minutes=None)
    again = msgspec.structs.replace(again, out=tmp_path / "again")
    assert run_drill(again) == EXIT_BROKEN
