"""A disk that is really full: a small tmpfs under the store, and under a node's process.

The same path with a simulated disk is in tests/store/test_message_store.py, for machines where
nothing can be mounted.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import tandem
from store import DiskFailedError, PutMessageStatus, StoreFullError
from store.machine.real_disk import RealDisk
from tandem.client import BrokerError, PullStatus
from tests.store.store_world import a_batch, a_message, check_store, number_of, open_store, put
from tests.support.loopback import own_network
from tests.support.patience import PATIENCE_SECONDS, until
from tests.support.processes import ENVIRONMENT, NODE

pytestmark = [pytest.mark.fault]

LOG_BYTES, QUEUE_BYTES = 262_144, 20_000
SIZES = {"commit_log_bytes": LOG_BYTES, "consume_queue_bytes": QUEUE_BYTES}

BALLAST_BYTES = 600_000
CLUSTER = f"""\
cluster: {{data_directory: data}}
store:
  mapped_file_size_commit_log_bytes: {LOG_BYTES}
  mapped_file_size_consume_queue_bytes: {QUEUE_BYTES}
  max_message_size_bytes: 65536
groups: {{broker-a: {{broker_role: ASYNC_MASTER}}}}
nodes: [{{name: a0, group: broker-a, broker_id: 0, address: ADDRESS}}]
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB, with something on it that can be deleted: `ballast`."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small file system; the simulated full disk is tested")
    try:
        (place / "ballast").write_bytes(bytes(BALLAST_BYTES))
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def free_space(disk: Path) -> None:
    (disk / "ballast").unlink()


def test_a_full_disk_refuses_puts_and_takes_them_again_once_there_is_room(small_disk: Path) -> None:
    """Not SIGBUS: every block of a file is allocated before the file is mapped."""
    root = str(small_disk / "store")
    with open_store(RealDisk(), root, **SIZES) as store:  # type: ignore[arg-type] # sizes only
        number = 0
        while (
            result := store.puts.put_message(a_message(number, body_bytes=9000))
        ).status.is_stored:
            number += 1
            assert number < 1000
        for refused in (
            store.puts.put_message(a_message(number, body_bytes=9000)),
            store.puts.put_batch(a_batch(range(number, number + 200))),
        ):
            if refused.status.is_stored:  # a small batch may still fit the last file
                number += refused.msg_num
                continue
            assert refused.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            assert f"no room for {LOG_BYTES} bytes" in refused.reason
            assert "free space on that disk, then send again" in refused.reason
        assert "No space left on device" in result.reason
        assert [number_of(m) for m in check_store(store)] == list(range(number))
        # Another queue needs a file of its own: there may be room for that, or not.
        other = store.puts.put_message(a_message(0, "TopicB", body_bytes=9000))
        assert not other.status.is_stored
        free_space(small_disk)
        for more in range(number, number + 40):
            put(store, a_message(more, body_bytes=9000))
        assert [number_of(m) for m in check_store(store)] == list(range(number + 40))
    with open_store(RealDisk(), root, **SIZES) as store:  # type: ignore[arg-type]
        assert len(check_store(store)) == number + 40


def test_a_disk_too_full_to_open_a_store_on_says_so_and_leaves_the_store_alone(
    small_disk: Path,
) -> None:
    root = small_disk / "store"
    with open_store(RealDisk(), str(root), **SIZES) as store:  # type: ignore[arg-type]
        put(store, a_message(0))
    torn = root / "commitlog" / f"{0:020d}"
    with torn.open("r+b") as file:
        file.seek(100_000)
        file.write(os.urandom(100_000))  # what recovery sets aside needs room
    (root / "abort").touch()
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                break
    before = torn.read_bytes()
    with pytest.raises(StoreFullError, match="free space on that disk"):
        open_store(RealDisk(), str(root), **SIZES)  # type: ignore[arg-type]
    assert torn.read_bytes() == before
    filler.unlink()
    with open_store(RealDisk(), str(root), **SIZES) as store:  # type: ignore[arg-type]
        assert len(check_store(store)) == 1


