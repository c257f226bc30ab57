"""What the nodes of a machine share is checked: the coordinator's journal and the secret."""

from pathlib import Path

import pytest

from tandem.cluster_file.secret_file import make_secret
from tandem.coordinator.journal import DiskFile, Journal
from tandem.coordinator.kv import KeyValueStore
from tandem.coordinator.kv_records import PutOperation
from tandem.log.cluster_files import check_cluster_files, is_coordinator, verify_coordinator
from tandem.log.findings import Finding, FindingList
from tests.tandem.log.vectors import overwrite


def a_journal(data: Path) -> Path:
    """An image and three changes, and room after them."""
    journal = Journal(DiskFile(data / "coordinator"), replace_bytes_min=4096)
    store = KeyValueStore(on_change=journal.record)
    journal.restore(store, 0.0)
    for key in (b"a", b"b", b"c"):
        store.transact([], [PutOperation(key, b"value", 0)], [], 0.0)
        write = journal.take(store)
        write.to_disk()
        journal.settle(write)
    journal.close()
    return data / "coordinator" / "journal"


def found(data: Path) -> list[Finding]:
    findings = FindingList()
    check_cluster_files(data, findings)
    return findings.all()


def pairs_of(content: bytes) -> list[tuple[int, int]]:
    """Where each record begins, and how long it is without its copy."""
    pairs, at = [], 0
    while size := int.from_bytes(content[at : at + 4], "big"):
        pairs.append((at, size + 8))
        at += 2 * (size + 8)
    return pairs


def test_a_journal_as_it_was_written_is_sound(tmp_path: Path) -> None:
    path = a_journal(tmp_path)
    assert found(tmp_path) == []
    report = verify_coordinator(path.parent)
    assert (report.record_count, report.findings) == (4, ())
    assert report.bytes_read == len(path.read_bytes().rstrip(b"\0"))


@pytest.mark.slow
def test_no_flipped_bit_of_a_journal_goes_unnoticed(tmp_path: Path) -> None:
    path = a_journal(tmp_path)
    whole = path.read_bytes()
    pairs = pairs_of(whole)
    for at in range(len(whole.rstrip(b"\0"))):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        (only,) = found(tmp_path)
        start, size = next(pair for pair in reversed(pairs) if pair[0] <= at)
        is_last_copy = start == pairs[-1][0] and at >= start + size
        assert only.kind == ("coordinator-torn" if is_last_copy else "coordinator-copy"), at
        assert (only.file, only.severity) == (str(path), "warning")
        assert only.position == start + size * (at >= start + size)


def test_a_record_whose_copy_has_changed_as_well_is_damage(tmp_path: Path) -> None:
    path = a_journal(tmp_path)
    whole = path.read_bytes()
    for start, size in pairs_of(whole)[:-1]:
        overwrite(path, start + 12, bytes([whole[start + 12] ^ 1]))
        overwrite(path, start + size + 12, bytes([whole[start + size + 12] ^ 1]))
        (only,) = verify_coordinator(path.parent).findings
        assert (only.kind, only.severity) == ("coordinator-journal", "damage")
        assert only.position == start
        assert "`tandem ha recover-group GROUP`" in only.remedy
        path.write_bytes(whole)


def test_a_torn_end_is_a_warning(tmp_path: Path) -> None:
    path = a_journal(tmp_path)
    whole = path.read_bytes()
    start, size = pairs_of(whole)[-1]
    path.write_bytes(whole[: start + size // 2] + bytes(100))
    (only,) = found(tmp_path)
    assert (only.kind, only.position) == ("coordinator-torn", start)


def test_a_journal_of_nothing_but_zeros_is_damage(tmp_path: Path) -> None:
    a_journal(tmp_path).write_bytes(bytes(4096))
    assert [only.kind for only in found(tmp_path)] == ["coordinator-journal"]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff of another program \xfe")
    (tmp_path / "coordinator").mkdir()
    assert not is_coordinator(tmp_path / "coordinator")
    (tmp_path / "secret").write_bytes(b"{" * 100_000)
    assert found(tmp_path) == []


@pytest.mark.parametrize("hostile", [b"", b"\0", b"\xff" * 500, b"\0\0\0\1" * 4000])
def test_a_journal_of_any_bytes_is_a_finding_at_most(tmp_path: Path, hostile: bytes) -> None:
    a_journal(tmp_path).write_bytes(hostile)
    assert {only.kind for only in found(tmp_path)} <= {"coordinator-journal"}


def test_a_changed_byte_of_a_secret_is_damage(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    assert found(tmp_path) == []
    overwrite(tmp_path / "secret", 5, b"?")
    (only,) = found(tmp_path)
    assert (only.kind, only.severity, only.file) == (
        "secret-file",
        "damage",
        str(tmp_path / "secret"),
    )
