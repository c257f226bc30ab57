import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from tandem.spark import package
from tandem.spark.errors import PackageError
from tandem.spark.package import own_files, required_distributions, write_package


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "tandem.zip"
    assert write_package(path) == path.stat().st_size
    return path


def test_a_zip_has_our_modules_and_nothing_compiled(zipped: Path) -> None:
    with zipfile.ZipFile(zipped) as archive:
        names = set(archive.namelist())
    assert {"tandem/__init__.py", "tandem/spark/commitlog/source.py", "tandem/py.typed"} <= names
    assert "pyspark_commitlog.py" in names
    assert not [name for name in names if "__pycache__" in name]
    assert {name.partition("/")[0] for name in names if "/" in name} == {"tandem"}


def test_the_same_files_make_the_same_zip(zipped: Path, tmp_path: Path) -> None:
    write_package(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == zipped.read_bytes()


@pytest.mark.slow
def test_a_python_without_this_checkout_imports_the_source_from_a_zip(zipped: Path) -> None:
    there = "import tandem.spark.commitlog.source as s; print(s.__file__)"
    elsewhere = [path for path in sys.path if "site-packages" in path]
    program = f"import sys; sys.path[:0] = {[str(zipped), *elsewhere]!r}; {there}"
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(zipped))


def test_what_is_required_is_found_with_what_that_requires_and_without_spark() -> None:
    names = {str(found.metadata["Name"]).lower() for found in required_distributions()}
    assert {"numpy", "pyarrow", "msgspec", "anyio", "isal", "attrs"} <= names
    assert not names & {"pyspark", "py4j", "tandem-mq", "pytest", "matplotlib"}


def test_an_archive_has_what_is_required_where_it_is_imported_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [each for each in required_distributions() if each.metadata["Name"] == "outcome"]
    monkeypatch.setattr(package, "required_distributions", lambda: small)
    write_package(tmp_path / "tandem.tar.gz")
    with tarfile.open(tmp_path / "tandem.tar.gz") as archive:
        names = archive.getnames()
    assert {"outcome/__init__.py", "tandem/__init__.py", "pyspark_commitlog.py"} <= set(names)
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith((".", "/"))]


def test_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"tandem\.tar ends in neither \.zip nor \.tar\.gz"):
        write_package(tmp_path / "tandem.tar")


def test_what_is_missing_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = distribution

    def without_pyarrow(name: str) -> object:
        if name == "pyarrow":
            raise PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(package, "distribution", without_pyarrow)
    with pytest.raises(PackageError, match=r"pyarrow is missing: pip install 'tandem-mq\[spark\]'"):
        required_distributions()


def test_what_is_optional_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = distribution

    def without_isal(name: str) -> object:
        if name == "isal":
            raise PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(package, "distribution", without_isal)
    assert "isal" not in {each.metadata["Name"] for each in required_distributions()}


def test_our_own_files_are_each_there_once() -> None:
    names = [name for name, _ in own_files()]
    assert len(names) == len(set(names)) > 100
