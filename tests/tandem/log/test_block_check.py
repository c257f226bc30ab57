"""Closed files of a log are compared with their fingerprints."""

import os
from pathlib import Path

import pytest

from store.machine.real_disk import RealDisk
from tandem.log.findings import Finding
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tandem.wire.checksum_line import encode_checked_json
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint
from tests.store.store_world import open_store, put_many
from tests.tandem.log.vectors import log_file, our_store, overwrite, take_fingerprints

FILE_BYTES = 8192


def findings(root: Path) -> list[Finding]:
    report = verify_store(open_store_directory(root))
    return [finding for finding in report.findings if finding.kind[:6] in ("block-", "finger")]


def a_header(root: Path, offset: int = 0) -> int:
    """Return the place of a byte that no checksum covers: of the host where the first was born."""
    assert log_file(root, offset).read_bytes()[48:52] != bytes(4)
    return 50


def test_a_store_as_it_was_written_fits(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    assert len(take_fingerprints(root)) > 2
    assert findings(root) == []


def test_a_header_that_has_changed_is_found_with_its_block(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    take_fingerprints(root)
    overwrite(log_file(root, FILE_BYTES), a_header(root, FILE_BYTES), b"\xff")
    (found,) = findings(root)
    assert (found.kind, found.severity) == ("block-changed", "damage")
    assert (found.file, found.position) == (str(log_file(root, FILE_BYTES)), 0)
    assert (found.offset, found.count) == (FILE_BYTES, 1)
    assert f"offsets {FILE_BYTES} to {2 * FILE_BYTES}" in found.what


def test_each_block_is_found_and_many_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "large"
    with open_store(RealDisk(), str(root), commit_log_bytes=2 << 20) as store:
        put_many(store, 50, body_bytes=50_000)
    take_fingerprints(root)
    data = bytearray(log_file(root).read_bytes())
    for block in (3, 17):
        data[block * BLOCK_BYTES + 9] ^= 1
    log_file(root).write_bytes(data)
    assert [each.position for each in findings(root)] == [3 * BLOCK_BYTES, 17 * BLOCK_BYTES]
    for block in range(5, 30):
        data[block * BLOCK_BYTES + 7] ^= 1
    log_file(root).write_bytes(data)
    assert len(findings(root)) == 20
    assert sum(each.count for each in findings(root)) == 26


@pytest.mark.parametrize("era", [1, 7])
def test_what_another_program_has_written_anew_is_no_damage(tmp_path: Path, era: int) -> None:
    root = our_store(tmp_path)
    take_fingerprints(root, era=era)
    other = our_store(tmp_path / "other", body_bytes=310)
    log_file(root, FILE_BYTES).write_bytes(log_file(other, FILE_BYTES).read_bytes())
    (found,) = findings(root)
    assert (found.kind, found.severity) == ("fingerprint-outdated", "note")
    # A byte that changes by itself leaves no sound record, or is in one block of several.
    overwrite(log_file(root, FILE_BYTES), 200, b"\xff\xff\xff\xff")
    overwrite(log_file(root, FILE_BYTES), 0, b"\x7f")
    assert [each.kind for each in findings(root)] == ["block-changed"]


def test_of_this_era_nothing_is_outdated(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    take_fingerprints(root)
    other = our_store(tmp_path / "other", body_bytes=310)
    log_file(root, FILE_BYTES).write_bytes(log_file(other, FILE_BYTES).read_bytes())
    assert [each.kind for each in findings(root)] == ["block-changed"]
    # Somebody else has opened the store since.
    os.utime(root / "lock", ns=(0, 0))
    assert [each.kind for each in findings(root)] == ["fingerprint-outdated"]


@pytest.mark.slow
def test_no_flipped_bit_of_a_fingerprint_goes_unnoticed(tmp_path: Path) -> None:
    root = our_store(tmp_path, 30)
    path = take_fingerprints(root)[0]
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        assert [(each.kind, each.file) for each in findings(root)] == [
            ("fingerprint-file", str(path))
        ]


@pytest.mark.parametrize("content", [b"", bytes(100), b'{"start":0' + bytes(90)])
def test_one_that_a_stop_has_left_half_written_is_a_warning(tmp_path: Path, content: bytes) -> None:
    root = our_store(tmp_path, 30)
    take_fingerprints(root)[0].write_bytes(content)
    assert [(each.kind, each.severity) for each in findings(root)] == [
        ("fingerprint-torn", "warning")
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        Fingerprint(8192, 8192, bytes(4), 0, 1),
        Fingerprint(0, 8192, bytes(8), 0, 1),
        Fingerprint(0, 0, b"", 0, 1),
        Fingerprint(0, 1 << 62, bytes(4), 0, 1),
    ],
)
def test_numbers_that_do_not_belong_together_are_found(tmp_path: Path, wrong: Fingerprint) -> None:
    root = our_store(tmp_path, 30)
    path = take_fingerprints(root)[0]
    path.write_bytes(encode_checked_json(path.name, wrong))
    assert [each.kind for each in findings(root)] == ["fingerprint-file"]


def test_a_file_that_is_gone_or_short_is_no_finding_of_its_blocks(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    take_fingerprints(root)
    log_file(root, FILE_BYTES).unlink()
    with log_file(root).open("r+b") as file:
        file.truncate(700)
    assert findings(root) == []
