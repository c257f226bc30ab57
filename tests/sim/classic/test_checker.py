"""The checker finds every kind of fault when it is planted, and nothing in a good run."""

from collections.abc import Callable
from enum import Enum

import msgspec
import pytest

from tandem.wire.message import BLANK_MAGIC_CODE
from tests.sim.classic.checker import Expectations, Kind, check
from tests.sim.classic.history import ClassicHistory, Refusal, Report
from tests.sim.engine.history import (
    AnswerSeen,
    Contract,
    EmptyPull,
    Extent,
    Finding,
    Outcome,
    Probe,
)
from tests.sim.engine.planted import (
    ALL,
    FILE_BYTES,
    OUT_OF_ORDER,
    body_of,
    log_of,
    read_of,
    send_of,
    sent_again,
)
from tests.sim.engine.walked_log import walk_log
from tests.sim.engine.workload import TOPIC
from tests.support.log_builder import LogBuilder


class Run:
    """A finished run that kept every promise, to be spoiled by a test.

    See `planted.send_of` for what its eight messages are.
    """

    def __init__(self) -> None:
        self.master = log_of(*ALL)
        self.slaves = {"one": self.master, "two": self.master}
        self.expectations = Expectations()
        records = walk_log(self.master).records
        self.history = ClassicHistory(
            sends=[send_of(index, record) for index, record in enumerate(records)],
            reads=[read_of("along", record) for record in records],
            drained=[read_of("drain", record) for record in records],
            reports=[Report("one", 2000, 2000, 0.0), Report("two", 90, 100, 2.0)],
            probes=[
                Probe(sent_after_heal_seconds=1.0, succeeded=False),
                Probe(sent_after_heal_seconds=20.0, succeeded=True),
            ],
        )

    def check(self) -> list[Finding]:
        slaves = {name: walk_log(data) for name, data in self.slaves.items()}
        master = walk_log(self.master)
        return check(self.history, master, slaves, self.expectations)

    def kinds(self) -> set[Enum]:
        return {finding.kind for finding in self.check()}

    def send(self, index: int, **changes: object) -> None:
        """Change what the producer was told about message `index`."""
        self.history.sends[index] = msgspec.structs.replace(self.history.sends[index], **changes)

    def everywhere(self, data: bytes) -> None:
        """Put the same bytes on all nodes, as replication would; readers see them too."""
        self.master = data
        self.slaves = dict.fromkeys(self.slaves, data)
        records = walk_log(data).records
        self.history.reads = [read_of("along", record) for record in records]
        self.history.drained = [read_of("drain", record) for record in records]


def test_a_good_run_has_no_findings() -> None:
    assert Run().check() == []


def test_the_log_of_the_good_run_has_a_filler_in_it() -> None:
    run = Run()
    assert len(run.master) > FILE_BYTES
    assert len(walk_log(run.master).records) == 8


def _lost(run: Run) -> None:
    run.everywhere(log_of(*ALL[:7]))


def _lost_on_the_master_only(run: Run) -> None:
    run.master = log_of(*ALL[:7])


def _stored_but_missing(run: Run) -> None:
    run.send(7, outcome=Outcome.STORED)
    run.everywhere(log_of(*ALL[:7]))


def _duplicated(run: Run) -> None:
    run.everywhere(log_of(*ALL, (2, 0)))


def _duplicated_beyond_its_attempts(run: Run) -> None:
    run.send(2, attempts_max=2)
    run.everywhere(log_of(*ALL, (2, 0), (2, 0)))


def _reordered_against_time(run: Run) -> None:
    run.everywhere(log_of((0, 0), (1, 1), (4, 0), (3, 1), (2, 0), (5, 1), (6, 0), (7, 1)))


def _reordered_though_sent_again(run: Run) -> None:
    data = log_of(*OUT_OF_ORDER)
    records = walk_log(data).records
    run.history.sends = [sent_again(send, records) for send in run.history.sends]
    run.everywhere(data)


def _queue_offset_used_twice(run: Run) -> None:
    builder = LogBuilder(file_bytes=FILE_BYTES)
    for index in range(8):
        builder.put(TOPIC, body_of(index), queue_id=index % 2, keys=f"key{index}", queue_offset=0)
    run.everywhere(bytes(builder.log))


