"""The examples that need no cluster. Those that do: tests/tandem/client/test_real_cluster.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import GOLDEN, ROOT
from tests.support.processes import ENVIRONMENT, run_example

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
        "pipeline.py", str(tmp_path / "pipeline"), "10000", seconds=PIPELINE_SECONDS
    )
    assert lines[-1] == "all counts are equal"
