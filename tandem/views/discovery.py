"""The nodes of a cluster whose file is not here, by what name servers and nodes say.

What was found once is kept: a node that ends is forgotten by the name servers, and it is the one
that somebody wants to hear of.
"""

from typing import TYPE_CHECKING

import msgspec
import trio

from tandem.client.errors import BrokerError, ClientError
from tandem.views.fenced_group import ANSWER_SECONDS_MAX
from tandem.views.group_view import Member
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.wire.ha_status import FencedStatus

NOT_FENCED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
"""What a node of a classic group answers to FENCED_STATUS, and a broker of RocketMQ."""


class FoundNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a classic group. Its name is that of the group with its broker id."""

    name: str
    group: str
    role: str
    address: str
    client_address: str


class Discovery:
    """What has been found until now.

    Attributes:
        cluster: The name of the cluster; empty if it is not known yet.
        fenced: The members of each group that elects its master.
        classic: The nodes of the others.
        addresses: Where any broker was registered, also one that did not say what it is.
    """

    def __init__(self) -> None:
        self.cluster = ""
        self.fenced: dict[str, list[Member]] = {}
        self.classic: dict[str, FoundNode] = {}
        self.addresses: set[str] = set()

    async def look(self, admin: "Admin") -> None:
        """Ask the name servers, and each node that they name.

        Raises:
            ClientError: no name server answers.
        """
        info = await admin.cluster_info()
        self.cluster = next(iter(sorted(info.cluster_addr_table)), self.cluster)
        answers: dict[str, FencedStatus | bool | None] = {}

        async def ask(address: str) -> None:
            answers[address] = None
            with trio.move_on_after(ANSWER_SECONDS_MAX):
                try:
                    answers[address] = await admin.fenced_status(address)
                except BrokerError as error:
                    answers[address] = False if error.code == NOT_FENCED else None
                except ClientError:
                    pass

        brokers = info.broker_addr_table
        async with trio.open_nursery() as nursery:
            for broker in brokers.values():
                for address in broker.broker_addrs.values():
                    nursery.start_soon(ask, address)
        self.addresses |= set(answers)
        for name, broker in sorted(brokers.items()):
            for broker_id, address in sorted(broker.broker_addrs.items()):
                answer = answers[address]
                if answer is False:
                    self._add_classic(name, broker_id, address)
                elif answer is not None and answer is not True:
                    self._add_member(answer.group, Member(answer.node, address))

    def _add_member(self, group: str, member: Member) -> None:
        others = [each for each in self.fenced.get(group, []) if each.name != member.name]
        self.fenced[group] = sorted([*others, member], key=lambda each: each.name)

    def _add_classic(self, group: str, broker_id: int, address: str) -> None:
        name = f"{group}-{broker_id}"
        self.classic[name] = FoundNode(
            name=name,
            group=group,
            role="MASTER" if broker_id == MASTER_ID else "SLAVE",
            address=address.rpartition(":")[0],
            client_address=address,
        )
