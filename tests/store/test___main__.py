import json
from pathlib import Path

import pytest

from store.__main__ import main, move
from store.machine.real_disk import RealDisk
from tests.store.store_world import COMMIT_LOG_BYTES, CONSUME_QUEUE_BYTES, open_store, put_many


def request(root: Path, **changes: object) -> bytes:
    fields = {
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
    return json.dumps(fields | changes).encode()


def test_a_repair_is_asked_for_and_answered_in_json(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with open_store(RealDisk(), str(tmp_path)) as store:
        put_many(store, 5)
        end = store.max_physical_offset
    assert main(["repair"], request(tmp_path)) == 0
    answer = json.loads(capfdbinary.readouterr().out)
    assert answer["log_end"] == end
    assert answer["kept"] == []


@pytest.mark.parametrize("asked", [b"no json", b"{}", b'{"directory": 5}', b'{"unknown": 1}'])
def test_a_request_that_cannot_be_read_is_2(
    asked: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repair"], asked) == 2
    assert "the request on standard input" in capsys.readouterr().err


def test_a_level_that_cannot_be_read_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_store(RealDisk(), str(tmp_path)).close()
    assert main(["repair"], request(tmp_path, message_delay_level="soon")) == 2
    assert "message_delay_level" in capsys.readouterr().err


def test_a_store_that_cannot_be_repaired_is_1_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(RealDisk(), str(tmp_path)) as store:
        put_many(store, 5)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(b"short")
    assert main(["repair"], request(tmp_path)) == 1
    assert "the file has 5 bytes" in capsys.readouterr().err.strip().splitlines()[-1]


def test_an_unknown_command_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["destroy"])
    assert ended.value.code == 2
    assert "repair" in capsys.readouterr().err


def test_what_is_not_there_need_not_be_moved(tmp_path: Path) -> None:
    move(f"{tmp_path}/missing", f"{tmp_path}/a/b")
    assert not (tmp_path / "a").exists()
    (tmp_path / "file").touch()
    move(f"{tmp_path}/file", f"{tmp_path}/a/b")
    assert (tmp_path / "a" / "b").exists()
