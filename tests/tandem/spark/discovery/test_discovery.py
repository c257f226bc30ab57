"""The modules that Spark finds by their names."""

import subprocess
import sys
from pkgutil import iter_modules

import pytest

from tandem.spark.commitlog.source import CommitLogDataSource
from tests.support.paths import ROOT

FOLDER = ROOT / "tandem/spark/discovery"


def run(program: str) -> str:
    begin = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); "
    done = subprocess.run(
        [sys.executable, "-c", begin + program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_each_module_has_the_source_it_is_named_after() -> None:
    names = {info.name for info in iter_modules([str(FOLDER)])}
    assert "pyspark_commitlog" in names
    assert CommitLogDataSource.name() == "commitlog"


@pytest.mark.slow
def test_a_module_has_a_class_or_none_but_never_fails() -> None:
    ask = "import pyspark_commitlog as m; print(m.DefaultSource.name())"
    assert run(ask) == "commitlog"
    without = "sys.modules['pyarrow'] = None; import pyspark_commitlog as m; "
    assert run(without + "print(hasattr(m, 'DefaultSource'))") == "False"
