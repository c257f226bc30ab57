"""The feature levels of a fenced group for people: who knows which, and what is to be done next."""

from collections.abc import Sequence

import msgspec

from tandem.cli.formats import Column, Section
from tandem.views.group_view import DOWN, GroupView, NodeView
from tandem.wire.feature_level import LEVEL_MIN


class NodeFeatures(msgspec.Struct, frozen=True):
    """What a member knows. `level_max` is -1, and `program` empty, where it is not known."""

    node: str
    program: str
    level_max: int
    answers: bool


class GroupFeatures(msgspec.Struct, frozen=True):
    """The feature level of a group.

    Attributes:
        group: Its name.
        level: At which it is; -1 if that is not known.
        level_max: To which it could go now; `level` if to no higher one.
        waits_for: What keeps it from a higher one, in words.
        nodes: Its members.
    """

    group: str
    level: int
    level_max: int
    waits_for: list[str]
    nodes: list[NodeFeatures]


def features_of(view: GroupView) -> GroupFeatures:
    """Return what was seen of a group's features."""
    nodes = [
        NodeFeatures(each.node, each.program, each.level_max, each.role != DOWN)
        for each in view.nodes
    ]
    newest = max(each.level_max for each in nodes)
    waits_for = [words for each in view.nodes if (words := _why_it_is_waited(each, newest))]
    known = min(each.level_max for each in nodes)
    level_max = max(view.level, view.level if waits_for and known < newest else known)
    return GroupFeatures(view.group, view.level, level_max, waits_for, nodes)


def _why_it_is_waited(node: NodeView, newest: int) -> str:
    if node.role == DOWN:
        return f"{node.node} does not answer: start it"
    if node.level_max < newest:
        return f"{node.node} runs {_version(node.program)}: upgrade it"
    return ""


def headline(features: GroupFeatures) -> list[str]:
    """How it is, and what to do next, a line each."""
    level = f"{features.level}" if features.level >= LEVEL_MIN else "unknown"
    lines = [f"{features.group} is at feature level {level}"]
    lines += [f"it stays there until all members can go on: {why}" for why in features.waits_for]
    if not features.waits_for and features.level_max > features.level >= LEVEL_MIN:
        lines.append(
            f"all members know level {features.level_max}. Once you are sure to keep this version:"
            f" tandem ha raise-features {features.group}"
        )
    return lines


def features_section(nodes: Sequence[NodeFeatures]) -> Section[NodeFeatures]:
    """Return the table of members."""
    columns: list[Column[NodeFeatures]] = [
        Column("node", lambda each: each.node),
        Column("TandemMQ", lambda each: _version(each.program) if each.level_max >= 0 else "?"),
        Column("knows levels", _levels),
        Column("answers", lambda each: each.answers),
    ]
    return Section(nodes, columns)


def _version(program: str) -> str:
    return program or "before feature levels"


def _levels(node: NodeFeatures) -> str:
    if node.level_max < LEVEL_MIN:
        return "?"
    return f"{LEVEL_MIN} to {node.level_max}" if node.level_max > LEVEL_MIN else f"{LEVEL_MIN}"
