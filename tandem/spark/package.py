"""Packs what workers of a cluster need, for Spark to carry there.

    *.zip       the pure Python of this package: for `--py-files`, `SparkContext.addPyFile` and
                `addArtifacts(..., pyfile=True)`. The workers' Python has `EXPECTED_OF_WORKERS`.
    *.tar.gz    that and the packages it needs, as installed here: for `--archives`. The workers'
                Python is of the same version, on the same kind of machine, with nothing but the
                standard library.

Neither has pyspark in it: a worker gets that from its Spark.
"""

import io
import re
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import tandem
from tandem.spark.errors import PackageError

DISTRIBUTION: Final = "tandem-mq"

EXTRAS: Final = ("spark", "fast", "compression", "avro")
"""Extras of ours whose packages go along where they are installed."""

BROUGHT_BY_SPARK: Final = frozenset({"pyspark", "py4j"})

EXPECTED_OF_WORKERS: Final = "pyarrow, numpy, msgspec, anyio and outcome"

ZIP_SUFFIX: Final = ".zip"
ARCHIVE_SUFFIX: Final = ".tar.gz"

DISCOVERED: Final = ("pyspark_commitlog.py", "pyspark_tandem.py")
"""Modules of `tandem.spark.discovery`. An installation has them beside this package instead."""

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_LEFT_OUT: Final = frozenset({"__pycache__", "tests", "test", "include"})


def write_package(path: Path) -> int:
    """Write the package that the name of `path` asks for; return its size in bytes.

    Raises:
        PackageError: the name ends in neither `.zip` nor `.tar.gz`, or something that is needed is
            not installed here.
        OSError: the file cannot be written.
    """
    if path.name.endswith(ZIP_SUFFIX):
        contents = dict(own_files())
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, file in sorted(contents.items()):
                archive.writestr(_plain(name), file.read_bytes())
    elif path.name.endswith(ARCHIVE_SUFFIX):
        contents = {**dict(required_files()), **dict(own_files())}
        with tarfile.open(path, "w:gz", compresslevel=3) as archive:
            for name, file in sorted(contents.items()):
                _add(archive, name, file)
    else:
        raise PackageError(f"{path.name} ends in neither {ZIP_SUFFIX} nor {ARCHIVE_SUFFIX}")
    return path.stat().st_size


def own_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of this package and where they go, and the modules that Spark discovers."""
    root = Path(tandem.__file__).parent
    for file in root.rglob("*"):
        is_ours = file.is_file() and not _is_left_out(file.relative_to(root))
        if is_ours and file.name not in DISCOVERED:
            yield f"tandem/{file.relative_to(root)}", file
    for name in DISCOVERED:
        for folder in (root / "spark/discovery", root.parent):
            if (folder / name).is_file():
                yield name, folder / name


def required_files() -> Iterator[tuple[str, Path]]:
    """Yield the files of all packages that ours needs, but for Spark's own.

    Raises:
        PackageError: one of them is not installed here.
    """
    for found in required_distributions():
        for file in found.files or ():
            if file.parts[0] != ".." and not _is_left_out(Path(file)):
                yield str(file), Path(str(found.locate_file(file)))


def required_distributions() -> list[Distribution]:
    """Find what is required, and what that requires, in the order of their names.

    Raises:
        PackageError: one that our sources cannot do without is not installed here.
    """
    found: dict[str, Distribution] = {}
    todo = [(name, extra not in ("", "spark")) for extra, name in _own_requirements()]
    while todo:
        name, may_be_absent = todo.pop()
        if name in found or name in BROUGHT_BY_SPARK:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError as error:
            if may_be_absent:
                continue
            raise PackageError(
                f"the Python package {name} is missing: pip install 'tandem-mq[spark]'"
            ) from error
        # A marker of an environment may exclude a requirement here; then it is not installed.
        todo += [(each, True) for extra, each in _requirements(found[name]) if not extra]
    return [found[name] for name in sorted(found)]


def _own_requirements() -> Iterator[tuple[str, str]]:
    for extra, name in _requirements(distribution(DISTRIBUTION)):
        if not extra or extra in EXTRAS:
            yield extra, name


def _requirements(of: Distribution) -> Iterator[tuple[str, str]]:
    """Yield (extra, name) of each requirement; the extra is empty where there is none."""
    for text in of.requires or ():
        name = _REQUIREMENT.match(text)
        extra = _EXTRA.search(text)
        if name is not None:
            yield (extra[1] if extra else ""), _normal(name[1])


def _normal(name: str) -> str:
    """The one form of a distribution's name. Source: PyPA, name normalization."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_left_out(file: Path) -> bool:
    return bool(_LEFT_OUT.intersection(file.parts[:-1])) or file.suffix == ".pyc"


def _plain(name: str) -> zipfile.ZipInfo:
    """An entry without the time it was packed at: the same files make the same package."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _add(archive: tarfile.TarFile, name: str, file: Path) -> None:
    data = file.read_bytes()
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o644
    archive.addfile(entry, io.BytesIO(data))


def runtime_tag() -> str:
    """Say in words which Python and machine a `.tar.gz` is for."""
    return f"Python {sysconfig.get_python_version()}, {sysconfig.get_platform()}"
