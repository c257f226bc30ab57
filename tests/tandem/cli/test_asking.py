import sys
from collections.abc import Callable

import pytest
import typer

from tandem.cli.asking import ask, confirm
from tandem.cli.output import CommandError
from tandem.client import Admin


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Somebody at a terminal who answers."""

    def sit_down(answer: bool) -> None:  # noqa: FBT001
        def answered(_words: str, *, abort: bool) -> bool:
            if abort and not answer:
                raise typer.Abort
            return answer

        for stream in (sys.stdin, sys.stdout):
            monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setattr(typer, "confirm", answered)

    return sit_down


def test_a_person_is_asked(person: Callable[[bool], None]) -> None:
    person(True)  # noqa: FBT003
    confirm("Delete it?", yes=False)
    person(False)  # noqa: FBT003
    with pytest.raises(typer.Abort):
        confirm("Delete it?", yes=False)


def test_where_nobody_can_be_asked_yes_is_needed() -> None:
    confirm("Delete it?", yes=True)
    with pytest.raises(CommandError, match="add --yes to do it") as error:
        confirm("Delete it?", yes=False)
    assert error.value.exit_status == 2


def test_an_answer_comes_back() -> None:
    async def question(admin: Admin) -> str:
        return type(admin).__name__

    assert ask("asking", question, ["127.0.0.1:1"], None) == "Admin"


def test_an_address_that_is_none_is_the_users_mistake() -> None:
    async def question(_admin: Admin) -> None:
        raise AssertionError

    with pytest.raises(typer.BadParameter):
        ask("asking", question, ["nowhere"], None)
