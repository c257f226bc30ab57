"""`tandem user quota`: what a user may take."""

import json

import pytest

from tandem.client import UserNotFoundError
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]


def test_bounds_are_set_shown_and_taken_back_one_by_one(tandem: Tandem) -> None:
    tandem("user", "create", "bounded")

    def bounds() -> dict[str, int | None]:
        rows = json.loads(tandem("user", "quota", "bounded", "--format", "json").stdout)
        return {row["bound"]: row["most"] for row in rows}

    assert set(bounds().values()) == {None}
    line = ("user", "quota", "bounded", "--requests-per-second", "5", "--connections-max", "none")
    said = tandem(*line).stdout
    assert "5 requests a second" in said
    first = {"connections": 0, "requests a second": 5}
    assert bounds() == {"bytes a second": None, "bytes in flight": None, **first}
    tandem("user", "quota", "bounded", "--bytes-per-second", "9", "--connections-max", "default")
    assert bounds()["connections"] is None
    assert bounds()["requests a second"] == 5
    assert "5 requests a second, 9 bytes a second" in tandem("user", "show", "bounded").stdout
    row = next(
        line for line in tandem("user", "list").stdout.splitlines() if line.startswith("bounded")
    )
    assert "own" in row
    # What else is changed of a user leaves them.
    tandem("user", "alter", "bounded", "--disable")
    assert bounds()["requests a second"] == 5
    tandem("user", "delete", "bounded", "--yes")
    tandem("user", "create", "bounded")
    assert set(bounds().values()) == {None}


def test_a_user_that_is_none_has_no_bounds(tandem: Tandem) -> None:
    with pytest.raises(UserNotFoundError):
        tandem("user", "quota", "nobody")
    with pytest.raises(UserNotFoundError):
        tandem("user", "quota", "nobody", "--connections-max", "1")


@pytest.mark.parametrize("bad", ["0", "-1", "many", "9" * 5_000])
def test_a_bound_that_cannot_be_is_said_before_anybody_is_asked(tandem: Tandem, bad: str) -> None:
    assert tandem("user", "quota", "x", f"--requests-per-second={bad}").exit_code == 2
