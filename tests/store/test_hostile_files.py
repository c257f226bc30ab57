"""Whatever somebody does to the files of a store: it opens and works, or is refused in one line.

See `mutations_of_files.py` for what is done, and for what is checked.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from node.simulated.disk import SimulatedDisk
from store import MessageStore, StoreError
from store.delayed.delay_offset_table import DelayOffsetTable
from store.machine.real_disk import RealDisk
from store.machine.table_file import TableFile
from tests.store.mutations_of_files import (
    Specimen,
    check_hostile,
    check_refusal,
    mutate,
    put_one_more,
    read_everything,
    specimens,
)
from tests.store.store_world import Clock, open_store, put_many
from tests.support.patience import PATIENCE_SECONDS

CASES = 300
SHARES = 3


@cache
def stores() -> list[Specimen]:
    return specimens()


def check_seeds(seeds: range) -> None:
    outcomes = {True: 0, False: 0}
    for seed in seeds:
        chance = random.Random(seed)
        mutated, done = mutate(chance.choice(stores()), chance)
        try:
            outcomes[bool(check_hostile(mutated))] += 1
        except Exception as error:
            error.add_note(f"seed {seed}: {mutated.name}: {done}")
            raise
    assert min(outcomes.values()) > len(seeds) // 20


def test_a_store_that_nobody_touched_opens() -> None:
    assert [check_hostile(store) for store in stores()] == [""] * len(stores())


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
def test_a_damaged_store_works_or_is_refused(share: int) -> None:
    size = CASES // SHARES
    check_seeds(range(share * size, (share + 1) * size))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_damaged_stores_work_or_are_refused() -> None:
    check_seeds(range(1_000_000, 1_020_000))


# -- what only a real directory can hold ---------------------------------------------------------

LOG_FILE = f"commitlog/{0:020d}"
LAST_LOG_FILE = f"commitlog/{24576:020d}"
QUEUE_FILE = f"consumequeue/TopicA/0/{0:020d}"


def opened(root: Path) -> MessageStore:
    return open_store(RealDisk(), str(root), clock=Clock(1_900_000_000_000))


def check_real(root: Path) -> str:
    """Open the store in `root`, work with it, open it again; return why it was refused."""
    try:
        for _ in range(2):
            with opened(root) as store:
                read_everything(store)
                put_one_more(store, "TopicA", 0)
                put_one_more(store, "New", 0)
    except StoreError as error:
        check_refusal(str(error).replace(str(root), "/store"), {}, {})
        return str(error)
    return ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store of 60 messages in 4 files of the log."""
    with open_store(RealDisk(), str(tmp_path / "store")) as store:
        put_many(store, 60)
    return tmp_path / "store"


def clear(path: Path) -> Path:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    return path


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        (LOG_FILE, ""),
        (LAST_LOG_FILE, "the log ends at 24576"),
        (QUEUE_FILE, "Is a directory"),
        ("checkpoint", "Is a directory"),
        ("abort", "Is a directory"),
        ("lock", "Is a directory"),
        ("torn", ""),
    ],
)
def test_a_directory_in_the_place_of_a_file(name: str, refusal: str, root: Path) -> None:
    clear(root / name).mkdir()
    found = check_real(root)
    assert refusal in found
    assert bool(refusal) == bool(found)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "consumequeue/TopicA", "index"])
def test_a_file_in_the_place_of_a_directory(name: str, root: Path) -> None:
    clear(root / name).write_bytes(b"")
    assert bool(check_real(root)) == (name != "index")


@pytest.mark.parametrize("name", [LOG_FILE, QUEUE_FILE, "checkpoint", "abort", "lock"])
@pytest.mark.timeout(10)
def test_a_pipe_keeps_nobody_waiting(name: str, root: Path) -> None:
    os.mkfifo(clear(root / name))
    assert bool(check_real(root)) == (name in ("checkpoint", "lock"))


