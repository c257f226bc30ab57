"""Who sends the requests of a connection, as far as handlers have to ask.

The guard has asked what a request names before its handler runs. A handler asks for what only it
can know: the topic of a record that it has found, a topic that it is about to create.
"""

from __future__ import annotations

from node.remoting.user_share import UserShare
from tandem.wire.access_control import Kind, Right


class Caller:
    """Somebody who may do everything.

    Attributes:
        in_words: Who they are, for the audit trail.
        share: What they may take of this node; None: it is not bounded for a user.
    """

    share: UserShare | None = None

    def __init__(self, in_words: str) -> None:
        self.in_words = in_words

    @property
    def is_current(self) -> bool:
        """Whether they still may what they might when their request came, without asking again."""
        return True

    @property
    def is_known(self) -> bool:
        """Whether they would be let in again."""
        return True

    def check(self, kind: Kind, name: str, *rights: Right) -> None:
        """Ask for one of some rights to a thing.

        Raises:
            RequestError: they have none of them (NO_PERMISSION).
        """


ANYBODY = Caller("anybody")
"""Where nobody is asked who they are."""
