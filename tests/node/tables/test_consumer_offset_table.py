import shutil
from itertools import pairwise
from pathlib import Path

import pytest

import node.tables.offset_room
from node.errors import RequestError
from node.tables.consumer_offset_table import (
    COMMITS_PER_VERSION,
    KEYS_PER_STEP,
    ConsumerOffsetTable,
)
from store.machine.errors import TableFileError
from store.machine.real_disk import RealDisk
from store.machine.table_file import TableFile
from tandem.wire.errors import MalformedFrameError
from tandem.wire.request_headers import ConsumerOffsetTableBody, DataVersion
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body
from tests.support.paths import GOLDEN

TABLE = GOLDEN / "config-json/config/consumerOffset.json"


def table(directory: Path) -> ConsumerOffsetTable:
    return ConsumerOffsetTable(TableFile(RealDisk(), str(directory / "o.json")), lambda: 1234)


def test_an_offset_comes_back_after_a_restart(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("g", "T", 3, 42)
    offsets.save()
    assert table(tmp_path).query("g", "T", 3) == 42


def test_an_unknown_offset_is_none(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("g", "T", 3, 42)
    assert offsets.query("g", "T", 2) is None
    assert offsets.query("h", "T", 3) is None


def test_an_offset_may_go_back_but_a_negative_one_says_nothing(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("g", "T", 0, 42)
    offsets.commit("g", "T", 0, 7)
    offsets.commit("g", "T", 0, -1)
    assert offsets.query("g", "T", 0) == 7


def test_the_file_of_rocketmq_is_read_and_written_byte_for_byte(tmp_path: Path) -> None:
    shutil.copy(TABLE, tmp_path / "o.json")
    offsets = table(tmp_path)
    assert offsets.query("g", "T", 1) == 6
    offsets.commit("g", "T", 1, 7)
    offsets.commit("g", "T", 1, 6)
    offsets.save()
    assert (tmp_path / "o.json").read_bytes() == TABLE.read_bytes()
    assert (tmp_path / "o.json.bak").read_bytes() == TABLE.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{"T@g":{"1":6}}}',
        '{ "offsetTable" :\r\n{ "T@g" : { 1 : 6 , 2 : 0 } } , "pullOffsetTable":{"x":{3:4}} }',
        '{"dataVersion":{"counter":7},"offsetTable":{"T@g":{1:6\n\t\t}\n}}',
    ],
    ids=["quoted", "spaced, with an unknown key", "bare"],
)
def test_every_spelling_of_the_file_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "o.json").write_text(text)
    assert table(tmp_path).query("g", "T", 1) == 6


@pytest.mark.parametrize("queues", ["{0:9223372036854775808}", "{2147483648:0}", "{0:null}", "[]"])
def test_a_file_that_is_no_table_is_an_error_with_a_remedy(tmp_path: Path, queues: str) -> None:
    (tmp_path / "o.json").write_text('{"offsetTable":{"T@g":' + queues + "}}")
    with pytest.raises(TableFileError) as caught:
        table(tmp_path)
    assert caught.value.path == str(tmp_path / "o.json")


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("g", "T", 0, 1)
    offsets.save()
    (tmp_path / "o.json").unlink()
    offsets.commit("g", "T", 0, 1)
    offsets.save()
    assert not (tmp_path / "o.json").exists()


