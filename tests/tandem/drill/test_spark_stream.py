"""The drill's side of a stream, with a small program in the place of Spark's."""

from pathlib import Path

import msgspec
import pytest
import trio

from tandem.cluster_file.choices import GroupKind
from tandem.drill import spark_stream
from tandem.drill.errors import AuditError, StreamStartError
from tandem.drill.recording import Recording
from tandem.drill.scenario import UnmetError
from tandem.drill.spark_stream import audit_output, finish, order_of, streaming
from tandem.drill.stream_program import StreamOrder
from tandem.drill.workload import Clock
from tests.support.patience import PATIENCE_SECONDS
from tests.tandem.drill import samples
from tests.tandem.drill.fake_world import World

pytestmark = pytest.mark.slow

ORDER = StreamOrder(
    name_servers="127.0.0.1:9876", topic="t", output="o", checkpoint="c", scratch="s"
)
OBEDIENT = """
import sys
print('{"state":"ready"}\\nnoise of a library\\n{"state":"running","batches":3}', flush=True)
sys.stderr.write("what Java says\\n")
if sys.stdin.readline() == "finish\\n":
    print('{"state":"done","batches":4}', flush=True)
"""
DYING = """
import sys
print('{"state":"ready"}', flush=True)
sys.stdin.readline()
sys.exit(7)
"""
FAILING = """
print('{"state":"failed","reason":"no such topic"}', flush=True)
"""
SILENT = """
import time
time.sleep(1000)
"""


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(spark_stream, "PROGRAM", ("-c", text))


@pytest.fixture
async def world() -> World:
    found = World(is_fenced=True)
    found.timeline.start_phase(0.0, "master-kill", "drain")
    return found


async def test_a_stream_that_reads_everything_is_an_expectation_that_held(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, OBEDIENT)
    with trio.fail_after(PATIENCE_SECONDS):
        async with streaming(ORDER, tmp_path / "logs" / "stream.log") as stream:
            await stream.reached("running")
            assert stream.seen().text == "3 batches so far"
            await finish(stream, world.stage)
    (noted,) = world.stage.expectations
    assert (noted.expected, noted.seen, noted.held) == (
        "the Spark stream has read everything",
        "4 batches",
        True,
    )
    assert (tmp_path / "logs" / "stream.log").read_text() == "what Java says\n"


async def test_a_stream_that_ends_by_itself_is_an_expectation_that_did_not_hold(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, DYING)
    with trio.fail_after(PATIENCE_SECONDS):
        async with streaming(ORDER, tmp_path / "stream.log") as stream:
            with pytest.raises(UnmetError):
                await finish(stream, world.stage)
    assert world.stage.expectations[0].seen == "it failed: its process ended with status 7"


async def test_a_stream_that_cannot_start_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, FAILING)
    with pytest.RaisesGroup(
        pytest.RaisesExc(StreamStartError, match="stream did not start: no such topic")
    ) as caught:
        async with streaming(ORDER, tmp_path / "stream.log"):
            pass
    (error,) = caught.value.exceptions
    assert isinstance(error, StreamStartError)
    assert error.reason == "no such topic"


async def test_one_that_is_not_ready_in_time_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, SILENT)
    monkeypatch.setattr(spark_stream, "READY_SECONDS_MAX", 0.2)
    monkeypatch.setattr(spark_stream, "END_SECONDS_MAX", 0.2)
    with pytest.RaisesGroup(StreamStartError) as caught:
        async with streaming(ORDER, tmp_path / "stream.log"):
            pass
    (error,) = caught.value.exceptions
    assert isinstance(error, StreamStartError)
    assert error.reason == ""


async def test_a_drill_that_is_cut_short_takes_the_stream_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(monkeypatch, OBEDIENT)
    with trio.CancelScope() as scope:
        async with streaming(ORDER, tmp_path / "stream.log") as stream:
            scope.cancel()
            await trio.sleep_forever()
    assert stream.has_ended


def test_it_streams_the_topic_of_the_drill_into_its_report(tmp_path: Path) -> None:
    plan = samples.plan(kind=GroupKind.FENCED)
    order = order_of(plan, "tandem-drill")
    assert order.topic == "tandem-drill"
    assert order.output == str(plan.out / "stream")
    assert order.checkpoint.startswith(str(plan.out / "data"))
    assert order.name_servers.split(";") == plan.name_servers


def test_output_that_cannot_be_judged_is_an_error_of_the_audit(tmp_path: Path) -> None:
    stores = {node: tmp_path / node for node in ("broker-a-0", "broker-a-1", "broker-a-2")}
    plan = msgspec.structs.replace(samples.plan(kind=GroupKind.FENCED), stores=stores)
    recording = Recording(Clock(0.0, 0.0), plan.group)
    with pytest.raises(AuditError):
        audit_output(plan, recording, "tandem-drill")
