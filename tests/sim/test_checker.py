"""The checker finds every kind of fault when it is planted, and nothing in a good run."""

from collections.abc import Callable

import msgspec
import pytest

from tandem.wire.crc import crc32
from tandem.wire.message import BLANK_MAGIC_CODE
from tests.sim.checker import (
    Expectations,
    Finding,
    History,
    Kind,
    Log,
    Outcome,
    Probe,
    Read,
    Refusal,
    Report,
    Send,
    Stored,
    check,
    first_difference,
    walk_log,
)
from tests.support.log_builder import LogBuilder

TOPIC = "sim"
FILE_BYTES = 512


class Run:
    """A finished run that kept every promise, to be spoiled by a test.

    Eight messages in two queues, sent one after another, number 5 without an answer and number 6
    answered FLUSH_SLAVE_TIMEOUT.
    """

    def __init__(self) -> None:
        builder = LogBuilder(file_bytes=FILE_BYTES)
        for index in range(8):
            builder.put(TOPIC, _body(index), queue_id=index % 2, keys=f"key{index}")
        self.builder = builder
        self.master = bytes(builder.log)
        self.slaves = {"one": self.master, "two": self.master}
        self.expectations = Expectations()
        self.refusals: list[Refusal] = []
        self.given_up: list[Log] = []
        records = walk_log(self.master).records
        self.history = History(
            sends=[_send(index, record) for index, record in enumerate(records)],
            reads=[Read("along", record) for record in records],
            drained=[Read("drain", record) for record in records],
            reports=[Report("one", 2000, 2000, 0.0), Report("two", 90, 100, 2.0)],
            probes=[
                Probe(sent_after_heal_seconds=1.0, succeeded=False),
                Probe(sent_after_heal_seconds=20.0, succeeded=True),
            ],
        )

    def check(self) -> list[Finding]:
        slaves = {name: walk_log(data) for name, data in self.slaves.items()}
        master = walk_log(self.master)
        return check(self.history, master, slaves, self.expectations, self.refusals, self.given_up)

    def kinds(self) -> set[Kind]:
        return {finding.kind for finding in self.check()}

    def send(self, index: int, **changes: object) -> None:
        """Change what the producer was told about message `index`."""
        self.history.sends[index] = msgspec.structs.replace(self.history.sends[index], **changes)

    def everywhere(self, data: bytes) -> None:
        """Put the same bytes on all nodes, as replication would; readers see them too."""
        self.master = data
        self.slaves = dict.fromkeys(self.slaves, data)
        records = walk_log(data).records
        self.history.reads = [Read("along", record) for record in records]
        self.history.drained = [Read("drain", record) for record in records]


def _body(index: int) -> bytes:
    return b"body %d" % index


def _send(index: int, record: Stored) -> Send:
    outcome = {5: Outcome.UNKNOWN, 6: Outcome.STORED}.get(index, Outcome.OK)
    known = outcome is not Outcome.UNKNOWN
    return Send(
        key=record.key,
        body_crc=crc32(_body(index)),
        sync=index % 4 != 3,
        outcome=outcome,
        invoked_at=float(index),
        answered_at=index + 0.5 if known else float("inf"),
        queue_id=record.queue_id if known else -1,
        queue_offset=record.queue_offset if known else -1,
        physical_offset=record.physical_offset if known else -1,
    )


def _log(*entries: tuple[int, int]) -> bytes:
    """Return a log of (message number, queue id) in this order."""
    builder = LogBuilder(file_bytes=FILE_BYTES)
    for index, queue_id in entries:
        builder.put(TOPIC, _body(index), queue_id=queue_id, keys=f"key{index}")
    return bytes(builder.log)


def test_a_good_run_has_no_findings() -> None:
    assert Run().check() == []


def test_the_log_of_the_good_run_has_a_filler_in_it() -> None:
    run = Run()
    assert len(run.master) > FILE_BYTES
    assert len(walk_log(run.master).records) == 8


def _lost(run: Run) -> None:
    run.everywhere(_log(*((i, i % 2) for i in range(7))))


def _lost_on_the_master_only(run: Run) -> None:
    run.master = _log(*((i, i % 2) for i in range(7)))


def _stored_but_missing(run: Run) -> None:
    run.send(7, outcome=Outcome.STORED)
    run.everywhere(_log(*((i, i % 2) for i in range(7))))


def _duplicated(run: Run) -> None:
    run.everywhere(_log(*((i, i % 2) for i in range(8)), (2, 0)))


def _duplicated_beyond_its_attempts(run: Run) -> None:
    run.send(2, attempts_max=2)
    run.everywhere(_log(*((i, i % 2) for i in range(8)), (2, 0), (2, 0)))


