"""The life of a message out of store directories: RocketMQ's own, and built ones."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tandem.life.result import Kind, Life, State, Why
from tandem.log.errors import NotAStoreError
from tandem.log.life import why_in_stores
from tandem.wire.message import TRANSACTION_COMMIT_TYPE, encode_record
from tests.support.log_builder import BORN_TIMESTAMP_MS, LogBuilder
from tests.support.paths import GOLDEN
from tests.tandem.log.vectors import copy_of, log_file, overwrite

NOW_MS = BORN_TIMESTAMP_MS + 3_600_000
KEY = "0A0102030007AAAAAAAA00000005000F"


def why(message: str, *roots: Path, topic: str = "", **options: Any) -> Why:  # noqa: ANN401
    return why_in_stores(roots, message, topic, now_ms=NOW_MS, **options)


def life(message: str, *roots: Path) -> Life:
    (found,) = why(message, *roots).lives
    return found


def kinds(found: Life) -> set[Kind]:
    return {each.kind for each in found.findings}


@pytest.mark.parametrize("use_index", [True, False], ids=["index", "scan"])
@pytest.mark.parametrize(
    ("store", "message", "ids"),
    [
        ("basic", "U1", ["U1"]),
        ("basic", "k2", ["U0", "U1", "U2"]),
        ("basic", "7F00000100002A9F0000000000000088", ["U1"]),
        ("idx", "U6", ["U6"]),
        ("idx", "b", ["U0", "U1", "U2", "U3", "U4", "U5", "U6"]),
        ("batch", "K1", ["7F000001000000020000000000000084"]),
        (
            "v6",
            "20010DB800000000000000000000000700002A9F0000000000000069",
            ["20010DB800000000000000000000000700002A9F0000000000000069"],
        ),
        ("tran", "7F00000100002A9F0000000000000117", ["7F00000100002A9F0000000000000117"]),
    ],
)
def test_messages_that_rocketmq_stored_are_found(
    store: str,
    message: str,
    ids: list[str],
    use_index: bool,  # noqa: FBT001
) -> None:
    found = why(message, GOLDEN / store, use_index=use_index)
    assert [each.id for each in found.lives] == ids
    assert all(Kind.STORED in kinds(each) for each in found.lives)


def test_where_rocketmq_stored_a_message_is_said() -> None:
    (stored,) = [each for each in life("U1", GOLDEN / "basic").findings if each.kind is Kind.STORED]
    place = (stored.topic, stored.queue_id, stored.queue_offset, stored.physical_offset)
    assert place == ("TopicA", 1, 1, 136)
    assert stored.at_ms == 1_795_218_857_994
    assert "commitlog/00000000000000000000, offset 136" in stored.evidence[0]


def test_a_delayed_message_of_rocketmq_is_due_by_its_level() -> None:
    found = life("7F00000100002A9F0000000000000174", GOLDEN / "tran")
    (delayed,) = [each for each in found.findings if each.kind is Kind.DELAYED]
    assert delayed.due_ms == 1_795_219_494_291 + 10_000
    assert found.topic == "T"


def test_the_offsets_of_groups_are_compared(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"TopicA@g":{1:2},"TopicA@h":{0:9}}}'
    )
    states = {each.group: each.state for each in life("U1", root).groups}
    assert states == {"g": State.CONSUMED, "h": State.NO_OFFSET}
    states = {each.group: each.state for each in life("U2", root).groups}
    assert states == {"g": State.NOT_YET, "h": State.NO_OFFSET}


class Built:
    """A log with one message, `KEY`, and what is put beside it."""

    def __init__(self, **fields: Any) -> None:  # noqa: ANN401
        self.log = LogBuilder()
        self.log.put("Other", b"before")
        self.message = self.put("Orders", **fields)

    def put(self, topic: str, properties: dict[str, str] | None = None, **fields: Any) -> Any:  # noqa: ANN401
        named = {"UNIQ_KEY": KEY, "KEYS": "17"} | (properties or {})
        return self.log.put(topic, b"a chair", properties=named, **fields)

    def write(self, root: Path) -> Path:
        return self.log.write(root)


def test_retries_and_a_dead_letter_are_found_beside_the_message(tmp_path: Path) -> None:
    built = Built()
    waits = {"REAL_TOPIC": "%RETRY%g", "DELAY": "3", "RETRY_TOPIC": "Orders"}
    built.put("SCHEDULE_TOPIC_XXXX", waits, queue_id=2, reconsume_times=1)
    built.put("%RETRY%g", {"RETRY_TOPIC": "Orders"}, reconsume_times=1)
    built.put("%DLQ%g", {"RETRY_TOPIC": "Orders"}, reconsume_times=2)
    root = built.write(tmp_path / "n1")
    for asked in (KEY, "17", built.message.offset_msg_id):
        found = life(asked, root)
        assert (found.id, found.topic) == (KEY, "Orders")
        (group,) = found.groups
        assert (group.state, group.retries) == (State.DEAD, 1)


@pytest.mark.parametrize("use_index", [True, False], ids=["index", "scan"])
@pytest.mark.parametrize("name", ["%RETRY%g+Orders", "%RETRY%g_Orders"])
def test_what_came_back_to_a_group_that_pops_is_found(
    name: str,
    use_index: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    built = Built()
    retry = built.put(name, {"1ST_POP_TIME": "1"}, reconsume_times=1)
    root = built.write(tmp_path / "n1")
    (root / "config").mkdir(exist_ok=True)
    table = {"offsetTable": {"Orders@g": {0: 1}, f"{name}@g": {0: 0}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    for asked in (KEY, retry.offset_msg_id):
        (found,) = why(asked, root, use_index=use_index).lives
        assert (found.id, found.topic) == (KEY, "Orders")
        (group,) = found.groups
        assert (group.group, group.state, group.retries) == ("g", State.AGAIN, 1)
    table["offsetTable"][f"{name}@g"] = {0: 1}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    assert life(KEY, root).groups[0].state is State.CONSUMED


def test_a_half_that_ended_without_a_message_was_rolled_back(tmp_path: Path) -> None:
    log = LogBuilder()
    half = {"UNIQ_KEY": KEY, "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    log.put("RMQ_SYS_TRANS_HALF_TOPIC", b"x", properties=half)
    root = log.write(tmp_path / "open")
    assert Kind.TRANSACTION_OPEN in kinds(life(KEY, root))
    log.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"0,", tags="d")
    assert Kind.ROLLED_BACK in kinds(life(KEY, log.write(tmp_path / "ended")))
    log.put("Orders", b"x", properties=half, sys_flag=TRANSACTION_COMMIT_TYPE)
    assert Kind.COMMITTED in kinds(life(KEY, log.write(tmp_path / "committed")))


def cut_off(root: Path, built: Built, name: str = "epoch-2-af") -> None:
    """Have the message of `built` among what was cut off, and a log without it."""
    data = encode_record(built.message)
    folder = root / "truncated"
    folder.mkdir(parents=True)
    path = folder / f"{built.message.physical_offset:020d}-{name}"
    path.write_bytes(data + bytes(32))
    note = {"cut": 1, "end": 2, "records": 1, "reason": "n2 became master of epoch 2"}
    path.with_name(path.name + ".json").write_text(json.dumps(note))
    other = LogBuilder()
    other.put("Other", b"before")
    other.write(root)


def test_a_message_that_was_cut_off_is_found_and_its_reason(tmp_path: Path) -> None:
    built = Built()
    cut_off(tmp_path / "n1", built)
    for asked in (KEY, "17", built.message.offset_msg_id):
        found = life(asked, tmp_path / "n1")
        (cut,) = [each for each in found.findings if each.kind is Kind.CUT]
        assert cut.node == str(tmp_path / "n1")
        assert "n2 became master of epoch 2" in cut.text
        assert "truncated" in cut.evidence[0]
    Built().write(tmp_path / "n2")
    assert "still has" in next(
        each.text
        for each in life(KEY, tmp_path / "n1", tmp_path / "n2").findings
        if each.kind is Kind.CUT
    )


def test_a_store_that_was_set_aside_is_read_too(tmp_path: Path) -> None:
    Built().write(tmp_path / "set-aside" / "rejoin-1")
    other = LogBuilder()
    other.put("Other", b"before")
    other.write(tmp_path)
    assert Kind.SET_ASIDE in kinds(life(KEY, tmp_path))


def test_the_epoch_that_a_message_was_written_in_is_named(tmp_path: Path) -> None:
    root = Built().write(tmp_path)
    (root / "epochFileCheckpoint").write_text("2\n0\n3-0\n5-50\n")
    text = next(each.text for each in life(KEY, root).findings if each.kind is Kind.STORED)
    assert "epoch 5" in text


def test_copies_in_several_directories_are_one_message(tmp_path: Path) -> None:
    built = Built()
    roots = [built.write(tmp_path / name) for name in ("n1", "n2")]
    found = life(KEY, *roots)
    assert Kind.DUPLICATED not in kinds(found)
    text = next(each.text for each in found.findings if each.kind is Kind.REPLICATED)
    assert all(str(root) in text for root in roots)


def test_a_message_that_was_stored_twice_is_said_to_be(tmp_path: Path) -> None:
    built = Built()
    built.put("Orders")
    assert Kind.DUPLICATED in kinds(life(KEY, built.write(tmp_path)))


def test_a_topic_chooses_among_messages_with_one_key(tmp_path: Path) -> None:
    built = Built()
    built.put("Bills", {"UNIQ_KEY": "another"})
    root = built.write(tmp_path)
    assert [each.id for each in why("17", root).lives] == [KEY, "another"]
    assert [each.id for each in why("17", root, topic="Bills").lives] == ["another"]
    assert not why("17", root, topic="Orders2").is_found


def test_only_the_newest_of_many_messages_with_a_key_are_told_of(tmp_path: Path) -> None:
    built = Built()
    for number in range(20):
        built.put("Orders", {"UNIQ_KEY": f"U{number}"})
    found = why("17", built.write(tmp_path))
    assert [each.id for each in found.lives] == [f"U{number}" for number in range(12, 20)]
    assert found.left_out == 13


def test_what_is_not_there_is_said_with_what_was_read() -> None:
    found = why("nope", GOLDEN / "basic")
    assert not found.is_found
    assert Kind.NO_RECORD in {each.kind for each in found.absence}
    assert "offsets 0 to 408" in found.looked[0].covers


def test_an_offset_before_the_log_was_deleted(tmp_path: Path) -> None:
    log = LogBuilder(start_offset=65_536)
    first = log.put("Orders", b"x")
    root = log.write(tmp_path)
    gone = first.offset_msg_id[:-16] + f"{17:016X}"
    assert Kind.EXPIRED in {each.kind for each in why(gone, root).absence}


def test_a_damaged_place_is_a_gap_and_no_proof(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 136 + 4, b"\0\0\0\0")
    found = why("nope", root, use_index=False)
    assert any("damaged" in gap.why for gap in found.unknown)
    assert Kind.NO_RECORD not in {each.kind for each in found.absence}
    assert [look.is_complete for look in found.looked] == [False]


def test_a_torn_end_hides_nothing(tmp_path: Path) -> None:
    built = Built()
    built.log.log += b"\0\0\1\0 half of a record"
    found = why("nope", built.write(tmp_path), use_index=False)
    assert [look.is_complete for look in found.looked] == [True]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_transaction_is_open_only_if_all_that_may_end_it_was_read(
    tmp_path: Path,
    is_damaged: bool,  # noqa: FBT001
) -> None:
    log = LogBuilder()
    half = {"UNIQ_KEY": KEY, "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    log.put("RMQ_SYS_TRANS_HALF_TOPIC", b"x", properties=half)
    ended = log.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"7,", tags="d")
    log.put("Other", b"after")
    root = log.write(tmp_path)
    if is_damaged:
        overwrite(log_file(root), ended.physical_offset + 4, b"\0\0\0\0")
    found = why(KEY, root)
    (told,) = found.lives
    assert (Kind.TRANSACTION_OPEN in kinds(told)) is not is_damaged
    assert any("transaction has ended" in gap.what for gap in told.unknown) is is_damaged


def test_a_body_that_has_changed_is_said_to_have(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    overwrite(log_file(root), 224, b"X")
    assert Kind.DAMAGED in kinds(life("U1", root))


@pytest.mark.parametrize(
    "message",
    ["\ud800", "x" * 40_000, "\x01\x02", "%", "[", "k1 k2", "7F" * 16, "00" * 28, "'\"\\"],
)
def test_hostile_texts_find_nothing_and_end_nothing(message: str) -> None:
    assert not why(message, GOLDEN / "basic").is_found


def test_an_empty_store_and_a_commitlog_alone_can_be_asked(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert not why("k1", tmp_path).is_found
    alone = Path(shutil.copytree(GOLDEN / "basic" / "commitlog", tmp_path / "alone"))
    assert life("U1", alone).id == "U1"


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        why("k", tmp_path / "nowhere")


def test_nothing_is_written(tmp_path: Path) -> None:
    root = copy_of("basic", tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    life("U1", root)
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before
