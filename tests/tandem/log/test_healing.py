"""A log is healed from another copy of it, and from nothing else."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ha.fenced.epoch_file import EpochFile
from store.machine.real_disk import RealDisk
from tandem.log.errors import BadRequestError, NoRepair, RepairError, RequestFault
from tandem.log.healing import HealPlan, plan_healing, record_trouble
from tandem.log.repair import plan_repair, write_healing, write_repair
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tests.store.store_world import open_store, put_many
from tests.tandem.log.vectors import (
    copy_of,
    log_file,
    our_store,
    overwrite,
    take_fingerprints,
)

FILE_BYTES = 8192


def planned(root: Path, source: Path, *, with_older: bool = False) -> HealPlan:
    store = open_store_directory(root)
    report = verify_store(store)
    return plan_healing(store, open_store_directory(source), report, with_older=with_older)


def two_copies(folder: Path) -> tuple[Path, Path]:
    ours = our_store(folder)
    return ours, Path(shutil.copytree(ours, folder / "copy"))


def log_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def damage_kinds(root: Path) -> set[str]:
    report = verify_store(open_store_directory(root))
    return {finding.kind for finding in report.findings if finding.severity == "damage"}


def flip_a_body(root: Path) -> None:
    overwrite(log_file(root), 300, b"\xff")


def flip_a_size(root: Path) -> None:
    """TOTALSIZE of the second record: nothing of it can be trusted."""
    size = int.from_bytes(log_file(root).read_bytes()[:4], "big")
    overwrite(log_file(root), size, b"\x7f")


def zero_a_page(root: Path) -> None:
    overwrite(log_file(root, FILE_BYTES), 0, bytes(4096))


def break_the_blank_record(root: Path) -> None:
    data = log_file(root).read_bytes()
    overwrite(log_file(root), data.rindex(bytes.fromhex("cbd43194")), b"\x00")


def lose_a_file(root: Path) -> None:
    log_file(root, FILE_BYTES).unlink()


def shorten_a_file(root: Path) -> None:
    with log_file(root, FILE_BYTES).open("r+b") as file:
        file.truncate(700)


def lose_the_last_file(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()


def lengthen_a_file(root: Path) -> None:
    with log_file(root).open("ab") as file:
        file.write(b"more")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        flip_a_body,
        flip_a_size,
        zero_a_page,
        break_the_blank_record,
        lose_a_file,
        shorten_a_file,
        lose_the_last_file,
        lengthen_a_file,
    ],
)
def test_what_is_bad_here_and_whole_there_is_healed(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    ours, copy = two_copies(tmp_path)
    change(ours)
    assert damage_kinds(ours)
    before = log_of(ours)
    plan = planned(ours, copy)
    assert (plan.refusal, plan.left) == ("", ())
    assert plan.steps
    assert log_of(ours) == before
    done = write_healing(plan)
    assert log_of(ours) == log_of(copy)
    assert not damage_kinds(ours)
    assert planned(ours, copy).is_needless
    for path in done.kept:
        offset, kept = int(Path(path).name), Path(path).read_bytes()
        file = before[f"{offset - offset % FILE_BYTES:020d}"]
        at = offset % FILE_BYTES if change is not lengthen_a_file else FILE_BYTES
        if change is not lengthen_a_file:
            assert file[at : at + len(kept)] == kept
        else:
            assert kept == b"more"


def test_a_store_of_rocketmq_is_healed_from_its_copy(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    overwrite(log_file(root), 224, b"X")
    assert damage_kinds(root) == {"record-crc"}
    done = write_healing(planned(root, copy))
    assert not damage_kinds(root)
    assert log_of(root) == log_of(copy)
    assert Path(done.kept[0]).read_bytes()[224 - 136 : 225 - 136] == b"X"


def test_a_copy_may_be_only_a_log_and_may_be_open_in_a_node(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    flip_a_body(ours)
    with open_store(RealDisk(), str(copy)):
        write_healing(planned(ours, copy / "commitlog"))
    assert not damage_kinds(ours)


def test_a_store_that_a_node_has_open_is_refused(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    flip_a_body(ours)
    with open_store(RealDisk(), str(ours)):
        plan = planned(ours, copy)
    assert plan.cause is NoRepair.IN_USE


@pytest.mark.slow
def test_what_is_bad_in_both_is_named_and_the_rest_is_healed(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    flip_a_body(ours)
    flip_a_body(copy)
    plan = planned(ours, copy)
    assert not plan.files
    assert "is bad here, and in" in plan.left[0]
    zero_a_page(ours)
    plan = planned(ours, copy)
    assert len(plan.files) == 1
    assert "is bad here, and in" in plan.left[0]
    write_healing(plan)
    assert damage_kinds(ours) == {"record-crc"}


@pytest.mark.parametrize("body_bytes", [300, 200])
def test_a_log_that_was_the_same_once_is_refused(tmp_path: Path, body_bytes: int) -> None:
    """Its first records are ours. Ours, after those, are sound where theirs have other lengths."""
    ours = our_store(tmp_path)
    with open_store(RealDisk(), str(tmp_path / "other")) as store:
        put_many(store, 5)
        put_many(store, 60, start=500, body_bytes=body_bytes)
    flip_a_body(ours)
    plan = planned(ours, tmp_path / "other")
    assert plan.cause is NoRepair.OTHER_RECORD
    assert "tandem log diff" in plan.refusal
    assert not plan.steps
    with pytest.raises(RepairError) as caught:
        write_healing(plan)
    assert caught.value.cause is NoRepair.OTHER_RECORD


def test_a_byte_that_no_checksum_covers_is_not_decided(tmp_path: Path) -> None:
    """The born time of the first record: either of the two may be right."""
    ours, copy = two_copies(tmp_path)
    overwrite(log_file(ours), 44, b"\x77")
    assert planned(ours, copy).cause is NoRepair.OTHER_RECORD


def test_logs_without_a_record_in_common_are_refused(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    for name, data in log_of(ours).items():
        (ours / "commitlog" / name).write_bytes(b"\xaa" * len(data))
    assert planned(ours, copy).cause is NoRepair.NOTHING_IN_COMMON


def test_files_of_another_length_are_refused(tmp_path: Path) -> None:
    with open_store(RealDisk(), str(tmp_path / "large"), commit_log_bytes=2 * FILE_BYTES) as store:
        put_many(store, 60)
    plan = planned(our_store(tmp_path), tmp_path / "large")
    assert plan.cause is NoRepair.OTHER_SIZE


def test_the_store_itself_and_an_empty_directory_are_no_copies(tmp_path: Path) -> None:
    ours = our_store(tmp_path)
    with pytest.raises(BadRequestError) as caught:
        planned(ours, ours)
    assert caught.value.fault is RequestFault.SAME_STORE
    (tmp_path / "empty/commitlog").mkdir(parents=True)
    with pytest.raises(BadRequestError) as caught:
        planned(ours, tmp_path / "empty")
    assert caught.value.fault is RequestFault.NO_LOG
    assert caught.value.subject == str(tmp_path / "empty")


def test_lists_of_epochs_have_to_agree(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    flip_a_body(ours)
    EpochFile(RealDisk(), str(ours)).append(3, 0, "a1")
    assert planned(ours, copy).cause is NoRepair.OTHER_EPOCHS
    EpochFile(RealDisk(), str(copy)).append(3, 0, "b2")
    assert planned(ours, copy).cause is NoRepair.OTHER_EPOCHS


def test_files_before_the_first_one_are_copied_on_demand(tmp_path: Path) -> None:
    """Where nothing says whether they were deleted because they were old, or lost."""
    ours, copy = two_copies(tmp_path)
    (ours / "log-start.json").unlink()
    log_file(ours).unlink()
    assert planned(ours, copy).is_needless
    plan = planned(ours, copy, with_older=True)
    assert "copy the missing file" in plan.steps[0]
    write_healing(plan)
    assert log_of(ours) == log_of(copy)


def test_files_before_the_first_one_are_copied_where_retention_did_not_delete_them(
    tmp_path: Path,
) -> None:
    ours, copy = two_copies(tmp_path)
    log_file(ours).unlink()
    assert damage_kinds(ours) >= {"log-start"}
    write_healing(planned(ours, copy))
    assert log_of(ours) == log_of(copy)
    assert not damage_kinds(ours)


@pytest.mark.slow
def test_queues_that_contradict_the_healed_log_are_built_anew(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    lose_a_file(ours)
    shutil.rmtree(ours / "consumequeue")
    write_healing(planned(ours, copy))
    write_repair(plan_repair(open_store_directory(ours)))
    assert not damage_kinds(ours)


def test_a_copy_that_changes_meanwhile_is_not_taken(tmp_path: Path) -> None:
    ours, copy = two_copies(tmp_path)
    flip_a_body(ours)
    before = log_of(ours)
    plan = planned(ours, copy)
    flip_a_body(copy)
    with pytest.raises(RepairError) as caught:
        write_healing(plan)
    assert caught.value.cause is NoRepair.STORE
    assert str(copy) in str(caught.value)
    assert log_of(ours) == before


def test_no_flipped_bit_of_a_body_or_of_a_length_passes_for_a_record(tmp_path: Path) -> None:
    data = log_file(our_store(tmp_path)).read_bytes()
    record = data[: int.from_bytes(data[:4], "big")]
    assert record_trouble(record, 0) is None
    for at in (*range(12), *range(28, 36), *range(84, 384)):
        changed = bytearray(record)
        changed[at] ^= 0x10
        assert record_trouble(bytes(changed), 0) is not None, at


def test_a_header_that_a_fingerprint_covers_is_healed(tmp_path: Path) -> None:
    ours, theirs = two_copies(tmp_path)
    take_fingerprints(ours)
    overwrite(log_file(ours), 50, b"\xff")
    plan = planned(ours, theirs)
    assert plan.steps == (
        f"take over offsets 0 to {FILE_BYTES} of {log_file(ours)} from {log_file(theirs)}:"
        " the block does not fit its fingerprint",
    )
    assert write_healing(plan).healed_bytes == FILE_BYTES
    assert log_of(ours) == log_of(theirs)
    assert damage_kinds(ours) == set()


def test_where_ours_fits_its_fingerprint_the_other_one_is_the_bad_one(tmp_path: Path) -> None:
    ours, theirs = two_copies(tmp_path)
    take_fingerprints(ours)
    before = log_of(ours)
    overwrite(log_file(theirs), 50, b"\xff")
    zero_a_page(ours)
    plan = planned(ours, theirs)
    assert not plan.refusal
    write_healing(plan)
    assert log_of(ours) == before
    assert damage_kinds(ours) == set()


def test_a_header_that_differs_from_the_fingerprint_in_both_is_not_decided(tmp_path: Path) -> None:
    ours, theirs = two_copies(tmp_path)
    take_fingerprints(ours)
    overwrite(log_file(ours), 50, b"\xff")
    overwrite(log_file(theirs), 51, b"\xff")
    assert planned(ours, theirs).cause is NoRepair.OTHER_RECORD


def test_a_fingerprint_that_was_taken_of_damaged_bytes_goes_with_them(tmp_path: Path) -> None:
    ours, theirs = two_copies(tmp_path)
    flip_a_body(ours)
    first, *others = take_fingerprints(ours)
    write_healing(planned(ours, theirs))
    assert log_of(ours) == log_of(theirs)
    assert not first.exists()
    assert all(path.exists() for path in others)
    assert damage_kinds(ours) == set()
