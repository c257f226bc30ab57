"""Files of a log are replaced as a whole by what another copy has; each step can be interrupted."""

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import store.log_from_copy
from store.__main__ import main, move
from store.log.damage import LogDamage
from store.log_from_copy import HealFile, HealRange, HealRequest, HealResult, heal_log
from store.machine.errors import CorruptLogError, LogFault, StoreLockedError
from store.machine.real_disk import RealDisk
from tandem.wire.crc import raw_crc32
from tests.store.store_world import COMMIT_LOG_BYTES, open_store, put_many

BAD = range(300, 340)

_HOLD = """
import sys
from store.machine.real_disk import RealDisk
release = RealDisk().lock(sys.argv[1])
print(flush=True)
sys.stdin.read()
"""


def stores(folder: Path) -> tuple[Path, Path]:
    """A store with some changed bytes in its first file, and a copy without."""
    with open_store(RealDisk(), str(folder / "ours")) as opened:
        put_many(opened, 60)
    shutil.copytree(folder / "ours", folder / "copy")
    first = log_file(folder / "ours")
    data = bytearray(first.read_bytes())
    data[BAD.start : BAD.stop] = b"\xff" * len(BAD)
    first.write_bytes(data)
    return folder / "ours", folder / "copy"


def log_file(root: Path, offset: int = 0) -> Path:
    return root / "commitlog" / f"{offset:020d}"


def request_for(ours: Path, copy: Path, crc: int | None = None) -> HealRequest:
    data = log_file(copy).read_bytes()[BAD.start : BAD.stop]
    found = HealRange(BAD.start, BAD.stop, raw_crc32(data) if crc is None else crc)
    size = COMMIT_LOG_BYTES
    file = HealFile(
        offset=0,
        path=str(log_file(ours)),
        source=str(log_file(copy)),
        is_missing=False,
        size_before=size,
        ranges=(found,),
    )
    return HealRequest(
        directory=str(ours),
        side_directory=f"{ours}/repair-1",
        file_bytes=size,
        files=(file,),
    )


def healed(ours: Path, copy: Path) -> HealResult:
    return heal_log(request_for(ours, copy), RealDisk(), move)


def test_bytes_are_replaced_and_those_before_are_kept(tmp_path: Path) -> None:
    ours, copy = stores(tmp_path)
    done = healed(ours, copy)
    assert log_file(ours).read_bytes() == log_file(copy).read_bytes()
    assert Path(done.kept[0]).read_bytes() == b"\xff" * len(BAD)
    assert (done.healed_bytes, done.healed) == (len(BAD), (str(log_file(ours)),))


def test_what_was_noted_as_bad_is_whole_again(tmp_path: Path) -> None:
    ours, copy = stores(tmp_path)
    damage = LogDamage(RealDisk(), str(ours), lambda: 5)
    damage.note(BAD.start, BAD.stop, "its CRC")
    damage.note(5000, 5100, "another")
    healed(ours, copy)
    left = LogDamage(RealDisk(), str(ours)).ranges
    assert [(bad.start, bad.end) for bad in left] == [(5000, 5100)]


@pytest.mark.parametrize("name", ["_expect_same", "_copy"])
def test_an_interrupted_healing_leaves_the_old_file_and_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ours, copy = stores(tmp_path)
    before = log_file(ours).read_bytes()

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(store.log_from_copy, name, fail)
        with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
            healed(ours, copy)
    assert log_file(ours).read_bytes() == before
    assert sorted(path.name for path in (ours / "commitlog").iterdir()) == sorted(
        path.name for path in (copy / "commitlog").iterdir()
    )
    healed(ours, copy)
    assert log_file(ours).read_bytes() == log_file(copy).read_bytes()


def test_bytes_that_are_not_what_was_planned_are_not_taken(tmp_path: Path) -> None:
    ours, copy = stores(tmp_path)
    before = log_file(ours).read_bytes()
    with pytest.raises(CorruptLogError) as caught:
        heal_log(request_for(ours, copy, crc=1), RealDisk(), move)
    assert caught.value.fault is LogFault.CHANGED
    assert caught.value.path == str(log_file(copy))
    assert log_file(ours).read_bytes() == before


def test_a_store_that_is_open_is_left_alone(tmp_path: Path) -> None:
    ours, copy = stores(tmp_path)
    before = log_file(ours).read_bytes()
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, f"{ours}/lock"], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StoreLockedError):
            healed(ours, copy)
        holder.kill()
    assert log_file(ours).read_bytes() == before


def test_the_command_reads_a_request_and_prints_what_it_did(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ours, copy = stores(tmp_path)
    request = request_for(ours, copy)
    fields = {
        "directory": request.directory,
        "side_directory": request.side_directory,
        "file_bytes": request.file_bytes,
        "files": [
            {
                "offset": 0,
                "path": request.files[0].path,
                "source": request.files[0].source,
                "is_missing": False,
                "size_before": COMMIT_LOG_BYTES,
                "ranges": [
                    {"start": each.start, "end": each.end, "crc32": each.crc32}
                    for each in request.files[0].ranges
                ],
            }
        ],
    }
    assert main(["heal"], json.dumps(fields).encode()) == 0
    assert json.loads(capfdbinary.readouterr().out)["healed_bytes"] == len(BAD)
    assert main(["heal"], b"{}") == 2
