"""`python -m node` without starting processes; `tests/faults` has the real ones."""

import gc
import json
from pathlib import Path

import pytest
import trio

from node.__main__ import (
    COLLECTOR_THRESHOLDS,
    _expected_error,
    _explained,
    _say_if_files_are_few,
    main,
)
from node.errors import ConfigError
from node.start_check import files_wanted
from store import CorruptLogError, StoreLockedError
from store.machine.errors import AddressInUseError, ConnectionLost, LogFault, TableFileError
from tests.node.world import cluster_config
from tests.support.logged import logged


def test_check_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster_config(tmp_path)
    assert main(["check", "--config", str(tmp_path / "cluster.yaml"), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [node["name"] for node in json.loads(out)["nodes"]] == ["a0", "a1", "a2"]


def test_check_says_of_each_node_whether_it_would_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_config(tmp_path)
    line = ["check", "--config", str(tmp_path / "cluster.yaml"), "--name", "a1"]
    # Its address is of no interface here: a start ends with 1, and so does this.
    assert main(line) == 1
    out, _ = capsys.readouterr()
    assert out.startswith("a1 would not start\n  refused (status 1): ports: ")
    assert main([*line, "--format", "findings"]) == 1
    found = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert {each["node"] for each in found} == {"a1"}


def test_check_has_to_be_told_which_node_where_none_is_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_config(tmp_path)
    assert main(["check", "--config", str(tmp_path / "cluster.yaml")]) == 2
    assert "--name" in capsys.readouterr().err


def test_check_reports_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--config", str(tmp_path / "none.yaml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "none.yaml: cannot be read" in err


def test_a_command_line_without_a_name_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--config", str(tmp_path / "cluster.yaml")])
    assert caught.value.code == 2
    assert "--name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError(["bad"]), 2),
        (AddressInUseError(host="127.0.0.1", port=10911), 3),
        (StoreLockedError("locked"), 4),
        (CorruptLogError("torn", path="x", fault=LogFault.LOST_END), 4),
        (TableFileError("damaged"), 4),
        (ConnectionLost("cannot listen"), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_status(error: Exception, status: int) -> None:
    assert _explained(error) == (status, str(error))


def test_an_expected_error_is_found_in_nested_groups() -> None:
    error = StoreLockedError("locked")
    group = ExceptionGroup("", [ExceptionGroup("", [error])])
    assert _expected_error(group) is error


def test_a_node_says_that_it_may_not_have_the_files_for_its_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _say_if_files_are_few(files_wanted(5_000), 5_000)
    assert logged(caplog, "node.__main__") == []
    _say_if_files_are_few(20_000, 5_000)
    ((files, connections, wanted, _),) = logged(caplog, "node.__main__")
    assert (files, connections, wanted) == (20_000, 5_000, files_wanted(5_000))


def test_a_bug_among_them_is_not_hidden() -> None:
    group = ExceptionGroup("", [StoreLockedError("locked"), KeyError("bug")])
    assert _expected_error(group) is None


def test_what_is_there_when_a_node_starts_is_no_work_for_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its full looks at modules and functions took 30 ms, in which nobody was served."""
    cluster_config(tmp_path)
    frozen: list[int] = []
    monkeypatch.setattr(trio, "run", lambda *_: frozen.append(gc.get_freeze_count()))
    monkeypatch.setattr("node.__main__.start_log", lambda *_: None)
    gc.unfreeze()
    before = gc.get_threshold()
    arguments = ["--config", str(tmp_path / "cluster.yaml"), "--name", "a0"]
    try:
        assert main(arguments) == 0
        assert frozen[0] > len(gc.get_objects())
        assert gc.get_threshold() == COLLECTOR_THRESHOLDS
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
