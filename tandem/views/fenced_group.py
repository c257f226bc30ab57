"""One fenced group, and whom to ask about it: its nodes, and its coordinator."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from tandem.client.errors import ClientError, ConnectionLostError, RequestTimeoutError
from tandem.coordinator.interface import (
    Compare,
    CoordinatorError,
    Delete,
    Put,
    Snapshot,
    TransactionResult,
)
from tandem.views.group_view import GroupRecords, GroupView, Member, decode_records, group_view
from tandem.wire.group_state import GroupKeys, MalformedGroupRecordError

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.wire.ha_status import FencedStatus

ANSWER_SECONDS_MAX: Final = 3.0
"""A frozen node accepts connections and says nothing; waiting longer would not change that."""


class RecordStore(Protocol):
    """What is needed of a `tandem.coordinator.interface.Coordinator`."""

    async def read(self, prefix: str) -> Snapshot:
        """Return all keys under `prefix`."""

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        """Do all operations if all compares hold, else nothing."""


class FencedGroup:
    """One fenced group and whom to ask about it. Asking never fails: silence is an answer."""

    def __init__(
        self,
        cluster: str,
        name: str,
        members: Sequence[Member],
        admin: "Admin",
        coordinator: RecordStore | str,
    ) -> None:
        """`coordinator`: text in place of one says why it cannot be asked."""
        self.name = name
        self.members = members
        self.keys = GroupKeys(cluster, name)
        self.admin = admin
        self.coordinator = coordinator

    def address(self, node: str) -> str:
        """Where a member answers clients."""
        return next(member.address for member in self.members if member.name == node)

    async def view(self) -> GroupView:
        """Ask everybody at once; takes at most `ANSWER_SECONDS_MAX`."""
        answers: dict[str, FencedStatus | str] = {}
        records: GroupRecords | str = ""

        async def ask_node(member: Member) -> None:
            answers[member.name] = await self.status(member)

        async def ask_coordinator() -> None:
            nonlocal records
            records = await self.records()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_coordinator)
            for member in self.members:
                nursery.start_soon(ask_node, member)
        return group_view(self.name, self.members, answers, records)

    async def status(self, member: Member) -> "FencedStatus | str":
        """Return what one node says of itself, or why it says nothing."""
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            try:
                return await self.admin.fenced_status(member.address)
            except ConnectionLostError as error:
                return f"does not answer: {error.reason}"
            except RequestTimeoutError:
                pass
            except ClientError as error:
                return str(error)
        return f"no answer in {ANSWER_SECONDS_MAX:.0f} s"

    async def records(self) -> GroupRecords | str:
        """Return what the coordinator holds, or why it does not say."""
        if isinstance(self.coordinator, str):
            return self.coordinator
        with trio.move_on_after(ANSWER_SECONDS_MAX):
            try:
                snapshot = await self.coordinator.read(self.keys.prefix)
                found = {key: (kv.value, kv.mod_revision) for key, kv in snapshot.values.items()}
                return decode_records(self.keys, found)
            except (CoordinatorError, MalformedGroupRecordError) as error:
                return str(error)
        return f"no answer in {ANSWER_SECONDS_MAX:.0f} s"