def _hole(run: Run) -> None:
    builder = LogBuilder(file_bytes=FILE_BYTES)
    for index in range(8):
        offset = index // 2 + (index > 5)
        builder.put(
            TOPIC, body_of(index), queue_id=index % 2, keys=f"key{index}", queue_offset=offset
        )
    run.everywhere(bytes(builder.log))


def _never_sent(run: Run) -> None:
    run.everywhere(log_of(*ALL, (99, 0)))


def _sent_with_another_body(run: Run) -> None:
    run.send(3, body_crc=12345)


def _refused_but_stored(run: Run) -> None:
    run.send(5, outcome=Outcome.REFUSED)


def _phantom_on_a_slave(run: Run) -> None:
    run.slaves["two"] = log_of(*ALL, (99, 0))


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
    run.slaves["two"] = log_of(*ALL[:7])


def _slave_with_other_bytes(run: Run) -> None:
    run.slaves["two"] = log_of(*((i, 1 - i % 2) for i in range(8)))


def _refused_as_a_prefix(run: Run) -> None:
    behind = log_of(*ALL[:6])
    run.history.refusals.append(Refusal("two", slave=walk_log(behind), master=walk_log(run.master)))
    run.expectations = Expectations(master_lost_cache=True)


def _refused_though_equal(run: Run) -> None:
    run.history.refusals.append(
        Refusal("two", slave=walk_log(run.master), master=walk_log(run.master))
    )


def _refused_and_truly_different_without_power_loss(run: Run) -> None:
    other = log_of(*((i, 1 - i % 2) for i in range(8)))
    run.history.refusals.append(Refusal("two", slave=walk_log(other), master=walk_log(run.master)))


def _crashed(run: Run) -> None:
    run.history.crashes.append("one: KeyError")


def _false_ack(run: Run) -> None:
    run.history.reports.append(Report("one", 101, 100, 3.0))


def _acknowledged_before_it_was_reported(run: Run) -> None:
    run.history.reports[0] = Report("one", 2000, 2000, 5.0)


def _too_few_slaves(run: Run) -> None:
    run.expectations = Expectations(slaves_needed=2)


def _answered(run: Run, flushed: int) -> None:
    """Have message 4 answered while the master's disk has the log up to here."""
    at = walk_log(run.master).records[4].physical_offset
    run.history.contracts["key4"] = Contract.REPLICATED
    own = Extent(len(run.master), flushed)
    run.history.answers.append(
        AnswerSeen(at_seconds=4.4, node="zero", key="key4", physical_offset=at, own=own)
    )


def _answered_before_the_sync(run: Run) -> None:
    run.expectations = Expectations(acks_survive_power_loss=True)
    _answered(run, walk_log(run.master).records[4].physical_offset)


def _asked(run: Run, at_seconds: float) -> None:
    """Have a reader be told by the master that there is nothing after message 0."""
    run.history.empty_pulls.append(
        EmptyPull(
            node="zero",
            asked_at=at_seconds,
            answered_at=at_seconds + 0.1,
            queue_id=0,
            queue_offset=1,
        )
    )


def _stale(run: Run) -> None:
    _asked(run, 2.6)


def _reader_skips(run: Run) -> None:
    del run.history.reads[2]


def _reader_sees_one_twice(run: Run) -> None:
    run.history.reads.append(run.history.reads[-1])


def _reader_sees_what_is_not_there(run: Run) -> None:
    run.history.reads[-1] = msgspec.structs.replace(run.history.reads[-1], key="key99")


def _drain_sees_what_is_not_there(run: Run) -> None:
    last = run.history.drained[-1]
    run.history.drained.append(msgspec.structs.replace(last, physical_offset=77))


def _queue_does_not_give_it(run: Run) -> None:
    del run.history.drained[3]


def _probe_fails(run: Run) -> None:
    run.history.probes.append(Probe(sent_after_heal_seconds=30.0, succeeded=False, text="timeout"))


def _nothing_probed(run: Run) -> None:
    del run.history.probes[-1]


def _lost_after_power_loss_with_sync_flush(run: Run) -> None:
    run.history.given_up.append(("one", walk_log(run.master)))
    run.everywhere(log_of(*ALL[:4]))
    run.expectations = Expectations(master_lost_cache=True, acks_survive_power_loss=True)


def _lost_on_every_node_after_power_loss(run: Run) -> None:
    run.everywhere(log_of(*ALL[:4]))
    run.expectations = Expectations(master_lost_cache=True)


