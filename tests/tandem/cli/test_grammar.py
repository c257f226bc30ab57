"""What is said of a line that breaks the grammar; the commands are those of the program."""

import pytest
from typer.testing import CliRunner, Result

import tandem
from tandem.cli.command_line import app
from tandem.cli.grammar import NOUNS


def line(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, arguments, prog_name="tandem", env=environment)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["topics"], "error: No such command 'topics'. Did you mean 'topic'?"),
        (["topic", "lst"], "error: No such command 'lst'. Did you mean 'list'?"),
        (["topic", "list", "--fromat", "json"], "error: No such option: --fromat"),
        (["topic", "route"], "error: Missing argument 'TOPIC'."),
        (["ha", "status", "--format", "yaml"], "error: Invalid value for '--format': 'yaml'"),
        (["topic", "list", "-n", "nowhere"], "error: Invalid value for --name-server"),
    ],
)
def test_a_usage_error_is_an_error_like_others(arguments: list[str], error: str) -> None:
    done = line(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    first, *_, hint = done.stderr.splitlines()
    assert first.startswith(error)
    assert hint.startswith("try `tandem")
    assert "─" not in done.stderr


def test_a_noun_alone_says_which_verbs_there_are() -> None:
    done = line("topic")
    assert done.exit_code == 2
    assert "create" in done.stderr
    assert "error" not in done.stderr


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("command", [[], ["topic"], ["topic", "list"], ["log", "ls"]])
def test_help_in_a_pipe_is_plain(command: list[str], option: str) -> None:
    done = line(*command, option)
    assert done.exit_code == 0
    assert done.stdout.startswith("Usage: tandem")
    assert done.stdout.isascii()


def test_nouns_are_in_the_order_of_their_use() -> None:
    lines = line("--help").stdout.partition("Commands:")[2].splitlines()
    names = [each.split()[0] for each in lines if each.startswith("  ") and each[2] != " "]
    assert names[: len(NOUNS)] == list(NOUNS)


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_that_of_the_package(option: str) -> None:
    assert line(option).stdout == f"tandem {tandem.__version__}\n"


def test_statuses_are_said_by_the_help() -> None:
    assert "Exit status: 0 done; 1 refused" in " ".join(line("--help").stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    words = {"bash": "COMP_WORDS", "zsh": "_TYPER_COMPLETE_ARGS", "fish": "_TYPER_COMPLETE_ARGS"}
    done = line(
        _TANDEM_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        COMP_CWORD="1",
        **{words[shell]: "tandem to"},
    )
    assert "topic" in done.stdout
