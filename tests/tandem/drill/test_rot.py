from pathlib import Path
from random import Random

import pytest

from tandem.drill.rot import (
    OF_STOPPED_NODES,
    NothingToHurtError,
    RotKind,
    closed_files,
    is_as_elsewhere,
    rot_log,
)
from tests.support.log_builder import LogBuilder


def a_store(folder: Path, *, message_count: int = 60) -> Path:
    log = LogBuilder(file_bytes=8192)
    for number in range(message_count):
        log.put(body=b"body %d " % number * 40)
    log.write(folder)
    return folder


def contents(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "commitlog").iterdir()}


@pytest.mark.parametrize("kind", OF_STOPPED_NODES)
def test_one_full_file_is_hurt_and_no_other(tmp_path: Path, kind: RotKind) -> None:
    for seed in range(20):
        store, other = a_store(tmp_path / f"{seed}"), a_store(tmp_path / f"{seed}-other")
        before = contents(store)
        names = [Path(file.path).name for file in closed_files(store)]
        assert max(before) not in names

        rot = rot_log(store, kind, Random(seed))

        after = contents(store)
        changed = {name for name in before if after.get(name) != before[name]}
        assert changed == {Path(rot.path).name} <= set(names)
        assert not is_as_elsewhere(rot, other)
        name = Path(rot.path).name
        if kind == "lose":
            assert name not in after
        else:
            assert after[name][: rot.start] == before[name][: rot.start]
        if kind in ("flip", "zero"):
            assert after[name][rot.end :] == before[name][rot.end :]
        Path(rot.path).write_bytes(before[name])
        assert is_as_elsewhere(rot, other)


def test_one_bit_is_one_bit(tmp_path: Path) -> None:
    store = a_store(tmp_path)
    before = contents(store)

    rot = rot_log(store, "flip", Random(3))

    name = Path(rot.path).name
    pairs = zip(before[name], contents(store)[name], strict=True)
    assert sum((old ^ new).bit_count() for old, new in pairs) == 1
    assert str(rot) == f"flip a bit of commitlog/{name} at {rot.start}"


def test_a_log_without_a_full_file_is_left_alone(tmp_path: Path) -> None:
    store = a_store(tmp_path, message_count=3)
    before = contents(store)
    with pytest.raises(NothingToHurtError):
        rot_log(store, "lose", Random(1))
    assert contents(store) == before
