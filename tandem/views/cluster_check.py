"""`tandem ha status --check`: what monitoring is to make of a cluster, in one word and one status.

The worst thing decides: nobody answers, a group takes no messages, something else is wrong.
"""

import enum
from collections.abc import Sequence

import msgspec

from tandem.views.classic_nodes import NodeReplication
from tandem.views.group_view import DOWN, GroupView, NodeView


class Verdict(enum.Enum):
    """How a cluster is; the value is the exit status. 2 is a wrong command line."""

    WELL = 0
    SILENT = 1
    """Not one node answers, or none could be asked."""
    TAKES_NO_MESSAGES = 3
    """A group has no master, or its master refuses all messages."""
    IMPAIRED = 4
    """All groups take messages; but a node is down, behind or damaged, or nobody knows."""


class Check(msgspec.Struct, frozen=True):
    """The answer: `problems` in words, one each, the worst first."""

    verdict: str
    exit_status: int
    problems: list[str]

    @property
    def words(self) -> str:
        """The same for people."""
        return "\n".join([self.verdict, *self.problems])


def check(nodes: Sequence[NodeReplication], groups: Sequence[GroupView]) -> Check:
    """Judge what was seen: nodes of classic groups, and fenced groups."""
    roles = [node.role for group in groups for node in group.nodes]
    if {*roles, *(row.state for row in nodes)} <= {DOWN}:
        whys = [row.reason for row in nodes]
        whys += [node.trouble for group in groups for node in group.nodes]
        return _verdict(Verdict.SILENT, list(dict.fromkeys(filter(None, whys))))
    refused = [
        *(
            f"{group.group} takes no messages: {_reasons(group)}"
            for group in groups
            if _is_shut(group)
        ),
        *(
            f"{row.group} takes no messages: its master {row.node} is down: {row.reason}"
            for row in nodes
            if row.role == "MASTER" and row.state == "down"
        ),
        *(
            f"{row.group} takes no messages: {row.reason}"
            for row in nodes
            if row.state == "master" and row.reason
        ),
    ]
    impaired = [words for group in groups for words in _problems(group)]
    impaired += [words for row in nodes for words in _row_problems(row)]
    if refused:
        return _verdict(Verdict.TAKES_NO_MESSAGES, [*refused, *impaired])
    return _verdict(Verdict.IMPAIRED if impaired else Verdict.WELL, impaired)


def _verdict(verdict: Verdict, problems: list[str]) -> Check:
    return Check(verdict.name.lower().replace("_", " "), verdict.value, problems)


def _is_shut(group: GroupView) -> bool:
    return not group.takes_messages


def _reasons(group: GroupView) -> str:
    return "; ".join(group.reasons) or "nobody says why"


def _problems(group: GroupView) -> list[str]:
    found = []
    if group.coordinator_trouble:
        found.append(f"the coordinator of {group.group}: {group.coordinator_trouble}")
    words = {node.node: _trouble(node) for node in group.nodes}
    return found + [f"{name}: {trouble}" for name, trouble in words.items() if trouble]


def _trouble(node: NodeView) -> str:
    if node.role == DOWN:
        return f"down: {node.trouble}"
    words = [] if node.in_sync else ["not in sync"]
    if node.is_damaged:
        words.append("its log is damaged")
    return "; ".join(filter(None, [*words, node.trouble]))


def _row_problems(row: NodeReplication) -> list[str]:
    words = []
    if row.state not in ("master", "in sync") and not (
        row.role == "MASTER" and row.state == "down"
    ):
        words.append(f"{row.state}: {row.reason}" if row.reason else row.state)
    words += filter(None, [row.damage])
    return [f"{row.node}: {'; '.join(words)}"] if words else []
