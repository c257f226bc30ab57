"""`tandem user`: who may sign."""

import json
from pathlib import Path

import pytest

from tandem.cli.output import CommandError
from tandem.client import UserExistsError, UserNotFoundError
from tests.tandem.cli.conftest import Tandem

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("one cluster of the command line")]


def test_a_secret_is_made_and_shown_once(tandem: Tandem) -> None:
    made = tandem("user", "create", "made")
    first, second = made.stdout.splitlines()
    assert first == "accessKey: made"
    secret = second.removeprefix("secretKey: ")
    assert len(secret) == 52
    other = json.loads(tandem("user", "create", "other", "--format", "json").stdout)
    assert other["access_key"] == "other"
    assert other["secret_key"] != secret
    for line in (["list"], ["show", "made"], ["list", "--format", "json"]):
        assert secret not in tandem("user", *line).stdout
    with pytest.raises(UserExistsError):
        tandem("user", "create", "made")
    again = tandem("user", "alter", "made", "--new-secret")
    assert secret not in again.stdout
    assert "accessKey: made" in again.stdout


def test_a_secret_is_taken_from_a_file_and_never_printed(tandem: Tandem, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("a secret of mine\nanother line\n")
    made = tandem("user", "create", "filed", "--super", "--secret-file", str(file))
    assert made.stdout == "user filed created\n"
    found = json.loads(tandem("user", "show", "filed", "--format", "json").stdout)
    assert (found["user_type"], found["status"]) == ("Super", "enable")
    tandem("user", "alter", "filed", "--normal", "--disable")
    found = json.loads(tandem("user", "show", "filed", "--format", "json").stdout)
    assert (found["user_type"], found["status"]) == ("Normal", "disable")
    said = tandem("user", "alter", "filed", "--enable", "--secret-file", "-", input="from stdin\n")
    assert said.stdout == "user filed altered\n"
    for bad in (str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(CommandError):
            tandem("user", "create", "bad", "--secret-file", bad)
    file.write_text("\n")
    with pytest.raises(CommandError):
        tandem("user", "create", "bad", "--secret-file", str(file))


def test_a_user_that_is_deleted_is_none_any_more(tandem: Tandem) -> None:
    tandem("user", "create", "gone")
    with pytest.raises(CommandError):
        tandem("user", "delete", "gone")  # nobody can be asked here
    assert tandem("user", "delete", "gone", "--yes").stdout == "user gone deleted\n"
    for line in (["show"], ["delete", "--yes"], ["alter", "--enable"]):
        with pytest.raises(UserNotFoundError):
            tandem("user", line[0], "gone", *line[1:])


@pytest.mark.parametrize(
    "line", [["alter", "x"], ["alter", "x", "--new-secret", "--secret-file", "y"]]
)
def test_what_cannot_be_changed_is_said_before_anybody_is_asked(
    tandem: Tandem, line: list[str]
) -> None:
    assert tandem("user", *line).exit_code == 2
