import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from store.__main__ import move
from store.machine.errors import CorruptLogError, LogFault, StoreLockedError
from store.machine.real_disk import RealDisk
from store.repair import RepairRequest, RepairResult, repair_store
from tandem.wire.store_layout import CQ_STORE_UNIT
from tests.store.store_world import (
    COMMIT_LOG_BYTES,
    CONSUME_QUEUE_BYTES,
    Clock,
    check_store,
    open_store,
    put_many,
)


def a_store(root: Path, count: int = 60) -> list[bytes]:
    """Write a store of several log files; return its bodies in log order."""
    with open_store(RealDisk(), str(root)) as store:
        put_many(store, count)
        return [message.body for message in check_store(store)]


def repaired(root: Path, **changes: Any) -> RepairResult:  # noqa: ANN401
    fields: dict[str, Any] = {
        "directory": str(root),
        "side_directory": f"{root}/aside",
        "mapped_file_size_commit_log_bytes": COMMIT_LOG_BYTES,
        "mapped_file_size_consume_queue_bytes": CONSUME_QUEUE_BYTES,
        "mapper_file_size_batch_consume_queue_bytes": 460,
        "enable_consume_queue_ext": False,
        "mapped_file_size_consume_queue_ext_bytes": 4096,
        "message_index_enable": False,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    request = RepairRequest(**(fields | changes))
    return repair_store(request, RealDisk(), move, wall_clock_ms=Clock())


def bodies(root: Path) -> list[bytes]:
    with open_store(RealDisk(), str(root)) as store:
        return [message.body for message in check_store(store)]


def test_a_sound_store_comes_out_as_it_went_in(tmp_path: Path) -> None:
    before = a_store(tmp_path)
    done = repaired(tmp_path)
    assert (done.kept, done.rebuilt, done.restored) == ((), (), ())
    assert bodies(tmp_path) == before
    assert not (tmp_path / "abort").exists()


def test_a_queue_that_is_set_aside_is_built_anew_and_kept(tmp_path: Path) -> None:
    before = a_store(tmp_path)
    name = "consumequeue/TopicA/0"
    old = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
    (tmp_path / name / f"{0:020d}").write_bytes(b"x" * CONSUME_QUEUE_BYTES)
    done = repaired(tmp_path, set_aside=(name,))
    assert done.rebuilt == (name,)
    assert done.kept == (f"{tmp_path}/aside/{name}",)
    assert {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} == old
    assert bodies(tmp_path) == before


def test_a_queue_without_a_message_in_the_log_is_left_as_it_was(tmp_path: Path) -> None:
    """Built anew it would begin at 0, before what its consumers have read."""
    a_store(tmp_path)
    name = "consumequeue/Old/3"
    (tmp_path / name).mkdir(parents=True)
    units = CQ_STORE_UNIT.pack(0, 100, 0) + CQ_STORE_UNIT.pack(100, 100, 0)
    (tmp_path / name / f"{0:020d}").write_bytes(units.ljust(CONSUME_QUEUE_BYTES, b"\0"))
    done = repaired(tmp_path, set_aside=(name,))
    assert (done.rebuilt, done.restored, done.kept) == ((), (name,), ())
    assert (tmp_path / name / f"{0:020d}").exists()


def test_a_queue_that_could_not_be_opened_is_not_brought_back(tmp_path: Path) -> None:
    a_store(tmp_path)
    name = "consumequeue/Old/3"
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / f"{0:020d}").write_bytes(b"short")
    done = repaired(tmp_path, set_aside=(name,))
    assert (done.rebuilt, done.restored) == ((name,), ())
    assert not (tmp_path / name).exists()


def test_the_index_is_built_anew_over_the_whole_log(tmp_path: Path) -> None:
    a_store(tmp_path)
    done = repaired(tmp_path, message_index_enable=True)
    assert done.index_end > 0
    files = list((tmp_path / "index").iterdir())
    again = repaired(tmp_path, message_index_enable=True, set_aside=("index",))
    assert again.index_end == done.index_end
    assert (tmp_path / "aside" / "index" / files[0].name).exists()


