"""A fenced group that does what a test tells it: its nodes answer, its coordinator has records."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
import trio

from tandem.client import Admin
from tandem.coordinator.interface import (
    Compare,
    Delete,
    KeyValue,
    Put,
    Snapshot,
    TransactionResult,
)
from tandem.views.fenced_group import FencedGroup
from tandem.wire.group_state import (
    GroupKeys,
    GroupState,
    LeaderRecord,
    NodeRecord,
    encode_record,
)
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tests.tandem.client.fake_broker import FakeBroker, FakeNetwork, answer_to
from tests.tandem.views.group_samples import MEMBERS, master, status

KEYS = GroupKeys("C", "g")


class FakeRecords:
    """A coordinator's keys; `trouble` is raised instead of an answer."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, int]] = {}
        self.revision = 1
        self.trouble: Exception | None = None
        self.trouble_of_transactions: Exception | None = None

    def write(self, key: str, record: GroupState | LeaderRecord | NodeRecord) -> None:
        self.revision += 1
        self.values[key] = (encode_record(record), self.revision)

    async def read(self, prefix: str) -> Snapshot:
        await trio.lowlevel.checkpoint()
        if self.trouble:
            raise self.trouble
        found = {
            key: KeyValue(key, value, revision, revision, 0)
            for key, (value, revision) in self.values.items()
            if key.startswith(prefix)
        }
        return Snapshot(self.revision, found)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        await trio.lowlevel.checkpoint()
        if self.trouble_of_transactions:
            raise self.trouble_of_transactions
        for compare in compares:
            if self.values.get(compare.key, (b"", 0))[1] != compare.mod_revision:
                return TransactionResult(succeeded=False, revision=self.revision)
        for operation in operations:
            assert isinstance(operation, Put)
            self.revision += 1
            self.values[operation.key] = (operation.value, self.revision)
        return TransactionResult(succeeded=True, revision=self.revision)


class Nodes:
    """Three nodes that answer what they are told to; the orders they were given."""

    def __init__(self) -> None:
        self.statuses: dict[str, FencedStatus] = {
            "a": master(), "b": status("b"), "c": status("c")
        }  # fmt: skip
        self.result = FencedCommandResult(done=True, text="handed over")
        self.orders: list[tuple[str, FencedCommand]] = []
        self.on_order: Callable[[FencedCommand], None] = lambda _: None
        self.records = FakeRecords()
        self.brokers = {member.address: self._broker(member.name) for member in MEMBERS}
        self.elect("a", 7)

    def _broker(self, name: str) -> FakeBroker:
        broker = FakeBroker()

        def told(request: RemotingCommand) -> RemotingCommand:
            command = msgspec.json.decode(request.body, type=FencedCommand)
            self.orders.append((name, command))
            self.on_order(command)
            return answer_to(request, body=msgspec.json.encode(self.result))

        broker.handlers[RequestCode.FENCED_STATUS] = lambda request: answer_to(
            request, body=msgspec.json.encode(self.statuses[name])
        )
        broker.handlers[RequestCode.FENCED_COMMAND] = told
        return broker

    def elect(self, name: str, epoch: int) -> None:
        """Let a node be master, for the coordinator and itself."""
        isr = {"a": "incarnation-a", "b": "incarnation-b"}
        self.records.write(
            KEYS.state, GroupState(epoch=epoch, master=name, isr=isr, min_isr=2, reason="test")
        )
        self.records.write(KEYS.leader, LeaderRecord(node=name, session="s", epoch=epoch))
        for other in "abc":
            self.statuses[other] = status(other, epoch=epoch)
        self.statuses[name] = master(name, epoch=epoch)

    def nobody_is_master(self) -> None:
        """Take the leader's key away; no node can be elected."""
        self.records.values.pop(KEYS.leader, None)
        for name in "abc":
            self.statuses[name] = status(name, refusal="not in the in-sync set")

    def register(self, name: str, epoch: int, end: int) -> None:
        """Let a node say what it has, with an incarnation that is in no in-sync set."""
        record = NodeRecord(node=name, session="s", incarnation="new", epoch=epoch, end=end)
        self.records.write(KEYS.node(name), record)
        self.statuses[name] = msgspec.structs.replace(
            self.statuses[name], incarnation="new", log_end=end, promised=0
        )


@asynccontextmanager
async def group_of(nodes: Nodes) -> AsyncIterator[FencedGroup]:
    async with trio.open_nursery() as nursery:
        network = FakeNetwork(nursery, nodes.brokers)
        addresses = [member.address for member in MEMBERS]
        async with Admin(addresses, open_stream=network.open_stream) as admin:
            yield FencedGroup("C", "g", MEMBERS, admin, nodes.records)
        nursery.cancel_scope.cancel()
