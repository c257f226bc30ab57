"""Which topics and groups the consumers' load has. Pure."""

from typing import Final

import msgspec

from tandem.drill.consumers.promises import GroupRules

RECONSUME_MAX: Final = 2


class Topics(msgspec.Struct, frozen=True):
    """The topics of the load. `suffix` tells them from those of other drills of one cluster."""

    suffix: str = ""

    @property
    def plain(self) -> str:
        """For messages that are handled at once."""
        return f"tandem-drill-plain{self.suffix}"

    @property
    def waiting(self) -> str:
        """For messages that wait, by their level or their time."""
        return f"tandem-drill-waiting{self.suffix}"

    @property
    def transactions(self) -> str:
        """For transactions."""
        return f"tandem-drill-transactions{self.suffix}"

    @property
    def retried(self) -> str:
        """For messages whose handler fails."""
        return f"tandem-drill-retried{self.suffix}"

    @property
    def queue_counts(self) -> dict[str, int]:
        """How many queues each has. Each queue is a task of each group that reads it: few do."""
        return {self.plain: 2, self.waiting: 1, self.transactions: 1, self.retried: 1}


def groups_of(topics: Topics) -> tuple[GroupRules, ...]:
    """Return the groups: two that read all but retries, one in order, one whose handler fails."""
    every = (topics.plain, topics.waiting, topics.transactions)
    suffix = topics.suffix
    return (
        GroupRules(name=f"tandem-drill-first{suffix}", topics=every, members=2),
        GroupRules(name=f"tandem-drill-second{suffix}", topics=every),
        GroupRules(
            name=f"tandem-drill-ordered{suffix}",
            topics=(topics.plain,),
            members=2,
            is_orderly=True,
        ),
        GroupRules(
            name=f"tandem-drill-retrying{suffix}",
            topics=(topics.retried,),
            reconsume_max=RECONSUME_MAX,
        ),
    )


def letters_group(topics: Topics) -> str:
    """Return the group that looks at dead letters.

    In the group that it asks about it would be a member, and get queues that nobody reads.
    """
    return f"tandem-drill-letters{topics.suffix}"


GROUPS: Final = groups_of(Topics())
FIRST, SECOND, ORDERED, RETRYING = GROUPS