def _reordered_against_time(run: Run) -> None:
    run.everywhere(_log((0, 0), (1, 1), (4, 0), (3, 1), (2, 0), (5, 1), (6, 0), (7, 1)))


def _queue_offset_used_twice(run: Run) -> None:
    builder = LogBuilder(file_bytes=FILE_BYTES)
    for index in range(8):
        builder.put(TOPIC, _body(index), queue_id=index % 2, keys=f"key{index}", queue_offset=0)
    run.everywhere(bytes(builder.log))


def _hole(run: Run) -> None:
    builder = LogBuilder(file_bytes=FILE_BYTES)
    for index in range(8):
        offset = index // 2 + (index > 5)
        builder.put(
            TOPIC, _body(index), queue_id=index % 2, keys=f"key{index}", queue_offset=offset
        )
    run.everywhere(bytes(builder.log))


def _never_sent(run: Run) -> None:
    run.everywhere(_log(*((i, i % 2) for i in range(8)), (99, 0)))


def _sent_with_another_body(run: Run) -> None:
    run.send(3, body_crc=12345)


def _refused_but_stored(run: Run) -> None:
    run.send(5, outcome=Outcome.REFUSED)


def _phantom_on_a_slave(run: Run) -> None:
    run.slaves["two"] = _log(*((i, i % 2) for i in range(8)), (99, 0))


def _misplaced(run: Run) -> None:
    run.send(4, queue_offset=7)


def _corrupt_body(run: Run) -> None:
    data = bytearray(run.master)
    data[data.index(b"body 3")] ^= 1
    run.everywhere(bytes(data))


def _corrupt_size(run: Run) -> None:
    data = bytearray(run.master)
    data[0:4] = b"\0\0\0\0"
    run.everywhere(bytes(data))


def _empty_filler(run: Run) -> None:
    data = bytearray(run.master)
    data[0:8] = bytes(4) + BLANK_MAGIC_CODE.to_bytes(4, "big")
    run.everywhere(bytes(data))


def _torn_tail(run: Run) -> None:
    run.everywhere(run.master[:-1])


def _cut_filler(run: Run) -> None:
    run.everywhere(run.master[: FILE_BYTES - 1])


def _slave_behind(run: Run) -> None:
    run.slaves["two"] = _log(*((i, i % 2) for i in range(7)))


def _slave_with_other_bytes(run: Run) -> None:
    run.slaves["two"] = _log(*((i, 1 - i % 2) for i in range(8)))


def _refused_as_a_prefix(run: Run) -> None:
    behind = _log(*((i, i % 2) for i in range(6)))
    run.refusals.append(Refusal("two", slave=walk_log(behind), master=walk_log(run.master)))
    run.expectations = Expectations(master_lost_cache=True)


def _refused_though_equal(run: Run) -> None:
    run.refusals.append(Refusal("two", slave=walk_log(run.master), master=walk_log(run.master)))


def _refused_and_truly_different_without_power_loss(run: Run) -> None:
    other = _log(*((i, 1 - i % 2) for i in range(8)))
    run.refusals.append(Refusal("two", slave=walk_log(other), master=walk_log(run.master)))


def _crashed(run: Run) -> None:
    run.history.crashes.append("one: KeyError")


def _false_ack(run: Run) -> None:
    run.history.reports.append(Report("one", 101, 100, 3.0))


def _acknowledged_before_it_was_reported(run: Run) -> None:
    run.history.reports[0] = Report("one", 2000, 2000, 5.0)


def _too_few_slaves(run: Run) -> None:
    run.expectations = Expectations(slaves_needed=2)


def _reader_skips(run: Run) -> None:
    del run.history.reads[2]


def _reader_sees_one_twice(run: Run) -> None:
    run.history.reads.append(run.history.reads[-1])


def _reader_sees_what_is_not_there(run: Run) -> None:
    read = run.history.reads[-1]
    record = msgspec.structs.replace(read.record, key="key99")
    run.history.reads[-1] = Read("along", record)


def _drain_sees_what_is_not_there(run: Run) -> None:
    record = msgspec.structs.replace(run.history.drained[-1].record, physical_offset=77)
    run.history.drained.append(Read("drain", record))


def _queue_does_not_give_it(run: Run) -> None:
    del run.history.drained[3]


def _probe_fails(run: Run) -> None:
    run.history.probes.append(Probe(sent_after_heal_seconds=30.0, succeeded=False, text="timeout"))


def _nothing_probed(run: Run) -> None:
    del run.history.probes[-1]


def _lost_after_power_loss_with_sync_flush(run: Run) -> None:
    run.given_up.append(walk_log(run.master))
    run.everywhere(_log(*((i, i % 2) for i in range(4))))
    run.expectations = Expectations(master_lost_cache=True, acks_survive_power_loss=True)


