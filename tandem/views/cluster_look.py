"""A look at a whole cluster: every node is asked at once, and the coordinator of fenced groups."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from tandem.client.errors import ClientError
from tandem.cluster_file.choices import CoordinatorKind, GroupKind
from tandem.cluster_file.secret_file import SecretFileError
from tandem.coordinator.client import connect
from tandem.coordinator.interface import CoordinatorError
from tandem.views.classic_nodes import ClassicNode, NodeReplication, replication
from tandem.views.fenced_group import ANSWER_SECONDS_MAX, FencedGroup, RecordStore
from tandem.views.group_view import DOWN, GroupView, Member

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.cluster.spec import ClusterSpec
    from tandem.wire.request_headers import HARuntimeInfo


class ClusterLook(msgspec.Struct, frozen=True):
    """What is known of a cluster: nodes of classic groups, and fenced groups."""

    classic_nodes: list[NodeReplication]
    groups: list[GroupView]

    @property
    def is_silent(self) -> bool:
        """True if not one node has answered."""
        nodes = [node.role for group in self.groups for node in group.nodes]
        return {*nodes, *(row.state for row in self.classic_nodes)} <= {DOWN}


def fenced_groups(spec: "ClusterSpec") -> list[str]:
    """Return the names of the groups that elect their masters."""
    return [name for name, group in spec.groups.items() if group.kind is GroupKind.FENCED]


def members_of(spec: "ClusterSpec", group: str) -> list[Member]:
    """Return the nodes of a group of a cluster file."""
    return [Member(node.name, node.client_address) for node in spec.nodes if node.group == group]


@asynccontextmanager
async def coordinator_of(spec: "ClusterSpec") -> AsyncIterator[RecordStore | str]:
    """Have a client of the cluster's coordinator, or why there is none."""
    try:
        is_ours = spec.coordinator.kind is CoordinatorKind.EMBEDDED
        client = connect(spec.coordinator, secret=spec.read_secret() if is_ours else "")
    except (CoordinatorError, SecretFileError) as error:
        trouble = str(error)
    else:
        try:
            yield client
        finally:
            await client.aclose()
        return
    yield trouble


async def look(
    nodes: Sequence[ClassicNode], admin: "Admin", groups: Sequence[FencedGroup]
) -> ClusterLook:
    """Ask everybody at once: `nodes` are those of classic groups."""
    views: dict[str, GroupView] = {}
    answers: dict[str, HARuntimeInfo | str] = {}

    async def view(group: FencedGroup) -> None:
        views[group.name] = await group.view()

    async with trio.open_nursery() as nursery:
        for group in groups:
            nursery.start_soon(view, group)
        for node in nodes:
            nursery.start_soon(_ask, admin, node, answers)
    return ClusterLook(replication(nodes, answers), [views[group.name] for group in groups])


async def _ask(
    admin: "Admin", node: ClassicNode, answers: "dict[str, HARuntimeInfo | str]"
) -> None:
    answers[node.name] = f"no answer in {ANSWER_SECONDS_MAX:.0f} s"
    with trio.move_on_after(ANSWER_SECONDS_MAX):
        try:
            answers[node.name] = await admin.ha_runtime_info(node.client_address)
        except ClientError as error:
            answers[node.name] = str(error)
