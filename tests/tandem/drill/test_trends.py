from pathlib import Path

import msgspec
import pytest

from tandem.drill.history import History, HistoryError
from tandem.drill.trends import (
    HEIGHT,
    RUNS_SHOWN_MAX,
    WIDTH,
    render_trends,
    series_of,
    write_trends,
)
from tests.tandem.drill import samples

FIRST = msgspec.structs.replace(samples.RUN, name="slave-loss", ended_at_seconds=5.0)
PASSED = samples.record(samples.summary(runs=[FIRST]), label="one")
FAILED = samples.record(
    samples.summary(
        runs=[msgspec.structs.replace(FIRST, unavailable_seconds=6.0)],
        expectations=[samples.expectation(held=False)],
    ),
    label="two",
)


def test_a_scenario_goes_from_run_to_run() -> None:
    loss = series_of([PASSED, FAILED, PASSED])[0]
    assert loss.scenario == "slave-loss"
    assert (loss.max_seconds, loss.last_seconds) == (6.0, 1.5)
    assert loss.outcomes == {"passed": 2, "failed": 1}
    assert [dot.outcome for dot in loss.dots] == ["passed", "failed", "passed"]
    assert [dot.y for dot in loss.dots] == [HEIGHT * 0.75, 0.0, HEIGHT * 0.75]
    assert all(0 < dot.x < WIDTH for dot in loss.dots)


def test_what_was_not_measured_is_no_dot() -> None:
    nothing = samples.record(
        samples.summary(runs=[msgspec.structs.replace(FIRST, unavailable_seconds=None)])
    )
    assert series_of([nothing])[0].dots == []
    zero = samples.record(
        samples.summary(runs=[msgspec.structs.replace(FIRST, unavailable_seconds=0.0)])
    )
    assert [dot.y for dot in series_of([zero])[0].dots] == [HEIGHT]


def test_the_page_has_every_run_and_loads_nothing() -> None:
    page = render_trends(History([PASSED, FAILED], unreadable=3))
    assert page.count("<tr>") == 3
    assert page.index(">two<") < page.index(">one<"), "the newest first"
    assert "3 lines of history.jsonl cannot be read" in page
    for word in ("http:", "https:", "<script", "<link", "url("):
        assert word not in page


def test_a_long_history_is_shown_from_its_end() -> None:
    page = render_trends(History([PASSED] * (RUNS_SHOWN_MAX + 7)))
    assert f"{RUNS_SHOWN_MAX + 7} runs" in page
    assert page.count("<tr>") == RUNS_SHOWN_MAX + 1
    assert f'<td class="n">{RUNS_SHOWN_MAX + 7}</td>' in page


def test_an_empty_history_has_a_page() -> None:
    assert "No drill" in render_trends(History([]))


def test_foreign_text_is_no_html() -> None:
    strange = '<img src=x onerror=alert(1)>"'
    scenario = msgspec.structs.replace(PASSED.scenarios[0], name=strange)
    run = msgspec.structs.replace(
        PASSED, label=strange, why=strange, started_at=strange, scenarios=[scenario]
    )
    page = render_trends(History([run]))
    assert "<img" not in page
    assert 'alert(1)>"' not in page


def test_the_page_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    write_trends(tmp_path, History([]))
    page = write_trends(tmp_path, History([PASSED]))
    assert [each.name for each in tmp_path.iterdir()] == ["trends.html"]
    assert "one" in page.read_text()
    with pytest.raises(HistoryError):
        write_trends(tmp_path / "none", History([]))