def _merged_silently_after_power_loss(run: Run) -> None:
    run.master = log_of(*ALL[:4], (6, 0))
    run.expectations = Expectations(master_lost_cache=True)


def _skipped(run: Run) -> None:
    run.history.skipped.append("queue 0: from 3 on an answer moves on by 2 and has 1")


def _unnoticed(run: Run) -> None:
    run.history.unnoticed.append("flip /data/broker-a-1/commitlog/0 at 17")


def _forgotten(run: Run) -> None:
    run.history.forgotten.append("one at 3.000: it says that nothing is damaged")


def _handed_out(run: Run) -> None:
    run.history.handed_out.append("flip /data/broker-a-1/commitlog/0: sent to 127.0.0.1:7")


def _falsely_whole(run: Run) -> None:
    run.history.falsely_whole.append("flip /data/broker-a-1/commitlog/0: taken for whole at 3.000")


def _rotten(run: Run) -> None:
    run.history.rotten.append("flip /data/broker-a-1/commitlog/0 at 17")


PLANTED: dict[str, tuple[Kind, Callable[[Run], None]]] = {
    fault.__name__.strip("_"): (kind, fault)
    for kind, fault in (
        (Kind.LOST, _lost),
        (Kind.LOST, _lost_on_the_master_only),
        (Kind.STORED_BUT_MISSING, _stored_but_missing),
        (Kind.DUPLICATED, _duplicated),
        (Kind.DUPLICATED, _duplicated_beyond_its_attempts),
        (Kind.REORDERED, _reordered_against_time),
        (Kind.REORDERED, _reordered_though_sent_again),
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
        (Kind.UNFLUSHED, _answered_before_the_sync),
        (Kind.STALE, _stale),
        (Kind.MISREAD, _reader_skips),
        (Kind.MISREAD, _reader_sees_one_twice),
        (Kind.MISREAD, _reader_sees_what_is_not_there),
        (Kind.MISREAD, _drain_sees_what_is_not_there),
        (Kind.UNREAD, _queue_does_not_give_it),
        (Kind.SKIPPED, _skipped),
        (Kind.UNNOTICED, _unnoticed),
        (Kind.FORGOTTEN, _forgotten),
        (Kind.HANDED_OUT, _handed_out),
        (Kind.FALSELY_WHOLE, _falsely_whole),
        (Kind.ROTTEN, _rotten),
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
    run.everywhere(log_of((0, 0), (1, 1), (2, 0), (2, 0), (3, 1), (4, 0), (6, 0), (7, 1)))
    for index in range(8):
        run.send(index, queue_offset=-1)
    assert run.check() == []


def test_what_rotted_under_a_running_process_may_reach_a_reader() -> None:
    """Nobody has noticed yet: its content may be wrong, but the next record has to come next."""
    run = Run()
    third = walk_log(run.master).records[2]
    run.history.hurt.append((third.physical_offset + 10, third.physical_offset + 11))
    index = next(i for i, r in enumerate(run.history.reads) if r.key == third.key)
    run.history.reads[index] = msgspec.structs.replace(run.history.reads[index], key="rotten")
    assert run.check() == []
    run.history.hurt.clear()
    assert run.kinds() == {Kind.MISREAD}


def test_an_unanswered_message_may_arrive_late() -> None:
    run = Run()
    run.everywhere(log_of(*((i, i % 2) for i in (0, 1, 2, 3, 4, 6, 7, 5))))
    for index in range(8):
        run.send(index, queue_offset=-1)
    assert run.check() == []


def test_after_power_loss_an_acknowledged_message_on_a_refused_slave_is_not_lost() -> None:
    run = Run()
    before = walk_log(run.master)
    run.everywhere(log_of(*ALL[:4]))
    run.history.refusals.append(Refusal("one", slave=before, master=walk_log(run.master)))
    run.history.given_up.append(("one", before))
    run.expectations = Expectations(master_lost_cache=True)
    assert run.check() == []


def test_without_sync_flush_an_answer_need_not_wait_for_the_disk() -> None:
    run = Run()
    _answered(run, 0)
    assert run.check() == []


def test_what_was_asked_before_the_answer_may_find_nothing() -> None:
    run = Run()
    _asked(run, 2.4)
    assert run.check() == []