LINKS: list[tuple[str, str, str]] = [
    ("commitlog", "commitlog", "Too many levels"),
    (LOG_FILE, LOG_FILE.rpartition("/")[2], "Too many levels"),
    ("consumequeue/TopicA", "TopicA", "Too many levels"),
    ("checkpoint", "checkpoint", "Too many levels"),
    (LOG_FILE, "nowhere", ""),
    (LAST_LOG_FILE, "nowhere", "the log ends at 24576"),
    ("checkpoint", "nowhere", ""),
    ("checkpoint", "/dev/zero", "Not an ordinary file"),
    (LOG_FILE, "/dev/zero", ""),
    ("consumequeue/TopicX", "..", ""),
    ("consumequeue/TopicX", "TopicA", ""),
    ("consumequeue/TopicA/7", "0", ""),
]


@pytest.mark.parametrize(("name", "target", "refusal"), LINKS)
def test_links_lead_nowhere_or_round_in_circles(
    name: str, target: str, refusal: str, root: Path
) -> None:
    clear(root / name).symlink_to(target)
    found = check_real(root)
    assert refusal in found
    assert bool(refusal) == bool(found)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", LOG_FILE, QUEUE_FILE, "checkpoint"])
def test_files_and_directories_may_lie_elsewhere(name: str, root: Path, tmp_path: Path) -> None:
    (root / name).rename(tmp_path / "elsewhere")
    (root / name).symlink_to(tmp_path / "elsewhere")
    assert check_real(root) == ""
    assert (root / name).is_symlink()


def test_names_that_are_no_text_are_left_alone(root: Path) -> None:
    directory = os.fsencode(root / "consumequeue") + b"/\xff\xfe/0"
    os.makedirs(directory)  # noqa: PTH103 - a Path is text
    assert check_real(root) == ""
    Path(os.fsdecode(os.fsencode(root / "commitlog") + b"/\xff")).write_bytes(bytes(8192))
    assert "not a store file" in check_real(root)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["checkpoint", LOG_FILE, LAST_LOG_FILE, QUEUE_FILE, "abort", "lock", "index/1"]
)
def test_a_file_of_a_terabyte_takes_no_memory(name: str, root: Path) -> None:
    """The process may have no more than it needs to start, and 256 MiB."""
    if name == "index/1":
        name = next((root / "index").iterdir()).relative_to(root).as_posix()
    with (root / name).open("ab") as file:
        file.truncate(1 << 40)
    code = (
        "import resource, sys; from pathlib import Path;"
        "from tests.store.test_hostile_files import check_real;"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2);"
        "print(check_real(Path(sys.argv[1])))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, root],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert bool(ended.stdout.strip()) == (name not in (QUEUE_FILE, "abort", "lock"))


# -- tables --------------------------------------------------------------------------------------

TABLES: list[Callable[[random.Random], bytes]] = [
    lambda chance: chance.randbytes(chance.randrange(1, 300)),
    lambda chance: b"[" * chance.randrange(1, 100_000),
    lambda chance: b'{"offsetTable":' * chance.randrange(1, 10_000),
    lambda chance: b'{"offsetTable":{%d:%d}}' % ((chance.choice((-1, 1, 1 << 31, 1 << 70)),) * 2),
    lambda _: b'{"offsetTable":{1:1e400}}',
    lambda _: b'{"offsetTable":{1:NaN}}',
    lambda _: b'{"offsetTable":null,"dataVersion":[]}',
    lambda _: b'"' + b"\\" * 50_001,
    lambda _: b'{"offsetTable":{1:' + b"9" * 100_000 + b"}}",
    lambda _: json.dumps({"offsetTable": {str(n): n for n in range(20_000)}}).encode(),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(len(TABLES)))
@pytest.mark.timeout(20)
def test_a_damaged_table_is_read_from_its_backup_or_refused(kind: int) -> None:
    for seed in range(20):
        disk = SimulatedDisk()
        path = "/store/config/delayOffset.json"
        disk.replace(path, TABLES[kind](random.Random(seed)))
        try:
            table = DelayOffsetTable(TableFile(disk, path), Clock())
            assert isinstance(table.query(1), int)
        except StoreError as error:
            check_refusal(str(error), {}, {})
            disk.replace(f"{path}.bak", b'{"offsetTable":{1:7}}')
            assert DelayOffsetTable(TableFile(disk, path), Clock()).query(1) == 7
