import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tandem.drill import command, keeping, session
from tandem.drill.command import DEFECT_NAME, compared, history_of, listed, run_drill
from tandem.drill.errors import (
    BadOptionsError,
    MissingRequirementError,
    NoScenarioError,
    NotReadyError,
    Requirement,
    TargetError,
)
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import (
    EXIT_DEFECT,
    EXIT_INTERRUPTED,
    EXIT_NOT_RUN,
    EXIT_STATUSES,
)
from tandem.drill.preflight import claimed
from tandem.drill.scenario_file import catalogue, find_scenario
from tandem.drill.summary import Summary
from tandem.testing import write_cluster_file
from tests.faults.drills import signals_as_before
from tests.support.paths import ROOT
from tests.tandem.drill import samples
from tests.tandem.drill.targets.process_samples import document, write


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    with signals_as_before():
        yield


def plant(monkeypatch: pytest.MonkeyPatch, summary: Summary) -> None:
    """Let every drill come to that, without a cluster."""

    def hold(options: DrillOptions) -> int:
        sys.stdout.write("a verdict of a drill\n")
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "summary.json").write_bytes(msgspec.json.encode(summary))
        return EXIT_STATUSES[summary.verdict]

    monkeypatch.setattr(session, "hold", hold)


@pytest.mark.parametrize("status", [0, 1, 3, 130])
def test_the_exit_status_is_that_of_the_drill(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summaries = [
        samples.summary(),
        samples.summary(found=samples.audit(sync_lost=1)),
        samples.inconclusive(),
        samples.summary(interrupted=True),
    ]
    (summary,) = (each for each in summaries if EXIT_STATUSES[each.verdict] == status)
    plant(monkeypatch, summary)

    assert run_drill(DrillOptions(out=tmp_path)) == status
    assert (tmp_path / "junit.xml").exists()
    assert (tmp_path / "summary.md").exists()


def test_a_drill_is_added_to_the_history_and_two_are_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    history = tmp_path / "drill"
    plant(monkeypatch, samples.summary())
    assert run_drill(DrillOptions(out=tmp_path / "a", history=history, label="one")) == 0
    plant(monkeypatch, samples.summary(found=samples.audit(sync_lost=1)))
    assert run_drill(DrillOptions(out=tmp_path / "b", history=history, label="two")) == 1

    assert [run.label for run in history_of(history).runs] == ["one", "two"]
    by_number = compared("1", "2", history)
    assert {each.what for each in by_number if each.change == "worse"} == {"verdict", "sync_lost"}
    assert compared(str(tmp_path / "a"), str(tmp_path / "b"), history) == by_number


@pytest.mark.parametrize(("was_slow", "status"), [(True, 3), (False, 2)])
def test_a_cluster_that_does_not_get_ready_is_inconclusive_on_a_slow_machine_alone(
    was_slow: bool,  # noqa: FBT001 - a parameter of a test
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def hold(options: DrillOptions) -> int:
        raise NotReadyError("no topic", late_seconds=2.0, machine_was_slow=was_slow)

    monkeypatch.setattr(session, "hold", hold)
    assert run_drill(DrillOptions()) == status
    assert capsys.readouterr().err.startswith("error: no topic")


def test_a_history_that_cannot_be_written_is_said_before_the_drill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, samples.summary())
    (tmp_path / "file").touch()
    assert run_drill(DrillOptions(out=tmp_path / "a", history=tmp_path / "file")) == 2
    assert not (tmp_path / "a").exists()


def test_a_report_that_cannot_be_kept_hides_no_broken_promise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "junit.xml").mkdir()
    plant(monkeypatch, samples.summary(found=samples.audit(sync_lost=1)))
    assert run_drill(DrillOptions(out=tmp_path)) == 1
    plant(monkeypatch, samples.summary())
    assert run_drill(DrillOptions(out=tmp_path)) == 2
    assert capsys.readouterr().err.count("error: ") == 2


def test_an_interruption_after_the_verdict_hides_no_broken_promise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(keeping, "keep", interrupt)
    plant(monkeypatch, samples.summary(found=samples.audit(sync_lost=1)))
    assert run_drill(DrillOptions(out=tmp_path)) == 1
    plant(monkeypatch, samples.summary())
    assert run_drill(DrillOptions(out=tmp_path)) == 130


