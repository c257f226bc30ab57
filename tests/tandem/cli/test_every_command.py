"""Every command with every option, and whatever may be given to it: one line, no traceback."""

import inspect
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
import yaml

from tandem.cli import command_end, command_line
from tandem.client import Admin, PullConsumer, RouteCause, RouteNotFoundError
from tests.support.paths import GOLDEN, ROOT

STORE: Final = str(GOLDEN / "basic")

VALUES: Final = {
    "empty": "",
    "space": " ",
    "negative": "-1",
    "zero": "0",
    "one": "1",
    "5,000 digits": "9" * 5_000,
    "20 nines": "9" * 20,
    "exponent": "1e400",
    "nan": "nan",
    "infinite": "inf",
    "escape": "\x1b[31m\n",
    "markup": "[/]",
    "not UTF-8": "\udc80",
    "date": "2026-01-01",
    "first year": "0001-01-01T00:00+23:00",
    "range": f"{'9' * 5_000}:",
    "root": "/",
    "directory": "DIR",
    "missing": "DIR/none/x",
    "empty file": "DIR/empty",
    "bytes": "DIR/bytes",
    "deep": "DIR/deep",
    "null": "/dev/null",
    "zeros": "/dev/zero",
    "long path": "x" * 300,
    "address without port": "127.0.0.1",
    "port of 5,000 digits": "a:" + "9" * 5_000,
    "port too large": "127.0.0.1:65536",
}
"""`DIR` is a directory of the test's."""

ARGUMENTS: Final = {
    "node": "broker-a-0",
    "archive": "DIR/none",
    "directory": STORE,
    "a": STORE,
    "b": STORE,
    "topic": "T",
    "output": "DIR/out.parquet",
    "group": "broker-a",
    "key": "store.flush_disk_type",
    "value": "1",
}
"""What an argument is while another is tried."""

NOT_STARTED: Final = {
    ("cluster", "up"): {"config"},
    ("console",): {"listen", "config"},
    ("drill",): {"scenarios", "config"},
    ("testing", "serve"): {"settings"},
}
"""Commands that go on, and the parameters that keep them from it."""


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


APP: Final = typer.main.get_command(command_line.app)
"""Built once: that takes longer than most commands."""

COMMANDS: Final = dict(commands(APP))

CASES: Final = [
    (path, parameter)
    for path, command in COMMANDS.items()
    for parameter in command.params
    if not (parameter.param_type_name == "option" and parameter.is_flag)
    and parameter.name in NOT_STARTED.get(path, {parameter.name})
]


async def answer_of_nobody(_client: object, topic: str = "", *_: object, **__: object) -> None:
    """What a client says at last where nobody serves, without the seconds that it tries."""
    raise RouteNotFoundError(
        topic.encode().decode(), RouteCause.NO_NAME_SERVER, "no name server answers"
    )


@cache
def few_sections() -> str:
    """The classic example without what has a default: it is read 600 times here."""
    text = (ROOT / "examples/classic.yaml").read_text(encoding="utf-8")
    whole = yaml.safe_load(text.replace("127.0.0.", "127.91.7."))
    return yaml.safe_dump({name: whole[name] for name in ("cluster", "groups", "nodes")})


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place with a few strange files; no home, and no terminal to speak of."""
    (tmp_path / "empty").touch()
    (tmp_path / "bytes").write_bytes(bytes(range(256)) * 10)
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "cluster.yaml").write_text(few_sections())
    monkeypatch.setattr(PullConsumer, "fetch_message_queues", answer_of_nobody)
    for name, _ in inspect.getmembers(Admin, inspect.iscoroutinefunction):
        if not name.startswith("_") and not name.startswith(("fenced", "ha_")):
            monkeypatch.setattr(Admin, name, answer_of_nobody)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("HOME", raising=False)
    return tmp_path


def line_for(path: tuple[str, ...], parameter: Any, value: str) -> list[str]:  # noqa: ANN401
    """A command line in which only `parameter` is strange."""
    arguments = [
        value if argument.name == parameter.name else ARGUMENTS.get(argument.name, "x")
        for argument in COMMANDS[path].params
        if argument.param_type_name == "argument"
        and (argument.required or argument.name == parameter.name)
    ]
    options = [] if parameter.param_type_name == "argument" else [f"{parameter.opts[0]}={value}"]
    if path == ("produce",) and parameter.name != "timeout":
        options.append("--timeout=0.1")  # nobody is there who would take it
    return [*path, *options, "--", *arguments]


def status_of(line: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Run a command line in this process, as `main` does."""
    monkeypatch.setattr(sys, "argv", ["tandem", *line])
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]
    try:
        return command_end.status_of(APP)
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)


def values_of(case: int, config: pytest.Config) -> list[tuple[str, str]]:
    """A third of the values, another one for each option, and with the long tests all."""
    every = [*VALUES.items()]
    is_ordinary = config.getoption("markexpr") == "not long"
    return every[case % 3 :: 3] if is_ordinary else every


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", range(len(CASES)), ids=[f"{'-'.join(path)}-{each.name}" for path, each in CASES]
)
def test_any_value_of_any_option_is_answered_in_words(
    case: int,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    pytestconfig: pytest.Config,
) -> None:
    path, parameter = CASES[case]
    for name, value in values_of(case, pytestconfig):
        if (name, parameter.name) == ("zeros", "file"):
            continue  # it is read for ever, as by `cat`
        line = line_for(path, parameter, value.replace("DIR", str(directory)))
        line = [part.replace("DIR", str(directory)) for part in line]
        status = status_of(line, monkeypatch)
        out, err = capfd.readouterr()
        assert status in (0, 1, 2), (name, err)
        assert "Traceback" not in out + err, (name, err)
        assert "\x1b" not in out + err, (name, err)
        assert out + err, name
