import shutil
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from store.machine.real_disk import RealDisk
from tandem.log.errors import BadRequestError, NoRepair, RepairError, RequestFault
from tandem.log.index_file import IndexSettings
from tandem.log.repair import RepairPlan, RepairResult, plan_repair, write_repair
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import verify_store
from tests.store.store_world import open_store
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, log_file, our_store, overwrite

UNIT_FILE = "consumequeue/TopicA/1/" + "0" * 20


def planned(root: Path, cut_at: int | None = None, *, accept_loss: bool = False) -> RepairPlan:
    return plan_repair(open_store_directory(root), cut_at=cut_at, accept_loss=accept_loss)


def repaired(root: Path, cut_at: int | None = None, *, accept_loss: bool = False) -> RepairResult:
    return write_repair(planned(root, cut_at, accept_loss=accept_loss))


def content(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def findings(root: Path) -> set[str]:
    report = verify_store(open_store_directory(root))
    return {finding.kind for finding in report.findings if finding.severity != "note"}


@pytest.mark.parametrize("name", NAMES)
def test_a_sound_store_needs_no_repair(name: str) -> None:
    assert planned(GOLDEN / name).is_needless


def change_unit(root: Path) -> None:
    overwrite(root / UNIT_FILE, 20, struct.pack(">q", 77))


def remove_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def change_index(root: Path) -> None:
    overwrite(next((root / "index").iterdir()), 40 + 400 + 5 * 20 + 4, struct.pack(">q", 137))


def tear(root: Path) -> None:
    (root / "abort").touch()
    overwrite(log_file(root), 408, b"half a record")


def shorten_the_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"short")


def lose_the_last_index_file(root: Path) -> None:
    next((root / "index").iterdir()).unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "step"),
    [
        (change_unit, "build the queue consumequeue/TopicA/1 anew"),
        (remove_queues, "build all queues anew"),
        (change_index, "build the index anew"),
        (shorten_the_checkpoint, "make a new checkpoint"),
        (tear, "cut off what follows the log, and keep it in torn/"),
    ],
)
def test_a_dry_run_changes_nothing_and_a_repair_makes_the_store_sound(
    tmp_path: Path, change: Callable[[Path], None], step: str
) -> None:
    root = copy_of("basic", tmp_path)
    golden = content(root)
    change(root)
    before = content(root)
    plan = planned(root)
    assert any(step in words for words in plan.steps), plan.steps
    assert plan.refusal == ""
    assert content(root) == before
    write_repair(plan)
    assert findings(root) == set()
    assert planned(root).is_needless
    after = content(root)
    queue = after["commitlog/" + "0" * 20], after[UNIT_FILE][:200]
    assert queue == (golden["commitlog/" + "0" * 20], golden[UNIT_FILE])


@pytest.mark.slow
def test_what_is_removed_is_kept_under_the_time_of_the_repair(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    change_unit(root)
    damaged = (root / UNIT_FILE).read_bytes()
    done = write_repair(planned(root), now=datetime(2026, 11, 21, 1, 2, 3, 456_000, UTC))
    side = root / "repair-20261121T010203456"
    assert done.kept == (f"{side}/consumequeue/TopicA/1",)
    assert (side / UNIT_FILE).read_bytes() == damaged
    assert done.rebuilt == ("consumequeue/TopicA/1",)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ext", "tran", "idx", "batch"])
def test_queues_of_every_kind_come_back_byte_for_byte(tmp_path: Path, name: str) -> None:
    root = copy_of(name, tmp_path)
    golden = content(root)
    for path in (root / "consumequeue").rglob("0" * 20):
        overwrite(path, 0, struct.pack(">q", 77))
    assert findings(root)
    repaired(root)
    assert findings(root) == set()
    after = content(root)
    for name_of, data in golden.items():
        if name_of.startswith("consumequeue"):
            assert after[name_of] == data, name_of


@pytest.mark.slow
def test_corruption_is_refused_with_the_number_of_messages_that_are_at_stake(
    tmp_path: Path,
) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 88, b"X")
    before = content(root)
    plan = planned(root)
    assert plan.cause is NoRepair.LOSS
    assert "lose 2 messages from there on: --cut-at 136 --accept-loss" in plan.refusal
    with pytest.raises(RepairError) as caught:
        write_repair(plan)
    assert (caught.value.cause, caught.value.exit_status) == (NoRepair.LOSS, 1)
    assert planned(root, 136).cause is NoRepair.LOSS  # the loss has to be accepted, too
    assert content(root) == before
    plan = planned(root, 136, accept_loss=True)
    assert plan.lost_count == 2
    done = write_repair(plan)
    assert done.log_end == 136
    assert findings(root) == set()
    report = verify_store(open_store_directory(root))
    assert report.record_count == 1


@pytest.mark.slow
def test_a_hole_in_the_log_is_cut_off_where_it_begins(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    log_file(root, 8192).unlink()
    plan = planned(root)
    assert (plan.cause, plan.cut_at) == (NoRepair.LOSS, 8192)
    done = repaired(root, 8192, accept_loss=True)
    assert done.log_end == 8192
    assert findings(root) == set()


def test_a_place_that_is_none_is_refused(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    with pytest.raises(BadRequestError) as caught:
        planned(root, 100, accept_loss=True)
    assert (caught.value.fault, caught.value.offset) == (RequestFault.CUT_IN_RECORD, 100)
    overwrite(log_file(root), 136 + 88, b"X")
    with pytest.raises(BadRequestError) as caught:
        planned(root, 272, accept_loss=True)
    assert (caught.value.fault, caught.value.offset) == (RequestFault.CUT_AFTER_DAMAGE, 136)


def test_a_log_alone_cannot_be_repaired() -> None:
    with pytest.raises(BadRequestError) as caught:
        planned(GOLDEN / "basic" / "commitlog")
    assert caught.value.fault is RequestFault.NO_LOG


def test_a_store_that_is_open_is_refused(tmp_path: Path) -> None:
    root = our_store(tmp_path, 3)
    with open_store(RealDisk(), str(root)):
        assert planned(root).cause is NoRepair.IN_USE


def test_a_file_of_the_wrong_length_is_not_guessed_at(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    log_file(root, 8192).write_bytes(b"x" * 100)
    assert planned(root).cause is NoRepair.FILE_LENGTH


def test_an_index_of_unknown_settings_is_left_alone_and_said_so(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(next((root / "index").iterdir()), 32, struct.pack(">i", 77))
    plan = planned(root)
    assert any("name --max-hash-slot-num" in step for step in plan.steps)
    assert plan.request["message_index_enable"] is False
    store = open_store_directory(root)
    plan = plan_repair(store, index_settings=IndexSettings(100, 400))
    assert any("build the index anew" in step for step in plan.steps)
    assert plan.request["max_hash_slot_num"] == 100


@pytest.mark.slow
def test_an_index_can_be_asked_for(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    lose_the_last_index_file(root)
    assert planned(root).is_needless
    store = open_store_directory(root)
    done = write_repair(plan_repair(store, index_settings=IndexSettings(100, 400)))
    assert done.index_end == 272
    assert findings(root) == set()


@pytest.mark.slow
def test_what_the_store_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    change_unit(root)
    plan = planned(root)
    (root / "commitlog" / "stray").write_bytes(b"x")  # since the plan was made
    with pytest.raises(RepairError, match="move it out of this directory") as caught:
        write_repair(plan)
    assert (caught.value.cause, caught.value.exit_status) == (NoRepair.STORE, 1)