@pytest.mark.parametrize("as_json", [False, True])
def test_drills_of_chance_give_one_result(
    as_json: bool,  # noqa: FBT001 - a parameter of a test
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    plant(monkeypatch, samples.summary(found=samples.audit(sync_lost=1)))
    options = DrillOptions(
        config=write_cluster_file(tmp_path, 2, {}),
        out=tmp_path / "report",
        scenarios=("random",),
        minutes=1.0,
        seed=7,
        groups=2,
        json=as_json,
    )
    assert run_drill(options) == 1

    captured = capsysbinary.readouterr()
    if as_json:
        result = msgspec.json.decode(captured.out)
        assert (result["verdict"], result["seed"], result["faults"]) == ("FAILED", 7, 0)
    else:
        assert captured.out.startswith(b"FAILED: 1 episode,")
    assert captured.err.count(b"a verdict of a drill") == 2
    assert (tmp_path / "report/random-7-shortest.yaml").exists()


def test_what_ends_the_tasks_of_a_drill_together_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hold(options: DrillOptions) -> int:
        raise ExceptionGroup("", [ExceptionGroup("", [TargetError("a"), TargetError("b")])])

    monkeypatch.setattr(session, "hold", hold)
    assert run_drill(DrillOptions(out=tmp_path / "report")) == EXIT_NOT_RUN
    assert capsys.readouterr().err == "error: a\n"


def test_a_disk_that_is_full_is_no_mistake_of_the_drill(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hold(options: DrillOptions) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(options.out))

    monkeypatch.setattr(session, "hold", hold)
    assert run_drill(DrillOptions(out=tmp_path / "report")) == EXIT_NOT_RUN
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        MemoryError(),
        ExceptionGroup("several", [ExceptionGroup("more", [ValueError("a\nb")])]),
        BaseExceptionGroup("several", [SystemExit(1)]),
    ],
)
def test_a_mistake_of_the_drill_itself_is_no_broken_promise(
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def hold(options: DrillOptions) -> int:
        with claimed(options.out):
            raise error

    monkeypatch.setattr(session, "hold", hold)
    out = tmp_path / "report"

    assert run_drill(DrillOptions(out=out)) == EXIT_DEFECT

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(out / DEFECT_NAME) in said
    assert "Traceback" in (out / DEFECT_NAME).read_text()
    with claimed(out):
        assert not (out / DEFECT_NAME).exists(), "the next drill takes it away"


def test_a_mistake_before_there_is_a_report_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def hold(options: DrillOptions) -> int:
        raise KeyError("x")

    monkeypatch.setattr(session, "hold", hold)
    (tmp_path / "of-somebody").touch()
    assert run_drill(DrillOptions(out=tmp_path)) == EXIT_DEFECT
    assert "Traceback" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["of-somebody"]


class NobodyReads(io.StringIO):
    """A standard output whose reader has gone."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise BrokenPipeError

    def fileno(self) -> int:
        return self._number


def test_that_nobody_reads_the_output_changes_no_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant(monkeypatch, samples.summary())
    with (tmp_path / "output").open("w") as output:
        monkeypatch.setattr(sys, "stdout", NobodyReads(output.fileno()))
        assert run_drill(DrillOptions(out=tmp_path / "report")) == 0
        os.write(output.fileno(), b"the rest of a buffer")
    assert (tmp_path / "output").read_text() == ""


def test_an_interruption_among_other_errors_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hold(options: DrillOptions) -> int:
        raise BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError()])

    monkeypatch.setattr(session, "hold", hold)
    assert run_drill(DrillOptions(out=tmp_path)) == EXIT_INTERRUPTED


def test_each_status_is_one_of_those_that_the_page_documents() -> None:
    page = (ROOT / "docs" / "drill.md").read_text(encoding="utf-8")
    table = page.partition("## Exit status")[2].partition("\n\n")[2].partition("\n\n")[0]
    documented = [int(row.split("|")[1]) for row in table.splitlines()[2:]]
    others = {EXIT_NOT_RUN, EXIT_DEFECT}
    assert documented == sorted({*EXIT_STATUSES.values(), *others})


def test_drills_of_chance_are_not_repeated(tmp_path: Path) -> None:
    options = DrillOptions(out=tmp_path / "x", scenarios=("random",), repeat=2)
    assert run_drill(options) == 2
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_played_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_drill(DrillOptions(rate_per_second=-1)) == 2

    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: --rate -1: give sends a second above 0")


def test_a_missing_requirement_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*, spark: bool) -> None:
        raise MissingRequirementError(f"no pyspark ({spark})", Requirement.LIBRARIES)

    monkeypatch.setattr(command, "check_libraries", missing)

    assert run_drill(DrillOptions(spark=True)) == 2
    assert capsys.readouterr().err == "error: no pyspark (True)\n"


@pytest.mark.slow  # asks a node
def test_a_bad_cluster_file_is_told_in_the_words_of_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text("nodes: 7\n")

    assert run_drill(DrillOptions(config=config, out=tmp_path / "report")) == 2
    assert "cluster.yaml:1: nodes" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_load_is_an_interruption(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: DrillOptions) -> int:
        signal.raise_signal(number)
        return 0

    monkeypatch.setattr(session, "hold", interrupted)

    assert run_drill(DrillOptions()) == 130
    assert "interrupted" in capsys.readouterr().err


def test_the_list_explains_every_scenario() -> None:
    found = {each.name: each for each in listed()}

    assert set(found) == {scenario.name for scenario in catalogue()}
    assert all(each.promise for each in found.values())
    assert found["partition"].needs == ["fault proxy"]
    assert found["master-kill"].group == "fenced"


def test_the_list_of_a_deployed_cluster_is_for_its_kind(tmp_path: Path) -> None:
    file = write(tmp_path, document(kind="rocketmq-classic"))
    assert {each.name for each in listed("processes", file)} == {
        *("slave-loss", "master-loss", "freeze-and-resume")
    }
    with pytest.raises(BadOptionsError):
        listed("processes", tmp_path / "none.yaml")


def test_a_scenario_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(NoScenarioError, match=r"did you mean master-kill.*`tandem drill list`"):
        find_scenario("master-kil")
