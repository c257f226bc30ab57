import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tandem.spark.commitlog.registered import RegisteredCommitLog
from tandem.spark.commitlog.source import SCHEMA, CommitLogReader, CommitLogStreamReader
from tests.support.log_builder import LogBuilder


def test_it_asks_the_source(tmp_path: Path) -> None:
    log = LogBuilder()
    log.put(topic="orders")
    source = RegisteredCommitLog({"path": str(log.write(tmp_path))})
    assert source.name() == "commitlog"
    assert source.schema() == SCHEMA
    assert isinstance(source.reader(SCHEMA), CommitLogReader)
    assert isinstance(source.streamReader(SCHEMA), CommitLogStreamReader)


@pytest.mark.slow
def test_a_start_of_a_session_imports_neither_arrow_nor_a_client() -> None:
    program = (
        "import pyspark.sql, sys; before = set(sys.modules);"
        " import tandem.spark.session;"
        " print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "tandem.spark.commitlog.registered" in loaded
    assert not {each for each in loaded if each.startswith(("pyarrow", "numpy", "tandem.client"))}
