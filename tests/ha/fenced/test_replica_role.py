"""The diagram of roles, and the ways that there are in it."""

from ha.fenced import replica_role
from ha.fenced.replica_role import ReplicaRole, may_become

FOLLOWER, CANDIDATE = ReplicaRole.FOLLOWER, ReplicaRole.CANDIDATE
OPENING, MASTER = ReplicaRole.OPENING, ReplicaRole.MASTER
RESTARTING, QUARANTINED = ReplicaRole.RESTARTING, ReplicaRole.QUARANTINED


def test_roles_in_the_diagram_are_those_there_are() -> None:
    assert replica_role.__doc__ is not None
    for role in ReplicaRole:
        assert role.value in replica_role.__doc__


def test_the_ways_are_those_of_the_diagram() -> None:
    ways = {(role, to) for role in ReplicaRole for to in ReplicaRole if may_become(role, to)}
    assert ways == {
        (FOLLOWER, CANDIDATE),
        (CANDIDATE, FOLLOWER),
        (CANDIDATE, OPENING),
        (OPENING, MASTER),
        *((role, RESTARTING) for role in (FOLLOWER, OPENING, MASTER, RESTARTING, QUARANTINED)),
        *((role, QUARANTINED) for role in (FOLLOWER, OPENING, MASTER, RESTARTING, QUARANTINED)),
    }