def _lost_on_every_node_after_power_loss(run: Run) -> None:
    run.everywhere(_log(*((i, i % 2) for i in range(4))))
    run.expectations = Expectations(master_lost_cache=True)


def _merged_silently_after_power_loss(run: Run) -> None:
    run.master = _log(*((i, i % 2) for i in range(4)), (6, 0))
    run.expectations = Expectations(master_lost_cache=True)


PLANTED: dict[str, tuple[Kind, Callable[[Run], None]]] = {
    fault.__name__.strip("_"): (kind, fault)
    for kind, fault in (
        (Kind.LOST, _lost),
        (Kind.LOST, _lost_on_the_master_only),
        (Kind.STORED_BUT_MISSING, _stored_but_missing),
        (Kind.DUPLICATED, _duplicated),
        (Kind.DUPLICATED, _duplicated_beyond_its_attempts),
        (Kind.REORDERED, _reordered_against_time),
        (Kind.REORDERED, _queue_offset_used_twice),
        (Kind.HOLE, _hole),
        (Kind.PHANTOM, _never_sent),
        (Kind.PHANTOM, _sent_with_another_body),
        (Kind.PHANTOM, _refused_but_stored),
        (Kind.PHANTOM, _phantom_on_a_slave),
        (Kind.MISPLACED, _misplaced),
        (Kind.CORRUPT, _corrupt_body),
        (Kind.CORRUPT, _corrupt_size),
        (Kind.CORRUPT, _empty_filler),
        (Kind.CORRUPT, _torn_tail),
        (Kind.CORRUPT, _cut_filler),
        (Kind.DIVERGED, _slave_behind),
        (Kind.DIVERGED, _slave_with_other_bytes),
        (Kind.DIVERGED, _refused_and_truly_different_without_power_loss),
        (Kind.DIVERGED, _merged_silently_after_power_loss),
        (Kind.FALSE_ALARM, _refused_as_a_prefix),
        (Kind.FALSE_ALARM, _refused_though_equal),
        (Kind.FALSE_ACK, _false_ack),
        (Kind.UNREPLICATED, _acknowledged_before_it_was_reported),
        (Kind.UNREPLICATED, _too_few_slaves),
        (Kind.MISREAD, _reader_skips),
        (Kind.MISREAD, _reader_sees_one_twice),
        (Kind.MISREAD, _reader_sees_what_is_not_there),
        (Kind.MISREAD, _drain_sees_what_is_not_there),
        (Kind.UNREAD, _queue_does_not_give_it),
        (Kind.STUCK, _probe_fails),
        (Kind.STUCK, _nothing_probed),
        (Kind.CRASHED, _crashed),
        (Kind.LOST, _lost_after_power_loss_with_sync_flush),
        (Kind.LOST, _lost_on_every_node_after_power_loss),
    )
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    kind, fault = PLANTED[name]
    run = Run()
    fault(run)
    assert kind in run.kinds(), run.check()


def test_every_kind_of_fault_is_planted() -> None:
    assert {kind for kind, _ in PLANTED.values()} == set(Kind)


def test_what_may_happen_is_not_a_finding() -> None:
    run = Run()
    # Unknown and never stored; sent twice because the client was told it may.
    run.send(2, attempts_max=2)
    run.everywhere(_log((0, 0), (1, 1), (2, 0), (2, 0), (3, 1), (4, 0), (6, 0), (7, 1)))
    for index in range(8):
        run.send(index, queue_offset=-1)
    assert run.check() == []


def test_an_unanswered_message_may_arrive_late() -> None:
    run = Run()
    run.everywhere(_log(*((i, i % 2) for i in (0, 1, 2, 3, 4, 6, 7, 5))))
    for index in range(8):
        run.send(index, queue_offset=-1)
    assert run.check() == []


def test_after_power_loss_an_acknowledged_message_on_a_refused_slave_is_not_lost() -> None:
    run = Run()
    before = walk_log(run.master)
    run.everywhere(_log(*((i, i % 2) for i in range(4))))
    run.refusals.append(Refusal("one", slave=before, master=walk_log(run.master)))
    run.given_up.append(before)
    run.expectations = Expectations(master_lost_cache=True)
    assert run.check() == []


def test_the_first_difference_is_found() -> None:
    assert first_difference(b"", b"abc") == 0
    assert first_difference(b"abc", b"abcd") == 3
    assert first_difference(b"abcd", b"abXd") == 2
    assert first_difference(b"Xbcd", b"abcd") == 0
    assert first_difference(b"abcX", b"abcd") == 3


def test_an_empty_log_is_fine() -> None:
    assert walk_log(b"") == Log(b"", ())