def test_a_slave_takes_over_and_keeps_what_the_master_does_not_have(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("mine", "T", 0, 1)
    offsets.commit("g", "T", 0, 100)
    offsets.merge(b'{"dataVersion":{"counter":9},"offsetTable":{"T@g":{0:8,1:9}}}')
    assert offsets.query("mine", "T", 0) == 1
    assert offsets.query("g", "T", 0) == 8
    copy = decode_json_body(offsets.encode(), ConsumerOffsetTableBody)
    assert copy.data_version == DataVersion(counter=9)
    assert copy.offset_table == {"T@mine": {0: 1}, "T@g": {0: 8, 1: 9}}


def test_a_body_that_is_no_table_changes_nothing(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    with pytest.raises(MalformedFrameError):
        offsets.merge(b'{"offsetTable":{"T@g":{"x":8}}}')
    assert offsets.query("g", "T", 0) is None


def test_the_version_moves_once_in_many_commits(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    for offset in range(COMMITS_PER_VERSION - 1):
        offsets.commit("g", "T", 0, offset)
    before = decode_json_body(offsets.encode(), ConsumerOffsetTableBody).data_version
    offsets.commit("g", "T", 0, 0)
    after = decode_json_body(offsets.encode(), ConsumerOffsetTableBody).data_version
    assert (before, after) == (DataVersion(), DataVersion(0, 1234, 1))


def test_what_others_decided_on_is_taken_over_and_saved(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "T", 1, 1)
    offsets.adopt({"T@g": {0: 5}})
    offsets.save()
    assert table(tmp_path).offsets() == {"T@g": {0: 5, 1: 1}}
    offsets.replace({"U@g": {2: 3}})
    offsets.save()
    assert table(tmp_path).offsets() == {"U@g": {2: 3}}


def test_a_copy_of_the_offsets_changes_on_its_own(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    offsets.commit("g", "T", 0, 1)
    offsets.offsets()["T@g"][0] = 9
    assert offsets.query("g", "T", 0) == 1


def test_a_group_with_a_name_too_long_gets_no_offset(tmp_path: Path) -> None:
    offsets = table(tmp_path)
    with pytest.raises(RequestError) as caught:
        offsets.commit("g" * 20_000, "T", 0, 5)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert offsets.offsets() == {}


def test_a_full_table_takes_changes_and_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = table(tmp_path)
    monkeypatch.setattr(node.tables.offset_room, "OFFSET_BYTES_MAX", 100)
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 1, 5)
    for group, queue_id in (("g", 2), ("h", 0)):
        with pytest.raises(RequestError) as caught:
            offsets.commit(group, "T", queue_id, 5)
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
    offsets.commit("g", "T", 1, 6)
    assert offsets.offsets() == {"T@g": {0: 5, 1: 6}}
    offsets.replace({})
    offsets.commit("h", "T", 0, 5)


@pytest.mark.parametrize("when", range(3))
def test_what_is_committed_while_the_table_is_saved_is_in_the_next_file(
    tmp_path: Path, when: int
) -> None:
    offsets = table(tmp_path)
    offsets.commit("g", "T", 0, 1)
    steps = 0
    for _ in offsets.save_in_steps():
        if steps == when:
            offsets.commit("g0", "T", 0, 5)
        steps += 1
    assert steps > when
    offsets.save()
    saved = table(tmp_path)
    assert saved.offsets() == offsets.offsets()
    assert '"g0":["T"]' in (tmp_path / "o.json").read_text()


@pytest.mark.parametrize("how", ["adopt", "merge", "replace"])
def test_offsets_from_elsewhere_are_saved_and_take_room(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.tables.offset_room, "OFFSET_BYTES_MAX", 250)
    offsets = table(tmp_path)
    offsets.commit("g", "T", 0, 1)
    offsets.save()
    others = {f"T@h{number}": {0: 7} for number in range(3)}
    if how == "adopt":
        offsets.adopt(others)
    elif how == "replace":
        offsets.replace(others)
    else:
        offsets.merge(encode_json_body(ConsumerOffsetTableBody(others)))
    offsets.save()
    assert table(tmp_path).query("h2", "T", 0) == 7
    with pytest.raises(RequestError) as caught:
        for number in range(3):
            offsets.commit(f"i{number}", "T", 0, 1)
    assert caught.value.code == ResponseCode.SYSTEM_BUSY


def test_what_is_forgotten_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node.tables.offset_room, "OFFSET_BYTES_MAX", 60)
    offsets = table(tmp_path)
    offsets.commit("g", "T", 0, 1)
    offsets.forget(topic="T")
    offsets.commit("g", "U", 0, 1)
    assert offsets.query("g", "U", 0) == 1


def test_a_large_table_of_a_master_is_taken_over_in_steps(tmp_path: Path) -> None:
    """One of 12 MiB held up a slave for 0.1 s, every few seconds."""
    master, slave = table(tmp_path), table(tmp_path)
    count = 3 * KEYS_PER_STEP
    master.adopt({f"T@g{number}": {0: number} for number in range(count)})
    sizes = []
    for _ in slave.merge_in_steps(master.encode()):
        sizes.append(len(slave.offsets()))
        slave.commit(f"own{len(sizes)}", "T", 0, 7)
    sizes.append(len(slave.offsets()))
    assert max(after - before for before, after in pairwise(sizes)) <= KEYS_PER_STEP + 1
    assert sizes[0] == 0, "nothing is taken over in the step that decodes"
    assert slave.query("g5", "T", 0) == 5
    assert slave.query(f"g{count - 1}", "T", 0) == count - 1
    assert slave.query("own1", "T", 0) == 7
