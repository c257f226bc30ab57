import random

import pytest

from node.simulated.network import SimulatedNetwork
from node.simulated.virtual_clock import Timeline
from store.log.damage import LogDamage
from tests.sim.engine.node import Incarnation, read_log
from tests.sim.engine.repair import repair_log
from tests.sim.engine.rot import OF_STOPPED, own_share, rot_log
from tests.sim.engine.whole_disk import after_cut, bad_offsets, is_healed, windows_of
from tests.support.rotten_node import FILE_BYTES, a_node


@pytest.mark.parametrize("kind", dict.fromkeys(OF_STOPPED))
def test_what_rots_is_read_as_it_was_until_it_is_whole(kind: str) -> None:
    for seed in range(20):
        node = a_node()
        log = read_log(node)
        rot = rot_log(node, kind, 2 * FILE_BYTES, random.Random(seed), own_share(0, 1))
        if rot is None:
            continue  # a sector that was written where it is
        assert not is_healed(rot, node.disk)
        node.rots.append(rot)
        assert read_log(node) == log
        node.disk.replace(rot.path, rot.before)
        assert is_healed(rot, node.disk)
        node.rots.clear()
        assert read_log(node) == log


def test_only_files_that_all_have_rot_and_of_each_node_others() -> None:
    hurt = {
        (number, rot.path)
        for seed in range(30)
        for number in range(3)
        if (
            rot := rot_log(
                a_node(), "flip", 3 * FILE_BYTES, random.Random(seed), own_share(number, 3)
            )
        )
    }
    names = {number: path.rpartition("/")[2] for number, path in hurt}
    assert names == {number: f"{number * FILE_BYTES:020d}" for number in range(3)}
    assert len(hurt) == 3


def test_nothing_rots_where_no_file_is_full() -> None:
    assert rot_log(a_node(), "any", FILE_BYTES - 1, random.Random(1), own_share(0, 1)) is None


def test_only_the_first_file_is_lost_if_a_plan_says_so() -> None:
    node = a_node()
    rot = rot_log(node, "lose-first", 3 * FILE_BYTES, random.Random(1), own_share(0, 1))
    assert rot is not None
    assert rot.start == 0
    assert not node.disk.exists(rot.path)


def test_what_is_bad_is_known_to_the_byte_until_it_is_whole() -> None:
    node = a_node()
    rot = rot_log(node, "zero", 2 * FILE_BYTES, random.Random(3), own_share(1, 2))
    assert rot is not None
    bad = bad_offsets(rot, node.disk)
    assert (bad[0], bad[-1]) == (rot.start + rot.at, rot.start + rot.last)
    node.disk.replace(rot.path, rot.before)
    assert bad_offsets(rot, node.disk) == []


def test_a_window_is_found_in_what_was_read_there_and_nowhere_else() -> None:
    before = bytes(random.Random(1).randbytes(2000))
    after = bytearray(before)
    after[700] ^= 1
    first, last, windows = windows_of(before, bytes(after))
    assert (first, last) == (700, 700)
    assert windows
    assert all(window in after[600:800] and window not in before for window in windows)


def test_a_row_of_zeros_is_no_window() -> None:
    before = bytes(100) + b"x" * 100 + bytes(100)
    assert windows_of(before, bytes(300))[2] == ()


def test_what_a_process_has_in_memory_rots_only_if_the_plan_wants_it() -> None:
    for chance, is_hurt in ((1.0, True), (0.0, False)):
        node = a_node()
        node.current = Incarnation(
            node, SimulatedNetwork(Timeline(), random.Random(1)).machine("1")
        )
        rot = rot_log(node, "flip", FILE_BYTES, random.Random(1), own_share(0, 1), chance)
        assert rot is not None
        assert bool(bad_offsets(rot, node.disk)) is is_hurt
        assert node.disk.open(rot.path).durable != rot.before


def test_a_stopped_node_is_repaired_with_the_file_of_another() -> None:
    for kind in (*dict.fromkeys(OF_STOPPED), "lose-first"):
        node, other = a_node(), a_node()
        other.name = "another"
        rot = rot_log(node, kind, 2 * FILE_BYTES, random.Random(5), own_share(0, 1))
        assert rot is not None
        node.rots.append(rot)
        damage = LogDamage(node.disk, node.directory)
        damage.note(rot.start, rot.start + 10, "found")
        assert repair_log(node, [node, other]) == 1
        assert is_healed(rot, node.disk)
        assert LogDamage(node.disk, node.directory).ranges == ()


def test_of_a_log_that_is_cut_only_what_is_left_has_to_be_whole() -> None:
    node = a_node()
    rot = rot_log(node, "flip", 2 * FILE_BYTES, random.Random(5), own_share(0, 1))
    assert rot is not None
    hurt = rot.start + rot.at
    assert after_cut([rot], hurt) == []
    (left,) = after_cut(after_cut([rot], hurt + 9), hurt + 10)
    node.rots.append(left)
    new = bytes(left.cut_at) + b"x" * (len(rot.before) - left.cut_at)
    node.disk.replace(rot.path, rot.before[: left.cut_at] + new[left.cut_at :])
    assert is_healed(left, node.disk)
    assert bad_offsets(left, node.disk) == []
    node.disk.replace(rot.path, new)
    assert not is_healed(left, node.disk)
    assert bytes(node.whole_disk.open(rot.path).buffer) == left.whole(new)
    assert left.whole(new)[: left.cut_at] == rot.before[: left.cut_at]


def test_nothing_is_repaired_where_nobody_has_it_whole() -> None:
    node = a_node()
    rot = rot_log(node, "zero", FILE_BYTES, random.Random(5), own_share(0, 1))
    assert rot is not None
    node.rots.append(rot)
    assert repair_log(node, [node]) == 0
    assert not is_healed(rot, node.disk)
