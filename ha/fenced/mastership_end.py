"""How a mastership ends: one list of steps, all of them in the very step that shows the end.

The list is the order, and `BEFORE` says why it is that one. `Leadership` carries it out, without
an await in between. A process that stops leaves out END_ROUND: there is no next round.
After the list, once the tasks of the round have ended, `Leadership.say_farewell` deletes the leader
record and gives the lease back, so that the next master need not wait for its end.

    something ends it --> ORDER --> the tasks are cancelled --> farewell --> the store is closed
"""

from __future__ import annotations

import enum
from typing import Final


class EndStep(enum.Enum):
    """One thing to do."""

    REFUSE_PUTS = enum.auto()
    """The store is fenced: no message is taken any more."""
    LEAVE_ROLE = enum.auto()
    """The role is RESTARTING: no question is answered as a master's."""
    KEEP_FAREWELL = enum.auto()
    """The group's record is made that will say why this node stepped down."""
    STOP_ANSWERING = enum.auto()
    """Nothing is answered SEND_OK any more, whatever replicas acknowledge."""
    FAIL_WAITING = enum.auto()
    """Puts that wait are answered: their outcome is unknown."""
    SEND_ANSWERS = enum.auto()
    """The broker sends these answers."""
    SAY_SO = enum.auto()
    """The event for observers, and the line in the log."""
    END_ROUND = enum.auto()
    """The owner is asked to close the store, and to open it again as a follower's."""


ORDER: Final = tuple(EndStep)

ORDER_OF_A_STOP: Final = tuple(step for step in ORDER if step is not EndStep.END_ROUND)

BEFORE: Final = {
    (EndStep.REFUSE_PUTS, EndStep.FAIL_WAITING): (
        "an answer may let a producer send again at once: that put must not enter this log"
    ),
    (EndStep.LEAVE_ROLE, EndStep.SEND_ANSWERS): (
        "a producer that is answered asks who is master: it must not be sent here again"
    ),
    (EndStep.KEEP_FAREWELL, EndStep.STOP_ANSWERING): (
        "the record is that of the mastership, and is not changed once it is closed"
    ),
    (EndStep.STOP_ANSWERING, EndStep.FAIL_WAITING): (
        "an acknowledgement that arrives meanwhile must not turn unknown into SEND_OK"
    ),
    (EndStep.FAIL_WAITING, EndStep.SEND_ANSWERS): "they are sent together",
    (EndStep.SEND_ANSWERS, EndStep.END_ROUND): "the owner closes the connections' store",
    (EndStep.SAY_SO, EndStep.END_ROUND): "it says where the log ends, before it is closed",
}
"""Which step has to come before which, and why."""
