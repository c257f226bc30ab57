import json
import sys
from pathlib import Path

import pytest
import trio
import typer

from tandem.cli.group_view import Switch
from tandem.cli.output import (
    access_of,
    exit_status,
    expected_errors,
    human_bytes,
    json_bytes,
    run,
    say_error,
)
from tandem.client.errors import RouteCause, RouteNotFoundError
from tandem.cluster import ClusterConfigError, NotRunningError, UnknownNodeError
from tandem.drill.errors import BadOptionsError, MissingRequirementError, Requirement
from tandem.plain_text import plain


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (312 * 1024 * 1024, "312.0 MiB"),
        (5 * 1024**4, "5.0 TiB"),
        (5000 * 1024**4, "5000.0 TiB"),
    ],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ClusterConfigError("cluster.yaml:1: ..."), 2),
        (UnknownNodeError("z", ["a"]), 2),
        (BadOptionsError("--rate 0: ..."), 2),
        (RouteNotFoundError("orders", RouteCause.NO_NAME_SERVER, "nobody answers"), 1),
        (NotRunningError(Path("cluster.yaml")), 1),
        (MissingRequirementError("no Java", Requirement.JAVA), 1),
    ],
)
def test_what_the_user_wrote_wrong_is_2_and_the_rest_is_1(error: Exception, status: int) -> None:
    assert isinstance(error, expected_errors())
    assert exit_status(error) == status


def test_named_servers_need_no_cluster_file() -> None:
    access = access_of(["10.0.0.1:9876"], None)
    assert access.addresses == ("10.0.0.1:9876",)


def test_named_servers_may_be_one_text_as_for_tools_of_rocketmq() -> None:
    access = access_of(["10.0.0.1:9876;10.0.0.2:9876", "10.0.0.3:9876"], None)
    assert access.addresses == ("10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876")
    with pytest.raises(typer.BadParameter):
        access_of(["10.0.0.1:9876;10.0.0.2"], None)


def test_the_environment_says_which_signatures_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert access_of(["10.0.0.1:9876"], None).signatures == "replay_proof"
    monkeypatch.setenv("TANDEM_SIGNATURES", "any")
    assert access_of(["10.0.0.1:9876"], None).signatures == "any"
    monkeypatch.setenv("TANDEM_SIGNATURES", "none")
    with pytest.raises(typer.BadParameter):
        access_of(["10.0.0.1:9876"], None)


async def fail_inside_nurseries(*errors: BaseException) -> None:
    async def fail(error: BaseException) -> None:
        raise error

    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        for error in errors:
            inner.start_soon(fail, error)
        outer.start_soon(trio.sleep_forever)


def test_an_expected_error_comes_out_of_its_groups() -> None:
    with pytest.raises(RouteNotFoundError):
        run(
            fail_inside_nurseries,
            RouteNotFoundError("orders", RouteCause.NO_NAME_SERVER, "nobody answers"),
        )


def test_an_interrupt_is_an_interrupt_whatever_came_with_it() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(fail_inside_nurseries, KeyboardInterrupt())


def test_a_bug_keeps_its_groups() -> None:
    with pytest.raises(ExceptionGroup):
        run(fail_inside_nurseries, ZeroDivisionError())


def test_a_result_comes_back() -> None:
    async def answer(number: int) -> int:
        return number

    assert run(answer, 42) == 42


def test_an_expected_error_without_a_group_stays_as_it_is() -> None:
    async def fail() -> None:
        raise RouteNotFoundError("orders", RouteCause.NO_NAME_SERVER, "nobody answers")

    with pytest.raises(RouteNotFoundError):
        run(fail)


@pytest.mark.parametrize(
    ("environment", "is_red"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, False)],
)
def test_an_error_is_red_only_where_that_is_wanted(
    environment: dict[str, str],
    *,
    is_red: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    say_error("no")
    assert capsys.readouterr().err == ("\x1b[31merror: no\x1b[0m\n" if is_red else "error: no\n")


def test_json_of_what_is_not_utf_8_spells_it_out_as_text_does() -> None:
    name = "d\udcff\u00fc\U0001f600"
    shown = "d\\udcff\u00fc\U0001f600"
    assert plain(name) == shown
    value = {"a": [Switch(name, 7, "b")], name: (name, 1, None, True)}
    assert json.loads(json_bytes(value)) == {
        "a": [{"reason": shown, "at_ms": 7, "previous_master": "b", "cause": ""}],
        shown: [shown, 1, None, True],
    }
    assert json.loads(json_bytes({"a": "\x1b\u202e"})) == {"a": "\x1b\u202e"}
