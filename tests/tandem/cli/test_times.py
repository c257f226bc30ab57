import datetime as dt
import time
from collections.abc import Iterator

import pytest
import typer

from tandem.cli.times import duration_ms, now_ms, parsed_time_ms, time_cell, time_ms

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("1.5m", 90_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("0s", 0),
        ("10", None),
        ("-10s", None),
        ("10 s", None),
        ("10y", None),
        ("", None),
        ("9" * 20 + "d", None),
    ],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds


@pytest.fixture
def _far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_far_away")
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-15T07:13:20", NOW),
        ("2023-11-15 07:13:20.5", NOW + 500),
        ("2023-11-15", NOW - 26_000_000),
        ("1700000000000", NOW),
        ("-10m", NOW - 600_000),
        ("-99999999d", 0),
        ("1700000000", None),
        ("17000000000000000", None),
        ("20231115", None),
        ("2023", None),
        ("2023-13-01", None),
        ("-", None),
        ("now", None),
    ],
)
def test_moments(text: str, milliseconds: int | None) -> None:
    assert time_ms(text, NOW) == milliseconds


def test_now_is_now() -> None:
    assert abs(now_ms() - dt.datetime.now(dt.UTC).timestamp() * 1000) < 60_000


def test_an_option_that_means_no_time_is_the_users_mistake() -> None:
    assert parsed_time_ms("1700000000000", "--from") == 1_700_000_000_000
    for text in ("", "soon", "15m", "9" * 5_000, "2023-13-01"):
        with pytest.raises(typer.BadParameter, match="is no time; give one such as 2026"):
            parsed_time_ms(text, "--from")


def test_a_cell_is_utc_and_empty_without_a_time() -> None:
    assert time_cell(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert time_cell(None) is None
    assert time_cell(0) is None
    assert time_cell(1 << 62) == str(1 << 62)
