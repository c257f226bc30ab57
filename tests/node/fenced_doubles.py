"""A replica and a journal under the control of a test."""

import trio

from node.handlers.admin import Admin
from node.handlers.consumer_offset import ConsumerOffset
from node.handlers.fenced_group import FencedGroup
from node.security.request import handler_table
from node.tables.journal.journal_tables import JournalTables, SavedTables
from node.tables.reset_offsets import ResetOffsets
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.remoting_command import RemotingCommand
from tests.node.doubles import BROKER, NOW_MS, Broker, Client, FakeReplication

STATUS = FencedStatus(
    node="a0",
    group="broker-a",
    role="MASTER",
    epoch=3,
    log_epoch=3,
    master="a0",
    incarnation="i",
    promised=3,
    log_start=0,
    log_end=100,
    flushed=100,
    confirm=100,
    min_isr=2,
    ack_level="written",
    isr=["a0", "a1"],
    lease_left_ms=4000,
)


class FakeReplica(FakeReplication):
    """The replica of a fenced group, its master at first."""

    def __init__(self) -> None:
        super().__init__()
        self.orders: list[FencedCommand] = []
        self.error: Exception | None = None

    def status(self) -> FencedStatus:
        return STATUS

    async def command(self, command: FencedCommand) -> FencedCommandResult:
        await trio.lowlevel.checkpoint()
        self.orders.append(command)
        if self.error is not None:
            raise self.error
        return FencedCommandResult(done=True, text="resigned")


class FencedClient(Client):
    """A client of the requests that fenced groups answer in ways of their own.

    `confirm` is what replication would say.
    """

    def __init__(self, replica: FakeReplica, nursery: trio.Nursery) -> None:
        broker = self.broker = Broker(is_fenced=True)
        saved = SavedTables(broker.disk, "s", lambda: NOW_MS)
        saved.topics.update(*broker.topics.configs.topic_config_table.values())
        self.tables = JournalTables(
            saved, broker.store, replica, born_host=BROKER.packed, wall_clock_ms=lambda: NOW_MS
        )
        self.journal = self.tables.journal
        self.group = FencedGroup(replica, spawn=nursery.start_soon, send=broker.outbox.flush)
        offset = ConsumerOffset(broker.store, self.tables, ResetOffsets(), timeout_seconds=3)
        admin = Admin(
            self.tables, replica.runtime_info, lambda done: done(), frozenset(), timeout_seconds=3
        )
        handlers = handler_table(self.group, offset, admin)
        super().__init__(handlers, broker.outbox)

    def open(self) -> None:
        self.confirm()
        self.tables.open([])
        self.confirm()

    def confirm(self) -> None:
        self.broker.store.announce()
        self.broker.store.confirm(self.broker.store.max_physical_offset)
        self.journal.catch_up()

    def answers(self) -> list[RemotingCommand]:
        self.tables.end_round()
        return super().answers()
