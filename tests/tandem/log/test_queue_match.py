import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.log.findings import Finding
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tests.support.log_builder import LogBuilder
from tests.tandem.log.vectors import copy_of, overwrite

BATCH_UNIT = struct.Struct(">qiqqqhii")


def findings(root: Path) -> list[Finding]:
    return [f for f in verify_store(open_store_directory(root)).findings if f.severity != "note"]


def units(root: Path, queue: str = "TopicA/1") -> Path:
    return root / "consumequeue" / queue / f"{0:020d}"


@pytest.mark.parametrize(
    ("position", "data", "kind", "words"),
    [
        (20, struct.pack(">q", 137), "unit-without-record", "no record starts there"),
        (28, struct.pack(">i", 130), "unit-wrong", "its size"),
        (32, struct.pack(">q", 5), "unit-wrong", "its tags code"),
    ],
)
def test_a_unit_has_to_lead_to_its_record(
    tmp_path: Path, position: int, data: bytes, kind: str, words: str
) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(units(root), position, data)
    found = {finding.kind: finding for finding in findings(root)}
    assert words in found[kind].what
    assert found[kind].position == 20


def test_units_of_two_queues_must_not_be_exchanged(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "consumequeue" / "TopicA" / "1").rename(root / "consumequeue" / "TopicA" / "2")
    kinds = {finding.kind for finding in findings(root)}
    assert kinds == {"queue-unknown", "unit-without-record"}


def test_a_unit_one_place_off_is_found(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    data = units(root).read_bytes()
    units(root).write_bytes(data[20:].ljust(200, b"\0"))
    found = findings(root)
    assert {finding.kind for finding in found} == {"unit-wrong"}
    assert any("another queue offset" in finding.what for finding in found)


def test_a_prepared_message_must_be_in_no_queue(tmp_path: Path) -> None:
    root = copy_of("tran", tmp_path)
    overwrite(units(root, "T/0"), 20, struct.pack(">qiq", 93, 93, 0))
    found = {finding.kind: finding.what for finding in findings(root)}
    assert "belongs in none" in found["unit-without-record"]


def test_a_delayed_message_has_its_deliver_time_in_its_unit(tmp_path: Path) -> None:
    root = copy_of("tran", tmp_path)
    assert findings(root) == []
    overwrite(units(root, "SCHEDULE_TOPIC_XXXX/2"), 12, struct.pack(">q", 2598919))
    assert [finding.kind for finding in findings(root)] == ["unit-wrong"]


@pytest.mark.parametrize(
    ("position", "data"),
    [
        (0, struct.pack(">h", -1)),
        (2, struct.pack(">q", 5)),
        (10, struct.pack(">q", 5)),
    ],
)
def test_an_ext_unit_has_to_be_that_of_the_message(
    tmp_path: Path, position: int, data: bytes
) -> None:
    root = copy_of("ext", tmp_path)
    overwrite(root / "consumequeue_ext" / "T" / "0" / f"{100:020d}", position, data)
    assert [finding.kind for finding in findings(root)] == ["ext-unit"]


def test_an_ext_file_that_is_missing_is_found(tmp_path: Path) -> None:
    root = copy_of("ext", tmp_path)
    (root / "consumequeue_ext" / "T" / "0" / f"{0:020d}").unlink()
    (finding,) = {f.kind: f for f in findings(root)}.values()
    assert finding.kind == "ext-unit"


def a_batch_store(root: Path, change: Callable[[list[int]], None] | None = None) -> Path:
    log = LogBuilder()
    data = b""
    base = 0
    for count in (3, 1, 2):
        flag = 0xC0 if count > 1 else 0
        message = log.put(
            "T", queue_offset=base, sys_flag=flag, properties={"INNER_NUM": str(count)}
        )
        fields = [message.physical_offset, message.store_size, 0]
        fields += [message.store_timestamp_ms, base, count, -1, 0]
        if change is not None and count == 2:
            change(fields)
        data += BATCH_UNIT.pack(*fields)
        base += count
    log.write(root, consume_queues=False)
    folder = root / "batchconsumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(data.ljust(460, b"\0"))
    return root


def test_a_batch_queue_is_checked_by_its_own_units(tmp_path: Path) -> None:
    assert findings(a_batch_store(tmp_path)) == []


@pytest.mark.parametrize(
    ("field", "kind"), [(1, "unit-wrong"), (2, "unit-wrong"), (3, "unit-wrong"), (5, "unit-wrong")]
)
def test_a_batch_unit_has_to_be_that_of_its_record(tmp_path: Path, field: int, kind: str) -> None:
    def change(fields: list[int]) -> None:
        fields[field] += 1

    assert kind in {finding.kind for finding in findings(a_batch_store(tmp_path, change))}


def test_a_queue_of_another_topic_may_hold_the_record_if_it_is_a_light_one(tmp_path: Path) -> None:
    """LMQ: a message is entered in more queues than that of its topic."""
    root = copy_of("basic", tmp_path)
    data = units(root).read_bytes()
    folder = root / "consumequeue" / "%LMQ%device" / "0"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(data[20:40].ljust(200, b"\0"))
    assert findings(root) == []
    overwrite(folder / f"{0:020d}", 8, struct.pack(">i", 130))
    assert [finding.kind for finding in findings(root)] == ["unit-wrong"]
