"""Puts that wait, alone: what is answered when, and how many there may be.

How they look to clients is in `test_send_message.py` and `test_send_runs.py`.
"""

from collections.abc import Callable

import pytest

from ha.results import PutWait
from node.handlers import parked_puts
from node.handlers.parked_puts import ParkedPuts, WaitPolicy
from node.tables.put_times import PutTimes
from store import PutMessageStatus
from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand
from tandem.wire.response_code import ResponseCode
from tests.node.doubles import Broker, Client


class Waited:
    """A wait whose outcome the test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Callable[[PutMessageStatus, str], None]]] = []
        self.reached = 0

    def wait(self) -> PutWait:
        return PutWait(
            lambda end, deadline, settled: self.asked.append((end, settled)),
            lambda: self.reached,
            5.0,
        )

    def end(self, status: PutMessageStatus, reason: str = "") -> None:
        for _, settled in self.asked:
            settled(status, reason)
        self.asked.clear()


def answer(opaque: int) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, opaque, RESPONSE_FLAG)


async def test_puts_of_a_round_wait_for_the_last_of_them_and_are_answered_together() -> None:
    broker, slave = Broker(), Waited()
    client = Client({}, broker.outbox)
    policy = WaitPolicy(replication=slave.wait())
    parked = ParkedPuts(policy, policy, broker.put_times)
    for opaque, end in ((1, 100), (2, 250)):
        parked.park(client.connection, end, answer(opaque))
    assert slave.asked == []
    client.connection.end_round()
    assert [end for end, _ in slave.asked] == [250]
    assert client.answers() == []
    slave.end(PutMessageStatus.PUT_OK)
    assert [(each.opaque, each.code) for each in client.answers()] == [(1, 0), (2, 0)]
    assert broker.put_times.acks == {("replicated", "send_ok"): 2}
    assert broker.put_times.replication.buckets()[-1] == ("+Inf", 2)
    assert broker.put_times.flush.buckets()[-1] == ("+Inf", 0)


async def test_acknowledgements_are_counted_by_what_was_asked_for() -> None:
    broker, disk, slave = Broker(), Waited(), Waited()
    client = Client({}, broker.outbox)
    policy = WaitPolicy(flush=disk.wait(), replication=slave.wait())
    parked = ParkedPuts(policy, policy, broker.put_times)
    for end, for_disks in ((100, False), (200, True), (300, True)):
        parked.park(client.connection, end, answer(end), for_disks=for_disks)
    client.connection.end_round()
    disk.end(PutMessageStatus.FLUSH_DISK_TIMEOUT, "late")
    slave.end(PutMessageStatus.PUT_OK)
    acks = broker.put_times.acks
    assert acks["replicated", "flush_disk_timeout"] == 1
    assert acks["replicated_flushed", "flush_disk_timeout"] == 2
    assert acks.total() == 3


async def test_what_was_reached_is_answered_well_and_the_rest_says_what_went_wrong() -> None:
    broker, slave = Broker(), Waited()
    client = Client({}, broker.outbox)
    policy = WaitPolicy(replication=slave.wait())
    parked = ParkedPuts(policy, policy, broker.put_times)
    for opaque, end in ((1, 100), (2, 250)):
        parked.park(client.connection, end, answer(opaque))
    client.connection.end_round()
    slave.reached = 100
    slave.end(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, "late")
    codes = {each.opaque: each.code for each in client.answers()}
    assert codes == {1: ResponseCode.SUCCESS, 2: ResponseCode.FLUSH_SLAVE_TIMEOUT}
    assert broker.put_times.acks == {
        ("replicated", "send_ok"): 1,
        ("replicated", "flush_slave_timeout"): 1,
    }


async def test_room_is_what_is_left_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parked_puts, "PARKED_PUTS_MAX", 2)
    broker, slave = Broker(), Waited()
    client = Client({}, broker.outbox)
    policy = WaitPolicy(replication=slave.wait())
    parked = ParkedPuts(policy, policy, PutTimes())
    parked.park(client.connection, 100, answer(1))
    parked.park(client.connection, 200, answer(2))
    assert parked.room == 0
    assert parked.overloaded().code == ResponseCode.SYSTEM_BUSY
    client.connection.end_round()
    slave.end(PutMessageStatus.PUT_OK)
    assert parked.room == 2
    assert parked.any_waits
    assert not ParkedPuts(WaitPolicy(), WaitPolicy(), PutTimes()).any_waits