def fill(disk: Path, leave_bytes: int) -> Path:
    """Fill a file system up to the last `leave_bytes`; return the file that does it."""
    filler = disk / "filler"
    status = os.statvfs(disk)
    count = status.f_bavail * status.f_frsize - leave_bytes
    assert count > 0, "it is that full already"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, count)
    return filler


@pytest.mark.parametrize("which", ["commitlog", "consumequeue", "index"])
async def test_the_file_that_does_not_fit_is_told_and_made_once_there_is_room(
    small_disk: Path, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of log, queues and index one needs more than what is left; the others go on."""
    free_space(small_disk)
    root = str(small_disk / "store")
    settings: dict[str, Any] = {
        "commit_log_bytes": 400_000 if which == "commitlog" else 50_000,
        "consume_queue_bytes": 200,
        # 40 + 100 * 4 + 20,000 * 20 bytes, or 8,440
        "max_index_num": 20_000 if which == "index" else 400,
    }
    with open_store(RealDisk(), root, **settings) as store:
        put(store, a_message(0))
        if which != "index":
            store.reput_service.index_some()
        filler = fill(small_disk, 0 if which == "consumequeue" else 300_000)
        async with trio.open_nursery() as nursery:
            await nursery.start(store.reput_service.run)
            number = 1
            if which == "consumequeue":
                other = store.puts.put_message(a_message(1, "TopicB"))
                assert other.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
                assert "no room for 200 bytes" in other.reason
            number_max = {"commitlog": 1000, "consumequeue": 9, "index": 61}[which]
            while number < number_max:
                result = store.puts.put_message(a_message(number, body_bytes=900))
                if not result.status.is_stored:
                    assert "no room for 400000 bytes" in result.reason
                    break
                store.announce()
                number += 1
            assert (number < number_max) == (which == "commitlog")
            if which == "index":
                await until(lambda: "no message enters the index" in caplog.text)
                assert not store.reads.query_message("TopicA", "k1", 9).records
            assert [number_of(m) for m in check_store(store)] == list(range(number))
            filler.unlink()
            put(store, a_message(number))
            put(store, a_message(number + 1, "TopicB"))
            await until(lambda: not store.reput_service.is_index_behind)
            nursery.cancel_scope.cancel()
        for key in (0, 1, number - 1, number):
            assert len(store.reads.query_message("TopicA", f"k{key}", 9).records) == 1
        assert len(check_store(store)) == number + 2
        store._unmap()  # as kill -9 leaves it
        store._closed = True
    with open_store(RealDisk(), root, **settings) as store:
        assert len(check_store(store)) == number + 2


@pytest.fixture
def make_read_only(small_disk: Path) -> Iterator[Callable[[], Callable[[], None]]]:
    """Make the file system read-only for whatever is opened from now on; return the way back.

    The kernel refuses to remount one that somebody writes to. A read-only mount over it is the
    same for names; files that are open stay as they are.
    """
    place = str(small_disk)
    mounted: list[str] = []

    def undo() -> None:
        mounted.pop()
        subprocess.run(["umount", place], check=True)

    def make() -> Callable[[], None]:
        subprocess.run(["mount", "--bind", place, place], check=True)
        mounted.append(place)
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        return undo

    yield make
    if mounted:
        undo()


def test_a_disk_that_turns_read_only_is_told_and_nothing_is_lost(
    small_disk: Path, make_read_only: Callable[[], Callable[[], None]]
) -> None:
    free_space(small_disk)
    root = str(small_disk / "store")
    sizes = {"commit_log_bytes": 50_000, "consume_queue_bytes": 2000}
    store = open_store(RealDisk(), root, **sizes)  # type: ignore[arg-type] # sizes only
    for number in range(30):
        put(store, a_message(number, body_bytes=900))
    make_writable = make_read_only()
    number = 30
    while (result := store.puts.put_message(a_message(number, body_bytes=900))).status.is_stored:
        number += 1
        assert number < 1000, "it never needs another file"
    assert result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    assert "Read-only file system" in result.reason
    assert "check the disk and who may write to it" in result.reason
    store.announce()
    assert not store.puts.put_message(a_message(0, "TopicB")).status.is_stored
    assert [number_of(m) for m in check_store(store)] == list(range(number))
    with pytest.raises(DiskFailedError, match="Read-only file system"):
        store.close()
    with pytest.raises(DiskFailedError, match="Read-only file system"):
        open_store(RealDisk(), root, **sizes)  # type: ignore[arg-type]
    make_writable()
    with open_store(RealDisk(), root, **sizes) as again:  # type: ignore[arg-type]
        assert [number_of(m) for m in check_store(again)] == list(range(number))
        for more in range(number, number + 60):
            put(again, a_message(more, body_bytes=900))
        assert len(check_store(again)) == number + 60


def test_a_file_system_mounted_read_only_is_told_and_left_alone(small_disk: Path) -> None:
    root = str(small_disk / "store")
    with open_store(RealDisk(), root, **SIZES) as store:  # type: ignore[arg-type] # sizes only
        put(store, a_message(0))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(DiskFailedError, match=r"Read-only file system.*check the disk"):
        open_store(RealDisk(), root, **SIZES)  # type: ignore[arg-type]
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with open_store(RealDisk(), root, **SIZES) as store:  # type: ignore[arg-type]
        assert len(check_store(store)) == 1


async def test_a_file_prepared_on_a_full_disk_is_refused_and_leaves_nothing(
    small_disk: Path,
) -> None:
    disk = RealDisk()
    with pytest.raises(StoreFullError):
        await disk.create_in_background(str(small_disk / "log" / "1"), 4 << 20)
    assert list((small_disk / "log").iterdir()) == []
    await trio.lowlevel.checkpoint()


@pytest.mark.slow
def test_a_node_on_a_full_disk_says_so_and_goes_on_once_there_is_room(small_disk: Path) -> None:
    config = small_disk / "cluster.yaml"
    address = f"{own_network()}.1"
    config.write_text(CLUSTER.replace("ADDRESS", address))
    log = (small_disk.parent / "node.log").open("w")
    node = subprocess.Popen(
        [*NODE, "--config", str(config), "--name", "a0", "--supervised"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=ENVIRONMENT,
    )
    assert node.stdin is not None
    assert node.stdout is not None
    with node.stdin, node.stdout, log:
        assert node.stdout.readline().startswith("READY"), Path(log.name).read_text()
        sent = _send_until_full(address)
        assert node.poll() is None
        assert _read_all(address) == sent
        free_space(small_disk)
        with tandem.BlockingProducer([f"{address}:9876"], group="g") as producer:
            for number in range(20):
                body = b"after %d" % number
                producer.send(tandem.Message("orders", body), queue_id=0)
                sent.append(body)
        assert _read_all(address) == sent
        node.stdin.close()
        assert node.wait(PATIENCE_SECONDS) == 0, Path(log.name).read_text()


def _send_until_full(address: str) -> list[bytes]:
    sent: list[bytes] = []
    with tandem.BlockingProducer(
        [f"{address}:9876"], group="g", retry_times_when_send_failed=0
    ) as producer:
        with pytest.raises(BrokerError, match="No space left on device") as caught:
            while len(sent) < 1000:
                body = (b"%d:" % len(sent)).ljust(9000, b".")
                producer.send(tandem.Message("orders", body), queue_id=0)
                sent.append(body)
        assert "free space" in caught.value.remark
    assert len(sent) > 50
    return sent


def _read_all(address: str) -> list[bytes]:
    bodies: list[bytes] = []
    with tandem.BlockingPullConsumer([f"{address}:9876"], group="g") as consumer:
        queue = next(q for q in consumer.fetch_message_queues("orders") if q.queue_id == 0)
        offset = 0
        while True:
            result = consumer.pull(queue, offset)
            if result.status is not PullStatus.FOUND:
                return bodies
            bodies += [message.body for message in result.messages]
            offset = result.next_begin_offset
