"""Stores whose logs end at every edge there is, on the real disk: they open, run, and go on.

An edge is the end of a record, the beginning and the end of a blank, the end of a file. What comes
after it is zeros, another file of zeros or of nothing, or there is none. The simulated disk has no
mapping that could end where the log does.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from ha.fenced.own_replica import OwnReplica
from store import CorruptLogError, MessageStore
from store.machine.errors import LogFault
from store.machine.real_disk import RealDisk
from tests.ha.world import fenced_config
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    Clock,
    a_message,
    check_store,
    open_store,
    put,
)

pytestmark = pytest.mark.slow

NEW = 5000


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three files as a process that was killed has left it; nothing was synced."""
    home = tmp_path_factory.mktemp("master")
    with open_store(RealDisk(), str(home / "store")) as store:
        number = 0
        while store.max_physical_offset < 2 * COMMIT_LOG_BYTES + 2000:
            put(store, a_message(number, body_bytes=900))
            number += 1
        shutil.copytree(home / "store", home / "killed")
    return home / "killed"


def log_of(store: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").iterdir()))


def edges(log: bytes) -> list[int]:
    """Where a record or a blank begins or ends; a blank ends with its file."""
    found, end = [0], 0
    while size := int.from_bytes(log[end : end + 4], "big"):
        end += size
        found.append(end)
    assert COMMIT_LOG_BYTES in found
    return found


def cut(store: Path, end: int) -> None:
    """Have nothing but zeros after `end`, and no file that begins there."""
    for file in (store / "commitlog").iterdir():
        begin = int(file.name)
        if begin >= end:
            file.unlink()
        elif begin + COMMIT_LOG_BYTES > end:
            data = file.read_bytes()[: end - begin]
            file.write_bytes(data.ljust(COMMIT_LOG_BYTES, b"\0"))


def following(store: Path, end: int) -> Path:
    """The file that would come next."""
    return store / "commitlog" / f"{-(-end // COMMIT_LOG_BYTES) * COMMIT_LOG_BYTES:020d}"


def with_a_file_of_zeros(store: Path, end: int) -> None:
    cut(store, end)
    following(store, end).write_bytes(bytes(COMMIT_LOG_BYTES))


def with_an_empty_file(store: Path, end: int) -> None:
    cut(store, end)
    following(store, end).touch()


def without_queues(store: Path, end: int) -> None:
    cut(store, end)
    shutil.rmtree(store / "consumequeue")


def without_a_checkpoint(store: Path, end: int) -> None:
    cut(store, end)
    (store / "checkpoint").unlink()


def with_a_checkpoint_of_zeros(store: Path, end: int) -> None:
    cut(store, end)
    (store / "checkpoint").write_bytes(bytes(4096))


def opened(root: Path, *, is_fenced: bool) -> MessageStore:
    return open_store(
        RealDisk(),
        str(root),
        is_slave=is_fenced,
        confirm_bounds_reads=is_fenced,
        clock=Clock(1_800_000_000_000),
    )


async def goes_on(
    root: Path,
    end: int,
    log: bytes,
    is_fenced: bool,  # noqa: FBT001 - trio.run takes no names
) -> None:
    """Open it and run it as a node does; write to it, or take what it lacks, and then write."""
    with opened(root, is_fenced=is_fenced) as store:
        assert store.max_physical_offset == end
        if is_fenced:
            config = fenced_config("a", directory=str(root))
            OwnReplica(config, store, RealDisk(), random.Random(1), lambda _: None).begin("boot")
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await trio.testing.wait_all_tasks_blocked()
            if is_fenced:
                rest = log[end : (end // COMMIT_LOG_BYTES + 1) * COMMIT_LOG_BYTES]
                store.append_data(end, rest[: edges(log)[-1] - end])
                store.announce()
                store.become_master()
            put(store, a_message(NEW))
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        if is_fenced:
            store.confirm(store.max_physical_offset)
        messages = check_store(store)
        assert messages[-1].body == b"%d:" % NEW
    with opened(root, is_fenced=is_fenced) as store:
        if is_fenced:
            store.confirm(store.max_physical_offset)
        assert check_store(store) == messages


@pytest.fixture
def copies(master: Path, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    count = 0

    def copy() -> Path:
        nonlocal count
        count += 1
        return Path(shutil.copytree(master, tmp_path / str(count)))

    yield copy
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("is_fenced", [False, True], ids=["classic", "fenced"])
@pytest.mark.parametrize(
    "damage",
    [
        cut,
        with_a_file_of_zeros,
        with_an_empty_file,
        without_queues,
        without_a_checkpoint,
        with_a_checkpoint_of_zeros,
    ],
)
def test_a_log_that_ends_at_an_edge_goes_on(
    damage: Callable[[Path, int], None],
    is_fenced: bool,  # noqa: FBT001 - a parameter of the test
    master: Path,
    copies: Callable[[], Path],
) -> None:
    log = log_of(master)
    for end in edges(log):
        root = copies()
        damage(root, end)
        trio.run(goes_on, root, end, log, is_fenced)


@pytest.mark.parametrize("is_fenced", [False, True], ids=["classic", "fenced"])
def test_a_log_that_was_closed_at_an_edge_goes_on(
    is_fenced: bool,  # noqa: FBT001 - a parameter of the test
    master: Path,
    tmp_path: Path,
) -> None:
    log = log_of(master)
    for end in edges(log):
        root = tmp_path / f"{end}"
        with open_store(RealDisk(), str(root), is_slave=True) as store:
            for start in range(0, end, COMMIT_LOG_BYTES):
                store.append_data(start, log[start : min(end, start + COMMIT_LOG_BYTES)])
            store.announce()
        assert not (root / "abort").exists()
        trio.run(goes_on, root, end, log, is_fenced)


def test_a_log_whose_last_file_is_short_is_refused_with_what_to_do(
    master: Path, copies: Callable[[], Path]
) -> None:
    for end in (1, 4096, COMMIT_LOG_BYTES - 1, COMMIT_LOG_BYTES + 1, 2 * COMMIT_LOG_BYTES - 1):
        root = copies()
        cut(root, end)
        last = max((root / "commitlog").iterdir())
        os.truncate(last, end % COMMIT_LOG_BYTES)
        with pytest.raises(CorruptLogError) as caught:
            opened(root, is_fenced=False)
        assert caught.value.fault is LogFault.LENGTH
        assert caught.value.path == str(last)
        assert last.stat().st_size == end % COMMIT_LOG_BYTES


def test_a_short_last_file_of_a_node_that_others_can_heal_is_made_whole(
    master: Path, copies: Callable[[], Path]
) -> None:
    for end in (1, 4096, COMMIT_LOG_BYTES - 1, COMMIT_LOG_BYTES + 1, 2 * COMMIT_LOG_BYTES - 1):
        root = copies()
        cut(root, end)
        last = max((root / "commitlog").iterdir())
        os.truncate(last, end % COMMIT_LOG_BYTES)
        with suppress(CorruptLogError):  # where it was on the disk, others heal it first
            opened(root, is_fenced=True).close()
        assert not last.exists() or last.stat().st_size == COMMIT_LOG_BYTES
