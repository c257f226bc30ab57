"""The examples that need no cluster. Those that do: tests/tandem/client/test_real_cluster.py."""

import importlib.util
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.paths import GOLDEN, ROOT
from tests.support.processes import ENVIRONMENT, run_example

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPELINE_SECONDS = 1_500
"""More than twice what the example itself waits for its stream: it is the one to say what has not
come."""


@pytest.mark.slow
def test_a_store_of_rocketmq_is_looked_into() -> None:
    assert run_example("look_into_store.py", str(GOLDEN / "basic"), "TopicA", "U1") == [
        "TopicA queue 1: 3 messages",
        "queue 1, offset 1, at byte 136: hello1",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["look_into_store.py", "spark_batch.py"])
def test_an_example_without_its_store_says_how_it_is_used(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "examples" / name],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"python examples/{name} data/broker-a-0" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(2 * PIPELINE_SECONDS)
def test_the_pipeline_ends_with_equal_counts(tmp_path: Path) -> None:
    lines = run_example(
        "pipeline.py",
        str(tmp_path / "pipeline"),
        "10000",
        seconds=PIPELINE_SECONDS,
        is_quiet=True,
    )
    assert lines[-1] == "all counts are equal"
    assert any(line.startswith("killed the master") for line in lines)
    # Not after its end: that would say "(it was done)".
    assert "killed the driver of the archive job" in [line.rstrip() for line in lines]
    (table,) = [line for line in lines if "orders in the table by DuckDB" in line]
    in_table, at_brokers = re.findall(r"([\d,]+) (?:orders in|at the)", table)
    assert in_table == at_brokers != "0"


class AQuery:
    """A stream that has failed, or not."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.is_stopped = False

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_of_the_pipeline_that_fails_is_started_until_it_runs_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    example = load_example("pipeline")
    (tmp_path / "rows/_spark_metadata").mkdir(parents=True)
    (tmp_path / "rows/_spark_metadata/0").touch()
    runs = AQuery(None)
    starts: Iterator[OSError | AQuery] = iter([OSError("no worker"), OSError("still none"), runs])
    orders = iter([3, 5])

    def started(*_: object) -> AQuery:
        made = next(starts)
        if isinstance(made, OSError):
            raise made
        return made

    monkeypatch.setattr(example, "stream_into_parquet", started)
    monkeypatch.setattr(example, "written", lambda *_: "rows")
    monkeypatch.setattr(example, "orders_of", lambda _: next(orders))
    monkeypatch.setattr(example.time, "sleep", lambda _: None)
    failed = AQuery(RuntimeError("a worker was given up\nat java"))
    assert example.rows_of_stream(None, None, failed, tmp_path, 5) == "rows"
    assert runs.is_stopped
    assert next(starts, None) is None
    assert next(orders, None) is None


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_of_the_pipeline_that_cannot_be_started_ends_with_its_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    example = load_example("pipeline")

    def fails(*_: object) -> None:
        raise OSError("no worker")

    monkeypatch.setattr(example, "stream_into_parquet", fails)
    with pytest.raises(OSError, match="no worker"):
        example.stream_again(None, None, tmp_path, time.monotonic())


def load_example(name: str) -> Any:  # noqa: ANN401 - a module
    """Import a program of `examples/`, which does not run it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"examples/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
