"""Which program is run, and from where. That it is: tests/test_package.py and all clusters."""

from pathlib import Path

import pytest

from tandem_server.__main__ import directory_of_programs, main, refusal_of


def test_programs_are_in_an_installed_package_and_beside_it_in_a_checkout(tmp_path: Path) -> None:
    package = tmp_path / "tandem_server"
    package.mkdir()
    assert directory_of_programs(package) == tmp_path
    (package / "node").mkdir()
    assert directory_of_programs(package) == package


@pytest.mark.parametrize("arguments", [[], ["ha"], ["--config", "cluster.yaml"]])
def test_what_is_no_program_is_answered_with_how_it_is_used(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tandem_server", *arguments])
    assert main() == 2
    assert "usage: python -P -m tandem_server {node,store}" in capsys.readouterr().err


def test_another_system_is_refused_in_words() -> None:
    assert refusal_of("linux") is None
    assert refusal_of("darwin") == "nodes run on Linux, and this is darwin\n"


def test_help_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tandem_server", "--help"])
    assert main() == 0
    assert "node check --config FILE" in capsys.readouterr().out