def test_a_torn_tail_is_cut_and_kept(tmp_path: Path) -> None:
    before = a_store(tmp_path, 5)
    (tmp_path / "abort").touch()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(5000)
        file.write(b"half a record")
    done = repaired(tmp_path)
    assert [Path(path).parent.name for path in done.kept] == ["torn"]
    assert bodies(tmp_path) == before


def corrupt(root: Path, record: int) -> None:
    """Change a body: no checksum covers what lies around it."""
    offset = record + 150
    start = offset - offset % COMMIT_LOG_BYTES
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(offset - start)
        file.write(b"corruption")


def record_before(root: Path, offset: int) -> int:
    with open_store(RealDisk(), str(root)) as store:
        return max(m.physical_offset for m in check_store(store) if m.physical_offset <= offset)


@pytest.mark.parametrize("offset", [3000, COMMIT_LOG_BYTES + 3000])
def test_corruption_is_refused_unless_it_is_said_where_to_cut(tmp_path: Path, offset: int) -> None:
    before = a_store(tmp_path)
    cut_at = record_before(tmp_path, offset)
    corrupt(tmp_path, cut_at)
    with pytest.raises(CorruptLogError) as caught:
        repaired(tmp_path)
    assert caught.value.fault is LogFault.LOST_END
    done = repaired(tmp_path, cut_at=cut_at)
    assert done.log_end == cut_at
    after = bodies(tmp_path)
    assert after == before[: len(after)]
    assert 0 < len(after) < len(before)
    kept = [Path(path) for path in done.kept]
    assert {path.parent.name for path in kept} == {"cut", "commitlog"}
    assert min(int(path.name) for path in kept) == cut_at


def test_a_cut_that_was_interrupted_can_be_done_again(tmp_path: Path) -> None:
    a_store(tmp_path)
    cut_at = record_before(tmp_path, 3000)
    corrupt(tmp_path, cut_at)
    moves: list[str] = []

    def interrupted(path: str, target: str) -> None:
        if len(moves) == 1:
            raise OSError(5, "the machine went down")
        moves.append(path)
        move(path, target)

    fields = {"set_aside": ("consumequeue/TopicA/0",), "cut_at": cut_at}
    request = RepairRequest(
        directory=str(tmp_path),
        side_directory=f"{tmp_path}/first",
        mapped_file_size_commit_log_bytes=COMMIT_LOG_BYTES,
        mapped_file_size_consume_queue_bytes=CONSUME_QUEUE_BYTES,
        mapper_file_size_batch_consume_queue_bytes=460,
        enable_consume_queue_ext=False,
        mapped_file_size_consume_queue_ext_bytes=4096,
        message_index_enable=False,
        max_hash_slot_num=100,
        max_index_num=400,
        **fields,  # type: ignore[arg-type] # two names of it
    )
    with pytest.raises(OSError, match="went down"):
        repair_store(request, RealDisk(), interrupted, wall_clock_ms=Clock())
    done = repaired(tmp_path, **fields)
    assert done.log_end == cut_at
    assert len(bodies(tmp_path)) > 0


def test_everything_can_be_cut_and_the_log_goes_on_where_it_began(tmp_path: Path) -> None:
    a_store(tmp_path)
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    done = repaired(tmp_path, cut_at=COMMIT_LOG_BYTES)
    assert (done.log_start, done.log_end) == (COMMIT_LOG_BYTES, COMMIT_LOG_BYTES)


def test_a_store_that_is_open_is_refused(tmp_path: Path) -> None:
    a_store(tmp_path)
    code = (
        "from store.machine.real_disk import RealDisk; import sys; RealDisk().lock(sys.argv[1]);"
        "print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, f"{tmp_path}/lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreLockedError):
            repaired(tmp_path, set_aside=("consumequeue/TopicA/0",))
        holder.kill()
    assert (tmp_path / "consumequeue" / "TopicA" / "0").exists()
