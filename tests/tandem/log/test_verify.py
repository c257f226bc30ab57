import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.machine.real_disk import RealDisk
from tandem.log import log_scan, verify
from tandem.log.dump import dump_records
from tandem.log.errors import BadRequestError, RequestFault
from tandem.log.index_file import IndexSettings
from tandem.log.listing import list_store
from tandem.log.pieces import LogPiece, cut_log
from tandem.log.record_filter import RecordFilter
from tandem.log.stat import store_stat
from tandem.log.store_directory import open_store_directory
from tandem.log.verify import VerifyReport, verify_store
from tandem.wire.message import MESSAGE_MAGIC_CODE
from tests.store.store_world import open_store
from tests.support.log_builder import LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import NAMES, copy_of, log_file, our_store, overwrite

FILE_BYTES = 8192


def verified(root: Path) -> VerifyReport:
    return verify_store(open_store_directory(root))


def kinds(root: Path, *, notes: bool = False) -> set[str]:
    report = verified(root)
    return {found.kind for found in report.findings if notes or found.severity != "note"}


@pytest.mark.parametrize("name", NAMES)
def test_every_store_of_rocketmq_is_sound(name: str) -> None:
    report = verified(GOLDEN / name)
    assert report.findings == ()
    assert report.record_count > 0
    assert report.log_end > 0


