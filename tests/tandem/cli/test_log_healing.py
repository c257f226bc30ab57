"""`tandem log repair --from`: what a person sees."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.command_line import app
from tests.tandem.log.vectors import log_file, our_store, overwrite

pytestmark = pytest.mark.slow


def repair(*arguments: object) -> Result:
    line = ["log", "repair", *map(str, arguments)]
    return CliRunner().invoke(app, line, catch_exceptions=False, prog_name="tandem")


def two_copies(folder: Path) -> tuple[Path, Path]:
    ours = our_store(folder)
    return ours, Path(shutil.copytree(ours, folder / "copy"))


def test_a_dry_run_says_what_it_would_take_over_and_changes_nothing(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    assert repair(ours, "--from", copy).stdout == (
        "the log is whole as far as its copy can show\nnothing else to repair\n"
    )
    overwrite(log_file(ours), 300, b"\xff")
    before = log_file(ours).read_bytes()
    done = repair(ours, "--from", copy)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"would take over offsets 0 to 417 of {log_file(ours)} from")
    assert lines[-1] == "dry run: nothing was changed; add --write to do it"
    assert log_file(ours).read_bytes() == before


def test_a_written_one_ends_with_a_sound_store(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    overwrite(log_file(ours), 300, b"\xff")
    shutil.rmtree(ours / "consumequeue")
    done = repair(ours, "--from", copy, "--write")
    assert done.exit_code == 0, done.output
    assert "healed: 417 bytes in 1 files of the log" in done.stdout
    assert "kept: " in done.stdout
    assert "sound" in done.stdout
    assert log_file(ours).read_bytes() == log_file(copy).read_bytes()


def test_programs_get_records(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    overwrite(log_file(ours), 300, b"\xff")
    dry = json.loads(repair(ours, "--from", copy, "--format", "json").stdout)
    assert (dry["refusal"], dry["left"], dry["done"]) == ("", [], None)
    assert len(dry["steps"]) == 1


def test_what_cannot_be_healed_is_said_and_fails(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    for root in (ours, copy):
        overwrite(log_file(root), 300, b"\xff")
    done = repair(ours, "--from", copy, "--write")
    assert done.exit_code == 1
    assert "offset 0 is bad here, and in" in done.stderr
    overwrite(log_file(ours), 300, b"\x00")
    overwrite(log_file(ours), 44, b"\x77")
    assert repair(ours, "--from", tmp_path / "nowhere").exit_code == 2
    assert repair(ours, "--with-older").exit_code == 2
