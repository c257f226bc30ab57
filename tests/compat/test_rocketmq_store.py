"""The DefaultMessageStore of RocketMQ 5.3.3 opens, reads and continues our stores, and we its.

That of 5.5.0 does so, too.

A store goes to and fro between the two. Whoever has it reads every message by physical offset, by
queue and by key, puts more, reads all of it again, and stops cleanly or is killed. The other one
opens it and has to see the same.
"""

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from store import PutMessageStatus, StoreFullError
from store.machine.real_disk import RealDisk
from store.machine.real_file import RealFile
from store.queue.consume_queue_store import is_queued
from tandem.wire.message import TRANSACTION_ROLLBACK_TYPE, Host
from tests.compat.every_kind import BATCH_TOPIC, every_kind
from tests.compat.probe import Probe, Seen, Settings, differences
from tests.store.store_world import STORE_HOST, a_batch, a_message, check_store, open_store, put

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("rocketmq")]

ROUNDS: Final = 4

SETTINGS: Final = {
    "plain": Settings(batch_topics=(BATCH_TOPIC,)),
    "crc": Settings(batch_topics=(BATCH_TOPIC,), enabled_append_prop_crc=True),
    "ext": Settings(batch_topics=(BATCH_TOPIC,), enable_consume_queue_ext=True),
    "v6": Settings(batch_topics=(BATCH_TOPIC,), store_host=Host("2001:db8::9", 10911)),
}


class Journey(NamedTuple):
    """What a store went through: who began, and how everybody stopped."""

    settings: str
    began: str
    stop: str
    other: str = "rocketmq"
    """Which of them it is that the store goes to and fro with."""


JOURNEYS: Final = [
    Journey(name, began, stop, other)
    for name in SETTINGS
    for other in ("rocketmq", "newest")
    for began in ("ours", other)
    for stop in ("clean", "killed")
]


class Visit(NamedTuple):
    """What somebody saw when it had opened a store, and before it stopped."""

    opened: Seen
    left: Seen


@pytest.fixture(scope="module")
def visits(
    rocketmq: Probe, newest: Probe, ours: Probe, tmp_path_factory: pytest.TempPathFactory
) -> dict[Journey, list[Visit]]:
    """Every journey, all at once: starting Java and stopping RocketMQ take seconds."""
    root = tmp_path_factory.mktemp("journeys")
    seen: dict[Journey, list[Visit]] = {journey: [] for journey in JOURNEYS}
    probes = {"ours": ours, "rocketmq": rocketmq, "newest": newest}
    for number in range(ROUNDS):
        for who, probe in probes.items():
            here = [j for j in JOURNEYS if _has_it(j, number) == who]
            for journey in here:
                directory = root / "-".join(journey)
                seen[journey].append(visit(probe, directory, SETTINGS[journey.settings], number))
            probe.close([root / "-".join(j) for j in here if j.stop == "clean"])
            probe.halt()
    return seen


def _has_it(journey: Journey, number: int) -> str:
    """Return who has the store in this round."""
    first, second = (
        (journey.other, "ours") if journey.began == journey.other else ("ours", journey.other)
    )
    return (first, second)[number % 2]


def visit(probe: Probe, directory: Path, settings: Settings, number: int) -> Visit:
    """Open, read, put, read."""
    assert probe.open(directory, settings), directory
    opened = probe.look(directory)
    messages = every_kind(1000 * number)
    assert probe.put(directory, messages, settings.store_host) == ["PUT_OK"] * len(messages)
    return Visit(opened, probe.look(directory))


@pytest.mark.parametrize("journey", JOURNEYS, ids="-".join)
def test_the_other_one_sees_the_same(visits: dict[Journey, list[Visit]], journey: Journey) -> None:
    """By physical offset, queue and key; DefaultMessageStore.load, recover, get, look, query."""
    went = visits[journey]
    assert len(went) == ROUNDS
    for before, after in pairwise(went):
        found = differences(before.left, after.opened)
        assert found == []


@pytest.mark.parametrize("journey", JOURNEYS, ids="-".join)
def test_everything_that_was_put_is_there(
    visits: dict[Journey, list[Visit]], journey: Journey
) -> None:
    """Nothing is missing, nothing twice; queues count on whoever has the store."""
    last = visits[journey][-1].left
    numbers = [1000 * n + number for n in range(ROUNDS) for number in range(42)]
    ordinary = [m for m in last.messages if len(m.body) == 600]
    assert [int(bytes.fromhex(m.body).split(b":")[0]) for m in ordinary] == numbers
    for name, queue in last.queues.items():
        mine = [m for m in last.messages if f"{m.topic} {m.queue_id}" == name]
        queued = [m for m in mine if is_queued(m.sys_flag)]
        assert queue.offsets == [m.physical_offset for m in queued]
        counts = [int(m.properties.get("INNER_NUM", 1)) for m in queued]
        assert [m.queue_offset for m in queued] == [sum(counts[:at]) for at in range(len(counts))]
        assert (queue.min, queue.max) == (0, sum(counts))
    rolled_back = {
        f"{m.topic} {m.properties[name]}"
        for m in last.messages
        for name in ("KEYS", "UNIQ_KEY")
        if m.sys_flag & 12 == TRANSACTION_ROLLBACK_TYPE
    }
    assert {key for key, offsets in last.keys.items() if not offsets} == rolled_back


class FullDisk(RealDisk):
    """Has no room for another commit log file once it is `full`."""

    full = False

    def create(self, path: str, size: int, *, grows: bool = False) -> RealFile:
        if self.full and "/commitlog/" in path:
            raise StoreFullError(f"{path}: no room", path=path)
        return super().create(path, size, grows=grows)


def test_rocketmq_opens_a_store_whose_disk_was_full_at_a_new_queue_file(
    tmp_path: Path, rocketmq: Probe
) -> None:
    """An empty last queue file makes 5.3.3 shift the queue by one, or fail the load."""
    root, disk = tmp_path / "store", FullDisk()
    store = open_store(disk, str(root))
    for number in range(10):  # fills the first file of the queue
        put(store, a_message(number, body_bytes=650))
    disk.full = True
    for refused in (
        store.puts.put_message(a_message(10, body_bytes=5000)),
        store.puts.put_batch(a_batch(range(10, 60))),
    ):
        assert refused.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    messages = check_store(store)
    killed = Path(shutil.copytree(root, tmp_path / "killed"))
    store.close()
    for directory in (root, killed):
        assert rocketmq.open(directory, Settings())
        assert [m.body for m in rocketmq.look(directory).messages] == [
            m.body.hex() for m in messages
        ]
        assert rocketmq.put(directory, [a_message(10)], STORE_HOST) == ["PUT_OK"]
    rocketmq.close([root, killed])
    for directory in (root, killed):
        with open_store(RealDisk(), str(directory)) as again:
            assert len(check_store(again)) == 11
