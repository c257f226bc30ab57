"""What is installed: built here, installed beside what it needs, and used in an empty directory."""

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tandem.wire import native
from tests.support.loopback import own_network
from tests.support.page_room import Room
from tests.support.page_steps import RunLine
from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.xdist_group("package"),
]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NAMES_OF_OTHERS = ("node", "ha", "store")
"""Names of packages of ours that somebody else may have taken; the index has a `node`."""

WITHOUT_THE_CHECKOUT = {**os.environ, "PYTHONPATH": ""}


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=WITHOUT_THE_CHECKOUT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def build(source: Path, into: Path) -> tuple[Path, Path]:
    """Build a wheel and a source distribution with what requirements/build.lock has pinned."""
    command = (sys.executable, "-P", "-m", "hatchling", "build", "-d", into)
    run(*command, "-t", "wheel", "-t", "sdist", cwd=source)
    return next(into.glob("*.whl")), next(into.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a new environment: our wheel, and what it says it needs without extras."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    folder = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    link(PROJECT["dependencies"], folder)
    for name in NAMES_OF_OTHERS:
        (folder / f"{name}.py").write_text("WHOSE = 'of somebody else'\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", built[0])
    return environment / "bin"


def link(requirements: list[str], folder: Path) -> None:
    """Link from this environment what is required, and what that requires, no more."""
    todo = [Requirement(text) for text in requirements]
    seen = set()
    while todo:
        wanted = todo.pop()
        for extra in ("", *wanted.extras):
            if (wanted.name, extra) in seen:
                continue
            seen.add((wanted.name, extra))
            found = distribution(wanted.name)
            todo += [
                each
                for each in map(Requirement, found.requires or ())
                if each.marker is None or each.marker.evaluate({"extra": extra})
            ]
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(str(found.locate_file(top)))


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def test_a_wheel_takes_no_names_but_its_own(built: tuple[Path, Path]) -> None:
    tops = {name.partition("/")[0] for name in names(built[0])}
    (information,) = (top for top in tops if top.endswith(".dist-info"))
    discovered = {file.name for file in (ROOT / "tandem/spark/discovery").glob("pyspark_*.py")}
    assert "pyspark_commitlog.py" in discovered
    assert tops - {information} == {"tandem", "tandem_server"} | discovered


def test_a_wheel_has_all_modules_the_types_and_the_example(built: tuple[Path, Path]) -> None:
    found = set(names(built[0]))
    for package, folder in {
        **dict.fromkeys(("node", "ha", "store"), "tandem_server/"),
        **dict.fromkeys(("tandem", "tandem_server"), ""),
    }.items():
        for file in (ROOT / package).rglob("*.py"):
            is_discovered = file.name.startswith("pyspark_")  # by Spark, where it is at the top
            where = file.name if is_discovered else f"{folder}{file.relative_to(ROOT)}"
            assert where in found
    assert {"tandem/py.typed", "tandem/cluster/cluster.yaml", "tandem/console/page.html"} <= found
    assert "tandem/cluster/tandem@.service" in found
    assert not [name for name in found if "__pycache__" in name]


def test_a_wheel_has_the_loops_in_c_where_there_is_a_compiler(
    built: tuple[Path, Path], installed: Path
) -> None:
    said = "from tandem.wire import native; print(native.loops is not None)"
    is_compiled = native.loops is not None
    assert run(installed / "python", "-P", "-c", said).strip() == str(is_compiled)
    assert ("tandem/wire/libtandem.so" in names(built[0])) == is_compiled
    assert built[0].name.endswith("-none-any.whl") != is_compiled


def test_a_source_distribution_makes_the_same_wheel(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path)
    (source,) = tmp_path.iterdir()
    wheel, _ = build(source, tmp_path / "dist")
    assert names(wheel) == names(built[0])


WITHOUT_EXTRAS = "error: the Python package pyarrow is missing: pip install 'tandem-mq[drill]'"


@pytest.fixture
def room(installed: Path, tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path, own_network(), installed)
    yield room
    room.play([RunLine("the end", "tandem cluster down || true")])


def test_an_installed_cluster_is_started_used_hurt_and_stopped(room: Room) -> None:
    room.play(
        [
            RunLine("up", "tandem cluster up --detach", "...\nup (supervisor ...); ..."),
            RunLine("produce", "echo hello | tandem produce Orders --key 1"),
            RunLine("consume", "tandem consume Orders --from earliest --max 1", "...hello..."),
            RunLine("kill", "tandem cluster kill broker-a-1"),
            RunLine("restart", "tandem cluster restart broker-a-1"),
            RunLine("down", "tandem cluster down"),
            RunLine("drill", "tandem drill", WITHOUT_EXTRAS, exits=2),
            RunLine("repair", "tandem log repair tandem-data/broker-a-0 --write"),
            RunLine("foreground", "exec tandem cluster up", until="up; Ctrl-C"),
            RunLine(
                "node", "python -P -m tandem_server node check -h", "usage: node check...\n..."
            ),
        ]
    )


def test_what_a_user_imports_is_ours_where_it_is_ours_and_theirs_where_not(room: Room) -> None:
    where = "python -P -c 'import tandem, sys; print(sys.prefix in tandem.__file__)'"
    room.play(
        [
            RunLine("tandem", where, "True"),
            *(
                RunLine(name, f"python -P -c 'import {name}; print({name}.WHOSE)'", "...of some...")
                for name in NAMES_OF_OTHERS
            ),
            RunLine("extra", "python -c 'import pyspark'", "...\n...No module named...", exits=1),
            # Spark imports it before it looks up anybody's format: it must never fail.
            RunLine("discovered", "python -c 'import pyspark_commitlog, pyspark_tandem'"),
        ]
    )


OF_A_USER = """
import tandem

def test_orders_survive_the_loss_of_the_master(tandem_fenced_cluster):
    with tandem.BlockingProducer(tandem_fenced_cluster.name_servers, group="test") as producer:
        tandem_fenced_cluster.kill_master()
        result = producer.send(tandem.Message("Orders", b"order 1"))
        assert result.status is tandem.SendStatus.SEND_OK
"""


def test_the_fixtures_of_pytest_are_there_by_themselves(room: Room, tmp_path: Path) -> None:
    """As after `pip install 'tandem-mq[testing]'`: no line in a conftest.py asks for them."""
    extra = tmp_path / "extra"
    extra.mkdir()
    link(PROJECT["optional-dependencies"]["testing"], extra)
    room.write("test_orders.py", OF_A_USER)
    pytest_there = f"PYTHONPATH={extra} python -m pytest -q -p no:cacheprovider test_orders.py"
    room.play([RunLine("a test of a user", pytest_there, "...\n1 passed...")])


SIMULATED_OF_A_USER = """
import node, store, tandem
from tandem.testing import simulated_cluster

@simulated_cluster(seeds=3, jobs=1)
async def play(cluster):
    async with tandem.Producer(cluster.name_servers, group="test") as producer:
        await producer.send(tandem.Message("Orders", b"order 1"))
    await cluster.recover()

play()
print(node.WHOSE == store.WHOSE == "of somebody else")
"""


def test_a_simulated_cluster_is_played_beside_modules_of_the_same_names(room: Room) -> None:
    room.write("simulated.py", SIMULATED_OF_A_USER)
    room.play([RunLine("seeds", "python -W error simulated.py", "...\nTrue")])


def test_what_people_read_of_the_package_is_in_its_metadata(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "Description-Content-Type: text/markdown" in text
    assert "Classifier: Operating System :: POSIX :: Linux" in text
    assert (ROOT / "README.md").read_text(encoding="utf-8").strip() in text


TYPED = """
import tandem

NAME_SERVERS = ["127.0.0.1:9876", "127.0.0.2:9876", "127.0.0.3:9876"]


async def main() -> int:
    async with tandem.Producer(NAME_SERVERS, group="orders") as producer:
        result = await producer.send(tandem.Message("Orders", b"order 1", keys="1"))
        await producer.send("Orders")  # type: ignore[arg-type]
        return result.queue_offset


async def read() -> list[bytes]:
    async with tandem.PullConsumer(NAME_SERVERS, group="billing") as consumer:
        consumer.messages("Orders", start="begin")  # type: ignore[arg-type]
        return [m.body async for m in consumer.messages("Orders", start="earliest")]
"""


def test_a_program_of_a_user_is_checked_against_the_types_of_the_package(
    installed: Path, tmp_path: Path
) -> None:
    """What is wrong is marked in it, and the marks that are needless are errors, too."""
    program = tmp_path / "program.py"
    program.write_text(TYPED, encoding="utf-8")
    options = ("--strict", "--cache-dir", tmp_path / "cache", "--config-file", os.devnull)
    python = installed / "python"
    run(
        sys.executable,
        "-P",
        "-m",
        "mypy",
        *options,
        "--python-executable",
        python,
        program,
        cwd=tmp_path,
    )
