from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from tandem.drill import session
from tandem.drill.errors import BadOptionsError, BadScenarioError, DrillError, first_of
from tandem.drill.options import RATE_PER_SECOND_DEFAULT, DrillOptions
from tandem.drill.orders import FileLines, Orders
from tandem.drill.outcomes import EXIT_BROKEN, EXIT_NOT_POSSIBLE
from tandem.drill.plan import Plan, TargetFacts
from tandem.drill.recording import Recording
from tandem.drill.scenario import NOT_POSSIBLE, ScenarioRun
from tandem.drill.session import RATE_PER_SECOND_AUTOMATIC_MAX
from tandem.drill.small_disks import Disks
from tandem.testing import write_cluster_file
from tests.tandem.drill import samples
from tests.tandem.drill.targets.process_samples import document, write
from tests.tandem.drill.targets.rocketmq_samples import jars_in


def lines_file(directory: Path, count: int) -> Path:
    path = directory / "lines.txt"
    path.write_bytes(b"a line\n" * count)
    return path


def test_orders_are_sent_unless_a_file_is_given(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert isinstance(session._source(DrillOptions(), 100, stack), Orders)
        options = DrillOptions(input_file=lines_file(tmp_path, 3))
        assert isinstance(session._source(options, 100, stack), FileLines)
        with pytest.raises(BadOptionsError):
            session._source(options, 2, stack)


@pytest.mark.parametrize(
    ("lines", "asked", "rate"),
    [
        (10, None, RATE_PER_SECOND_DEFAULT),
        (50_000, None, 50_000 / (40 * 0.7)),
        (500_000, None, RATE_PER_SECOND_AUTOMATIC_MAX),
        (500_000, 123.0, 123.0),
    ],
)
def test_the_rate_grows_with_the_input_unless_it_is_given(
    tmp_path: Path, lines: int, asked: float | None, rate: float
) -> None:
    path = lines_file(tmp_path, lines)
    with FileLines(path, line_bytes_max=100) as source:
        options = DrillOptions(input_file=path, rate_per_second=asked)
        assert session._rate(options, source, 2) == pytest.approx(rate)


def test_logs_stay_and_data_goes(tmp_path: Path) -> None:
    (tmp_path / "data" / "logs").mkdir(parents=True)
    (tmp_path / "data" / "logs" / "broker-a-0.log").touch()
    (tmp_path / "data" / "broker-a-0").mkdir()

    assert session._tidy(tmp_path, keep_data=False) is None

    assert {path.name for path in tmp_path.iterdir()} == {"logs"}
    assert (tmp_path / "logs" / "broker-a-0.log").exists()


def test_data_stays_as_evidence_if_asked(tmp_path: Path) -> None:
    (tmp_path / "data" / "broker-a-0").mkdir(parents=True)

    assert session._tidy(tmp_path, keep_data=True) == tmp_path / "data"
    assert (tmp_path / "data" / "broker-a-0").exists()


def test_nothing_to_tidy_is_fine(tmp_path: Path) -> None:
    assert session._tidy(tmp_path, keep_data=True) is None
    assert session._tidy(tmp_path, keep_data=False) is None


def test_of_nested_groups_of_errors_one_is_told() -> None:
    told = DrillError("the one")

    nested: Any = ExceptionGroup("", [ExceptionGroup("", [told])])
    assert first_of(nested) is told


def test_a_directory_in_which_no_node_had_its_store_is_not_said_to_be_kept(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert session._tidy(tmp_path, keep_data=True) is None
    assert not (tmp_path / "data").exists()


class Unplayed:
    """A target that is never asked for anything: the play is made up."""

    name = "processes"


def held_with(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    no_audit: str = "",
    notes: str = "",
    runs: Sequence[ScenarioRun] = (),
) -> tuple[int, dict[str, Any]]:
    """Hold a drill whose play sees nothing but this; return its status and its summary."""

    async def play(plan: Plan, target: object, recording: Recording, *others: object) -> None:
        await trio.lowlevel.checkpoint()
        recording.timeline.start_phase(0.0, "kill", "start")
        recording.no_audit = no_audit
        recording.runs += runs
        recording.notes.append(notes)
        recording.ended_at = recording.clock.now()
        recording.timeline.end_phase(recording.ended_at)

    monkeypatch.setattr(session, "play", play)
    monkeypatch.setattr(session, "write_report", lambda *_: directory / "index.html")
    plan = msgspec.structs.replace(samples.plan(), out=directory)
    target: Any = Unplayed()
    drill = session._Drill(plan, target, Orders(1), {"broker-a": Disks({})})
    status = trio.run(drill.run)
    summary = msgspec.to_builtins(drill._summarise(samples.recording()))
    return status, summary


def test_stores_that_could_not_be_had_fail_a_drill_and_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, summary = held_with(tmp_path, monkeypatch, no_audit="fetch: no route to broker-a-7")

    assert status == EXIT_BROKEN
    assert "broker-a-7" in summary["stopped_because"]
    assert "broker-a-7" in capsys.readouterr().out
    assert (tmp_path / "ledger.parquet").exists()


def test_what_could_not_be_put_back_is_said_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "not put back: [bold]broker-a-7[/bold]"
    held_with(tmp_path, monkeypatch, no_audit="x", notes=note)

    assert note in capsys.readouterr().err


def test_what_could_not_be_put_back_is_said_even_if_the_drill_could_not_be_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def play(plan: Plan, target: object, recording: Recording, *others: object) -> None:
        await trio.lowlevel.checkpoint()
        recording.notes.append("look after broker-a-7")
        raise DrillError("x")

    monkeypatch.setattr(session, "play", play)
    plan = msgspec.structs.replace(samples.plan(), out=tmp_path)
    target: Any = Unplayed()
    with pytest.raises(DrillError):
        trio.run(session._Drill(plan, target, Orders(1), {"broker-a": Disks({})}).run)

    assert "look after broker-a-7" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["disabled", "enforcing"])
def test_a_witness_is_refused_where_there_is_tls_before_anything_is_started(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars_in(tmp_path, "5.3.3", "rocketmq-client")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    options = DrillOptions(
        config=write_cluster_file(tmp_path, 2, {"tls": {"mode": mode}}),
        out=tmp_path / "report",
        witness="java",
        rocketmq=str(tmp_path),
    )
    with ExitStack() as stack:
        if mode == "disabled":
            assert session._prepared(options, stack)._plan.witness is not None
        else:
            with pytest.raises(BadOptionsError):
                session._prepared(options, stack)


@pytest.mark.parametrize("option", [{"witness": "java"}, {"spark_stream": True}])
def test_what_signs_nothing_is_refused_where_there_are_users(
    option: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "witness_of", lambda options: options.witness and "a witness")
    monkeypatch.setattr(session, "java_for_spark", lambda *_: None)
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    file = write(tmp_path, document(access_key="me", secret_key_file="secret"))
    options = DrillOptions(target="processes", file=file, out=tmp_path / "report", **option)
    with ExitStack() as stack, pytest.raises(BadOptionsError):
        session._prepared(options, stack)


def test_machines_are_made_for_scenarios_that_can_be_played_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Path, bool]] = []
    monkeypatch.setattr(
        session, "machines", lambda directory, stores, *, keeps: made.append((directory, keeps))
    )
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    file = write(tmp_path, document(kind="fenced"))
    for options in (
        DrillOptions(config=config, scenarios=("master-kill",)),
        DrillOptions(target="processes", file=file, scenarios=("clock-jump",)),
        DrillOptions(config=config, scenarios=("clock-jump",)),
        DrillOptions(config=config, scenarios=("clock-jump", "power-cut-master")),
    ):
        given = msgspec.structs.replace(options, out=tmp_path / "report")
        with ExitStack() as stack:
            session._prepared(given, stack)
    place = tmp_path / "report" / "data" / "machines"
    assert made == [(place, False), (place, True)], "what is synced is kept where power is cut"


