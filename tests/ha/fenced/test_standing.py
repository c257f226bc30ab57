"""What a replica is: one state, and the ways it can change."""

from types import SimpleNamespace
from typing import cast

import pytest

from ha.errors import LocalHAError
from ha.fenced.group_view import GroupView
from ha.fenced.master import FencedMaster
from ha.fenced.replica_role import ReplicaRole
from ha.fenced.standing import Standing
from tandem.wire.group_state import NodeRecord

MASTERSHIP = cast("FencedMaster", SimpleNamespace(epoch=6))
VIEW = GroupView(
    revision=1,
    nodes={
        "b": NodeRecord(
            node="b", session="s", incarnation="b1", epoch=0, end=0, client_address="b:10911"
        )
    },
)


def test_a_replica_begins_as_a_follower_that_knows_nothing() -> None:
    standing = Standing()
    assert (standing.role, standing.epoch, standing.master_name) == (ReplicaRole.FOLLOWER, 0, "")
    assert standing.waits_for


def test_who_has_won_knows_its_epoch_and_is_on_the_way_to_master() -> None:
    standing = Standing()
    standing.become(ReplicaRole.CANDIDATE)
    standing.won(MASTERSHIP)
    assert (standing.role, standing.epoch) == (ReplicaRole.OPENING, 6)
    assert standing.mastership is MASTERSHIP
    assert standing.won_an_epoch.is_set()


def test_nobody_is_master_without_an_election() -> None:
    standing = Standing()
    with pytest.raises(LocalHAError, match="FOLLOWER does not become OPENING"):
        standing.won(MASTERSHIP)
    assert standing.mastership is None
    assert not standing.won_an_epoch.is_set()


def test_there_is_no_way_back_from_master() -> None:
    standing = Standing()
    for role in (ReplicaRole.CANDIDATE, ReplicaRole.OPENING, ReplicaRole.MASTER):
        standing.become(role)
    for role in (ReplicaRole.FOLLOWER, ReplicaRole.CANDIDATE, ReplicaRole.OPENING):
        with pytest.raises(LocalHAError):
            standing.become(role)
    standing.become(ReplicaRole.RESTARTING)


def test_another_master_is_news_and_so_is_its_address() -> None:
    standing = Standing()
    assert not standing.knows_master("")
    assert standing.knows_master("b")
    assert not standing.knows_master("b")
    assert standing.knows_master("b", VIEW)
    assert standing.master_client_address == "b:10911"
    assert standing.knows_master("", VIEW)
    assert (standing.master_name, standing.master_client_address) == ("", "")
