"""What a node of a fenced group is at the moment.

    FOLLOWER --> CANDIDATE --> OPENING --> MASTER
        |  ^         |            |          |
        |  +---------+            |          |      lost the election: follows the winner
        |                         |          |
        +-------------------------+----------+----> RESTARTING
        |                                             a new round in the same process, as a follower
        +-------------------------+----------+----> QUARANTINED
                                                      serves nothing; a person has to look: the
                                                      log contradicts promises, or a sync failed

There is no way from MASTER or OPENING back to FOLLOWER: a former master may hold messages that the
next master does not have, so its store is closed, opened again and compared first.
"""

import enum
from typing import Final


class ReplicaRole(enum.StrEnum):
    """The state of a `FencedHAService`."""

    FOLLOWER = "FOLLOWER"
    """Has what a master sends it, or waits for one."""
    CANDIDATE = "CANDIDATE"
    """Has dropped its link, promised the next epoch, and asks the coordinator for it."""
    OPENING = "OPENING"
    """Has won its epoch; reads below what is confirmed, waits until all members have its log."""
    MASTER = "MASTER"
    """Takes messages."""
    RESTARTING = "RESTARTING"
    """Answers nothing well any more; its owner closes the store and opens it again."""
    QUARANTINED = "QUARANTINED"
    """Its log contradicts what was promised to clients, or its disk has failed."""


_NEXT: Final = {
    ReplicaRole.FOLLOWER: {ReplicaRole.CANDIDATE},
    ReplicaRole.CANDIDATE: {ReplicaRole.FOLLOWER, ReplicaRole.OPENING},
    ReplicaRole.OPENING: {ReplicaRole.MASTER},
    ReplicaRole.MASTER: set[ReplicaRole](),
    ReplicaRole.RESTARTING: {ReplicaRole.RESTARTING},
    ReplicaRole.QUARANTINED: set[ReplicaRole](),
}
_ENDS: Final = {ReplicaRole.RESTARTING, ReplicaRole.QUARANTINED}


def may_become(role: ReplicaRole, other: ReplicaRole) -> bool:
    """True if the diagram has a way from `role` to `other` in one step.

    A candidate is a follower again before its round ends. An operator may have a replica in
    quarantine begin again, and a mastership that has ended may turn out to have a failed disk.
    """
    return other in _NEXT[role] or (other in _ENDS and role is not ReplicaRole.CANDIDATE)
