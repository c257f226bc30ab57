"""What `tandem archive` prints, on a small archive; no Spark takes part."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tandem.cli.command_line import run_command_line
from tandem.spark.archive import table_note
from tests.support.archive_tables import TABLE, rows_of_manifest, rows_of_pyiceberg
from tests.support.small_archive import SmallArchive


class Done:
    """How a command ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


RunCli = Callable[..., Done]


@pytest.fixture
def tandem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    def run(*arguments: object) -> Done:
        monkeypatch.setattr("sys.argv", ["tandem", "archive", *map(str, arguments)])
        status = run_command_line()
        printed = capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return run


@pytest.mark.slow
def test_an_archive_is_kept_in_order(tandem: RunCli, tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    archive = small.archive_path
    rows = rows_of_manifest(small.manifest)
    state = msgspec.json.decode(tandem("status", archive, "--format", "json").out)
    assert (state["name"], state["rows"]) == (TABLE, len(rows))
    assert state["ends"] == {"broker-a": small.manifest.end_of("broker-a")}
    assert small.manifest.units[-1].name in tandem("status", archive).out
    assert "orders" in tandem("merge", archive).out
    assert "nothing to merge" in tandem("merge", archive).err
    done = msgspec.json.decode(tandem("expire", archive, "--keep", "0s", "--format", "json").out)
    assert (len(done["snapshot_ids"]), done["left"]) == (state["snapshots"] + 1, 1)
    done = msgspec.json.decode(tandem("clean", archive, "--keep", "0s", "--format", "json").out)
    assert done["files"]
    again = msgspec.json.decode(tandem("clean", archive, "--keep", "0s", "--format", "json").out)
    assert again["files"] == []
    assert tandem("rebuild", archive).status == 0
    assert rows_of_pyiceberg(archive) == rows


@pytest.mark.slow
def test_a_topic_as_of_a_place_is_counted(tandem: RunCli, tmp_path: Path) -> None:
    small = SmallArchive(tmp_path).archive(table=TABLE)
    end = small.unit().end
    line = ("as-of", small.archive_path, "orders", "--offset", f"broker-a={end}")
    found = msgspec.json.decode(tandem(*line, "--format", "json").out)
    wanted = [row for row in rows_of_manifest(small.manifest) if row[0] == "orders"]
    assert found["rows"] == sum(row[4] < end for row in wanted)
    line = ("as-of", small.archive_path, "orders", "--time", "2100-01-01T00:00:00Z")
    assert msgspec.json.decode(tandem(*line, "--format", "json").out)["rows"] == len(wanted)


@pytest.mark.parametrize(
    "arguments",
    [
        ("as-of", "a", "orders"),
        ("as-of", "a", "orders", "--offset", "broker-a"),
        ("as-of", "a", "orders", "--offset", "broker-a=x"),
        ("as-of", "a", "orders", "--offset", "b=1", "--time", "-1h"),
        ("as-of", "a", "orders", "--time", "soon"),
        ("expire", "a", "--keep", "long"),
        ("expire", "a", "--last", "0"),
    ],
)
def test_a_wrong_line_does_nothing(tandem: RunCli, arguments: tuple[str, ...]) -> None:
    assert tandem(*arguments).status == 2


@pytest.mark.parametrize("verb", ["status", "merge", "expire", "clean", "rebuild"])
def test_what_is_no_archive_is_said(tandem: RunCli, tmp_path: Path, verb: str) -> None:
    done = tandem(verb, tmp_path / "none")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"error: {tmp_path}/none is no archive")
    assert not (tmp_path / "none").exists()


def test_without_the_packages_it_says_what_to_install(
    tandem: RunCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_note, "find_spec", lambda _: None)
    done = tandem("status", tmp_path)
    assert done.status == 2
    assert "tandem-mq[iceberg]" in done.err
