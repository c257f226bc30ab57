"""The modules that Spark finds by their names."""

import subprocess
import sys
from pkgutil import iter_modules

import pytest

from tandem.spark.commitlog.registered import RegisteredCommitLog
from tandem.spark.package import DISCOVERED
from tandem.spark.source import TandemDataSource
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
    sources = (RegisteredCommitLog, TandemDataSource)
    assert names == {f"pyspark_{source.name()}" for source in sources}
    assert {f"{name}.py" for name in names} == set(DISCOVERED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["commitlog", "tandem"])
def test_a_module_has_a_class_or_none_but_never_fails(name: str) -> None:
    ask = f"import pyspark_{name} as m; "
    assert run(f"{ask} print(m.DefaultSource.name())") == name
    for missing in ("pyarrow", "pyspark"):
        run(f"sys.modules[{missing!r}] = None; {ask}")
