import errno
import os
import time
from pathlib import Path

import pytest

from store.machine import many_syncs
from store.machine.many_syncs import SYNCS_AT_ONCE, at_once, sync_file_system
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture
def descriptor(tmp_path: Path) -> int:
    return os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)


@pytest.mark.parametrize("count", [0, 1, 3, 4, SYNCS_AT_ONCE, 100])
def test_each_is_synced_once(count: int) -> None:
    synced: list[int] = []
    at_once(synced.append, range(count))
    assert sorted(synced) == list(range(count))


def test_some_are_synced_at_the_same_time() -> None:
    """The first one ends when another one has begun."""
    began: list[int] = []

    def sync(number: int) -> None:
        began.append(number)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(began) < 2 and time.monotonic() < deadline:
            os.sched_yield()
        assert len(began) > 1

    at_once(sync, range(2 * SYNCS_AT_ONCE))


def test_an_error_of_one_is_raised_when_all_have_ended() -> None:
    synced: list[int] = []

    def sync(number: int) -> None:
        if number == 7:
            raise OSError(errno.EIO, "no")
        synced.append(number)

    with pytest.raises(OSError, match="no") as caught:
        at_once(sync, range(100))
    assert caught.value.errno == errno.EIO
    assert len(synced) == len(set(synced)) < 100


def test_a_file_system_is_synced_where_that_says_all(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, int]] = []
    monkeypatch.setattr(many_syncs, "_has_good_syncfs", lambda: True)
    monkeypatch.setattr(many_syncs, "_kind_of", lambda _: 0xEF53)
    monkeypatch.setattr(many_syncs, "syncfs", lambda which: called.append(("syncfs", which)))
    monkeypatch.setattr(os, "fdatasync", lambda which: called.append(("fdatasync", which)))
    assert sync_file_system(descriptor)
    assert called == [("syncfs", descriptor), ("fdatasync", descriptor)]


@pytest.mark.parametrize(("has_good", "kind"), [(0, 0xEF53), (1, 0x65735546), (1, 0)])
def test_others_are_left_to_syncs_of_files(
    descriptor: int, monkeypatch: pytest.MonkeyPatch, has_good: int, kind: int
) -> None:
    """FUSE does not pass the call on, and old kernels report no errors."""
    monkeypatch.setattr(many_syncs, "_has_good_syncfs", lambda: bool(has_good))
    monkeypatch.setattr(many_syncs, "_kind_of", lambda _: kind)
    monkeypatch.setattr(many_syncs, "syncfs", lambda _: pytest.fail("called"))
    assert not sync_file_system(descriptor)


def test_an_error_may_be_that_of_another_file(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(many_syncs, "_has_good_syncfs", lambda: True)
    monkeypatch.setattr(many_syncs, "_kind_of", lambda _: 0xEF53)
    monkeypatch.setattr(many_syncs, "syncfs", fail)
    assert not sync_file_system(descriptor)


def test_the_real_call_says_what_is_wrong(descriptor: int) -> None:
    many_syncs.syncfs(descriptor)
    os.close(descriptor)
    with pytest.raises(OSError, match="descriptor") as caught:
        many_syncs.syncfs(descriptor)
    assert caught.value.errno == errno.EBADF
    assert many_syncs._kind_of(descriptor) == 0


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ("6.1.0-13-amd64", (6, 1)),
        ("5.7", (5, 7)),
        ("6.18.44-fc-v657", (6, 18)),
        ("4.19.0+", (4, 19)),
        ("5.15.167.4-microsoft-standard-WSL2", (5, 15)),
        ("6.8rc1", ()),
        ("", ()),
    ],
)
def test_the_version_of_a_kernel_is_read(release: str, version: tuple[int, ...]) -> None:
    assert many_syncs._kernel_version(release) == version


def test_the_kind_of_a_file_system_is_known(descriptor: int) -> None:
    """As `stat -f` prints it."""
    with os.popen(f"stat -f -c %t /proc/self/fd/../../{os.getpid()}/fd/{descriptor}") as said:
        assert many_syncs._kind_of(descriptor) == int(said.read(), 16)