def test_a_node_that_there_is_not_is_named_before_anything_starts(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("promise: None.\nseconds: 20\nsteps: [start the load, kill broker-z-9]\n")
    config = write_cluster_file(tmp_path, 2, {}, kind="fenced")
    options = DrillOptions(config=config, scenarios=(str(scenario),), out=tmp_path / "report")
    with ExitStack() as stack, pytest.raises(BadScenarioError, match="broker-z-9"):
        session._prepared(options, stack)


def test_of_scenarios_that_could_not_be_begun_there_is_nothing_to_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store of a broker that nobody has sent to has no log in it."""
    impossible = msgspec.structs.replace(samples.RUN, outcome=f"{NOT_POSSIBLE}: no such fault")

    status, _ = held_with(tmp_path, monkeypatch, runs=[impossible])

    assert status == EXIT_NOT_POSSIBLE


def test_logs_of_a_cluster_that_was_there_before_may_start_anywhere_up_to_the_drill() -> None:
    plan = samples.plan()
    recording = samples.recording()
    assert session._since(plan, recording) == 0
    deployed = msgspec.structs.replace(plan, target=TargetFacts(has_past=True))
    assert session._since(deployed, recording) == 0, "nobody has said where that was"
    recording.replication.sampled(1.0, 4_096, [])
    assert session._since(deployed, recording) == 4_096
    assert session._since(plan, recording) == 0
