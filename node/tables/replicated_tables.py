"""The replicated tables, one line each, in the order in which snapshots have them."""

from __future__ import annotations

from typing import Final

from node.tables.node_table import Replicated
from node.tables.replicated_deliveries import DelayPart, DelayTable, TimersPart, TimersTable
from node.tables.replicated_groups import GroupsPart, GroupsTable
from node.tables.replicated_level import LevelPart
from node.tables.replicated_modes import ModesPart, ModesTable
from node.tables.replicated_offsets import OffsetsPart, OffsetsTable
from node.tables.replicated_pop import DeliveriesPart, DeliveriesTable
from node.tables.replicated_quotas import QuotasPart, QuotasTable
from node.tables.replicated_topics import TopicsPart, TopicsTable
from node.tables.replicated_users import AclsPart, AclsTable, UsersPart, UsersTable
from tandem.wire.feature_level import feature_level

REPLICATED_TABLES: Final = (
    Replicated(TopicsPart, TopicsTable),
    Replicated(GroupsPart, GroupsTable),
    Replicated(OffsetsPart, OffsetsTable),
    Replicated(DelayPart, DelayTable),
    Replicated(TimersPart, TimersTable),
    Replicated(UsersPart, UsersTable),
    Replicated(AclsPart, AclsTable),
    Replicated(QuotasPart, QuotasTable),
    Replicated(ModesPart, ModesTable),
    Replicated(DeliveriesPart, DeliveriesTable),
    Replicated(LevelPart),
)


def tables_of(level_max: int) -> tuple[Replicated, ...]:
    """Return those that a version knows whose highest feature level this is."""
    newest = feature_level(level_max).journal
    return tuple(each for each in REPLICATED_TABLES if each.part.version <= newest)