def test_a_store_of_ours_is_sound(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    assert kinds(root) == set()
    report = verified(root)
    assert (report.record_count, report.unit_count, report.queue_count) == (60, 60, 3)


@pytest.mark.parametrize("piece_bytes", [300, 1000, 5000])
def test_pieces_give_the_same_report_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    root = our_store(tmp_path)
    queue = root / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    overwrite(queue, 40, struct.pack(">q", 77))
    overwrite(log_file(root), 3000, b"damage")
    whole = verified(root)
    assert whole.damage_count > 2

    def cut(files: object) -> list[LogPiece]:
        return cut_log(open_store_directory(root).commit_log, piece_bytes)

    monkeypatch.setattr(verify, "cut_log", cut)
    assert verified(root) == whole


@pytest.mark.slow
def test_several_processes_give_the_same_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = our_store(tmp_path)
    overwrite(log_file(root), 3000, b"damage")
    progress: list[tuple[int, int]] = []
    whole = verified(root)
    monkeypatch.setattr(verify, "ALONE_BYTES_MAX", 0)
    monkeypatch.setattr(verify, "UNITS_ALONE_BYTES_MAX", 0)
    store = open_store_directory(root)
    report = verify_store(store, jobs=2, on_progress=lambda *done: progress.append(done))
    assert report == whole
    assert progress[-1][0] == progress[-1][1] == whole.bytes_read
    assert sorted(progress) == progress


def test_a_body_that_imitates_a_record_fools_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut that falls on it is found out by the piece before, and cut again."""
    log = LogBuilder()
    log.put(body=b"x" * 400)
    fake_at = log.end_offset + 84 + 4 + 100
    fake = LogBuilder()
    fake.put(body=b"y" * 50)
    inner = fake.log
    inner[28:36] = fake_at.to_bytes(8, "big")
    log.put(body=b"z" * 100 + bytes(inner) + b"z" * 2000)
    for _ in range(5):
        log.put(body=b"x" * 400)
    root = log.write(tmp_path)
    files = open_store_directory(root).commit_log
    pieces = cut_log(files, fake_at - 50)
    assert fake_at in [piece.offset for piece in pieces]
    monkeypatch.setattr(verify, "cut_log", lambda _: pieces)
    assert kinds(root) == set()
    assert verified(root).record_count == 7


# -- damage ---------------------------------------------------------------------------------------

UNIT_FILE = "consumequeue/TopicA/1/" + "0" * 20


def change_magic(root: Path) -> None:
    overwrite(log_file(root), 136 + 4, b"XXXX")


def change_body(root: Path) -> None:
    overwrite(log_file(root), 136 + 88, b"X")


def change_last_body(root: Path) -> None:
    overwrite(log_file(root), 272 + 88, b"X")


def change_length(root: Path) -> None:
    overwrite(log_file(root), 136, struct.pack(">i", 500))


def change_place(root: Path) -> None:
    overwrite(log_file(root), 136 + 28, struct.pack(">q", 5))


def zero_the_log(root: Path) -> None:
    overwrite(log_file(root), 136, bytes(8192 - 136))


def cut_the_file(root: Path) -> None:
    with log_file(root).open("r+b") as file:
        file.truncate(300)


def add_a_short_file(root: Path) -> None:
    log_file(root, 8192).write_bytes(b"x" * 100)


def raise_confirm_offset(root: Path) -> None:
    overwrite(root / "checkpoint", 32, struct.pack(">q", 5000))


def shorten_the_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"short")


def put_garbage_behind_the_end(root: Path) -> None:
    overwrite(log_file(root), 408, b"garbage")


def put_time_ahead(root: Path) -> None:
    overwrite(root / "checkpoint", 0, struct.pack(">q", 2**50))


def remove_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def remove_one_queue(root: Path) -> None:
    (root / "consumequeue" / "other" / "0").mkdir(parents=True)
    shutil.rmtree(root / "consumequeue" / "TopicA")


def remove_a_known_queue(root: Path) -> None:
    remove_one_queue(root)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"TopicA":{"perm":6}}}')


def lead_a_unit_astray(root: Path) -> None:
    overwrite(root / UNIT_FILE, 20, struct.pack(">q", 5000))


def lead_the_last_unit_far_astray(root: Path) -> None:
    overwrite(root / UNIT_FILE, 40, struct.pack(">q", 2**60))


def add_notes(root: Path) -> None:
    (root / "commitlog" / "notes").touch()


def damage_index_settings(root: Path) -> None:
    path = next((root / "index").iterdir())
    overwrite(path, 32, struct.pack(">i", 77))


@pytest.mark.parametrize(
    ("change", "found", "is_damage"),
    [
        (change_magic, {"record-corrupt"}, True),
        (change_body, {"record-crc"}, True),
        (change_last_body, {"log-end-damaged"}, True),
        (change_length, {"record-corrupt"}, True),
        (change_place, {"record-corrupt"}, True),
        (zero_the_log, {"log-end-damaged"}, True),
        (cut_the_file, {"log-end-damaged"}, True),
        (add_a_short_file, {"log-file-length", "leftover"}, True),
        (raise_confirm_offset, {"log-end-damaged"}, True),
        (shorten_the_checkpoint, {"checkpoint-length"}, True),
        (put_garbage_behind_the_end, {"leftover"}, False),
        (put_time_ahead, {"checkpoint-ahead"}, False),
        (remove_queues, {"queues-absent"}, False),
        (remove_one_queue, {"queue-unknown"}, False),
        (remove_a_known_queue, {"queue-missing"}, True),
        (lead_a_unit_astray, {"unit-missing", "unit-order"}, True),
        (lead_the_last_unit_far_astray, {"unit-missing", "unit-without-record"}, True),
        (add_notes, {"stray-file"}, False),
        (damage_index_settings, {"index-settings"}, True),
    ],
)
def test_damage_is_told_from_what_is_none(
    tmp_path: Path, change: Callable[[Path], None], found: set[str], *, is_damage: bool
) -> None:
    root = copy_of("basic", tmp_path)
    change(root)
    assert found <= kinds(root, notes=True)
    assert (verified(root).damage_count > 0) is is_damage


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (change_last_body, {"torn-tail", "queues-ahead", "index-ahead"}),
        (put_garbage_behind_the_end, {"torn-tail"}),
        (remove_one_queue, {"dispatch-behind"}),
    ],
)
def test_after_a_crash_what_the_next_start_repairs_is_a_warning(
    tmp_path: Path, change: Callable[[Path], None], found: set[str]
) -> None:
    root = copy_of("basic", tmp_path)
    (root / "abort").touch()
    overwrite(root / "checkpoint", 0, bytes(16))
    change(root)
    assert kinds(root) == found
    assert verified(root).damage_count == 0


def change_a_unit(root: Path) -> None:
    overwrite(root / UNIT_FILE, 20, struct.pack(">q", 77))


def lose_a_unit(root: Path) -> None:
    overwrite(root / UNIT_FILE, 20, bytes(20))


def change_an_index(root: Path) -> None:
    overwrite(next((root / "index").iterdir()), 40 + 400 + 5 * 20 + 4, struct.pack(">q", 137))


@pytest.mark.parametrize("change", [change_a_unit, lose_a_unit, change_an_index])
def test_after_a_crash_what_the_checkpoint_does_not_vouch_for_is_excused(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    root = copy_of("basic", tmp_path)
    change(root)
    assert verified(root).damage_count > 0
    (root / "abort").touch()
    assert kinds(root) == {"unsynced"}
    if change is not change_an_index:
        overwrite(root / "checkpoint", 0, struct.pack(">q", 2**50) * 2)
        assert verified(root).damage_count > 0


def test_after_a_crash_what_the_checkpoint_knew_is_damage(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "abort").touch()
    change_magic(root)
    assert kinds(root) == {"torn-tail", "queues-ahead", "index-ahead"}
    overwrite(root / "checkpoint", 0, struct.pack(">q", 2**50))
    assert "record-corrupt" in kinds(root)


def test_records_that_a_recovery_of_rocketmq_left_behind_are_leftovers(tmp_path: Path) -> None:
    """It cuts without erasing (deviation 3): old records lie behind the end, and old units."""
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 4, b"XXXX")
    overwrite(root / UNIT_FILE, 20, bytes(180))
    overwrite(root / "checkpoint", 0, struct.pack(">q", 1_795_218_857_974) * 2)
    assert kinds(root) == {"leftover", "index-ahead"}


def test_a_topic_that_was_deleted_and_created_again_is_sound(tmp_path: Path) -> None:
    """Deleting a topic deletes its queues; its records stay in the log."""
    log = LogBuilder()
    for number in (0, 1, 0):
        log.put(queue_offset=number)
    root = log.write(tmp_path)
    last = log.messages[-1]
    path = root / "consumequeue" / "TopicA" / "0" / f"{0:020d}"
    unit = struct.pack(">qiq", last.physical_offset, last.store_size, 0)
    path.write_bytes(unit.ljust(20_000, b"\0"))
    assert kinds(root) == set()
    assert "earlier-life" in kinds(root, notes=True)


def test_a_hole_between_log_files_is_damage(tmp_path: Path) -> None:
    root = our_store(tmp_path)
    log_file(root, FILE_BYTES).unlink()
    assert "log-file-missing" in kinds(root)


def test_a_log_alone_is_checked_alone() -> None:
    report = verified(GOLDEN / "basic" / "commitlog")
    assert {found.kind for found in report.findings} == {"queues-absent", "index-absent"}
    assert report.damage_count == report.warning_count == 0


def test_a_store_in_use_is_not_blamed_for_what_it_is_writing(tmp_path: Path) -> None:
    root = our_store(tmp_path, 5)
    with open_store(RealDisk(), str(root)) as store:
        overwrite(log_file(root), store.max_physical_offset, b"half a record")
        found = {finding.kind for finding in verified(root).findings}
        assert "being-written" in found
        assert verified(root).damage_count == 0


def test_settings_that_do_not_fit_are_refused() -> None:
    store = open_store_directory(GOLDEN / "basic")
    with pytest.raises(BadRequestError) as caught:
        verify_store(store, index_settings=IndexSettings(1, 1))
    assert caught.value.fault is RequestFault.INDEX_SETTINGS
    with pytest.raises(ValueError, match="message_delay_level"):
        verify_store(store, message_delay_level="soon")


def test_other_delay_levels_have_to_be_named(tmp_path: Path) -> None:
    store = open_store_directory(GOLDEN / "tran")
    levels = "1s 5s 11s"
    found = {finding.kind for finding in verify_store(store, message_delay_level=levels).findings}
    assert found == {"unit-wrong"}


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    open_store(RealDisk(), str(tmp_path)).close()
    assert kinds(tmp_path) == set()


# -- hostile files --------------------------------------------------------------------------------


def read_everything(root: Path) -> None:
    store = open_store_directory(root)
    verify_store(store)
    list_store(store)
    store_stat(store)
    wanted = RecordFilter(topics=frozenset({"T", "TopicA"}), key="a")
    for filtered in (wanted, RecordFilter()):
        for _ in dump_records(store, filtered):
            pass


def mutate(path: Path, random_: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(random_.randrange(1, 8)):
        at, size = random_.randrange(len(data) or 1), random_.randrange(1, 40)
        source = random_.randrange(len(data) or 1)
        big = struct.pack(">q", random_.choice([-1, -(2**63), 2**63 - 1, 2**31 - 1, 2**40]))
        magic = MESSAGE_MAGIC_CODE.to_bytes(4, "big")
        noise = [random_.randbytes(size), bytes(size), data[source : source + size], big, magic]
        data[at : at + size] = random_.choice(noise)
    if random_.random() < 0.2:
        del data[random_.randrange(len(data) + 1) :]
    path.write_bytes(data)


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([*NAMES, "ours"]), seed=st.integers(0, 2**32))
def test_no_file_whatever_makes_a_tool_fail(tmp_path: Path, name: str, seed: int) -> None:
    random_ = random.Random(seed)
    root = tmp_path / "hostile"
    shutil.rmtree(root, ignore_errors=True)
    if name == "ours":
        shutil.rmtree(tmp_path / "ours", ignore_errors=True)
        our_store(tmp_path, 30).rename(root)
    else:
        shutil.copytree(GOLDEN / name, root)
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    for path in random_.sample(files, min(len(files), random_.randrange(1, 4))):
        mutate(path, random_)
    if random_.random() < 0.3:
        (root / "abort").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_scan, "READ_BYTES", random_.choice([300, 4 << 20]))
        read_everything(root)


def test_huge_sparse_files_cost_neither_time_nor_memory(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    for path in (log_file(root), next((root / "index").iterdir())):
        with path.open("r+b") as file:
            file.truncate(1 << 40)
    with (root / UNIT_FILE).open("r+b") as file:
        file.truncate(1 << 36)
    read_everything(root)
