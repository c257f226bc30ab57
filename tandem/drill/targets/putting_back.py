"""A deployed cluster is left as it was found."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from tandem.client import Admin, ClientError, GroupNotFoundError, RouteCause
from tandem.drill.consumers.names import groups_of, letters_group
from tandem.drill.errors import DrillError
from tandem.drill.java_witness import GROUP_SUFFIX
from tandem.drill.plan import Plan
from tandem.drill.scenario import LOOK_SECONDS
from tandem.drill.targets.process_nodes import RESTORE_SECONDS_MAX, ProcessNetwork, ProcessNodes

TAKE_AWAY_SECONDS_MAX: Final = 20.0


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill makes in a cluster, and takes away again."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()


def made_by(plan: Plan) -> Made:
    """Return what the drill of a plan makes, once its clients run."""
    topics, groups = [plan.topic], [plan.readers_group, plan.rereaders_group]
    if plan.witness is not None:
        groups.append(plan.topic + GROUP_SUFFIX)
    if plan.consumer_topics is not None:
        topics += plan.consumer_topics.queue_counts
        groups += [group.name for group in groups_of(plan.consumer_topics)]
        groups.append(letters_group(plan.consumer_topics))
    return Made(topics=topics, groups=groups)


async def put_back(
    nodes: ProcessNodes, network: ProcessNetwork, admin: Admin, made: Made
) -> list[str]:
    """Leave the cluster as it was found, without what the drill made; return what could not be."""
    left: list[str] = []
    with trio.move_on_after(RESTORE_SECONDS_MAX):
        try:
            await network.heal()
        except DrillError as error:
            left.append(f"not put back: {error}")
        left += await nodes.let_run()
        left += await take_away(admin, made)
        return left + await nodes.stop_started()
    return [
        *left,
        f"the cluster was not put in order within {RESTORE_SECONDS_MAX:g} s; look after it",
    ]


async def take_away(admin: Admin, made: Made) -> list[str]:
    """Delete topics and groups: after a failover it may take a moment until somebody can."""
    left: dict[str, Callable[[], Awaitable[None]]] = {
        **{f"topic {name}": partial(admin.delete_topic, name) for name in made.topics},
        **{
            f"group {name}": partial(admin.delete_group, name, with_dead_letters=True)
            for name in made.groups
        },
    }
    reasons: dict[str, ClientError] = {}
    with trio.move_on_after(TAKE_AWAY_SECONDS_MAX):
        while left:
            for what, delete in list(left.items()):
                try:
                    await delete()
                except GroupNotFoundError:
                    del left[
                        what
                    ]  # nobody read in it, or the answer to an earlier attempt was lost
                except ClientError as error:
                    reasons[what] = error
                else:
                    del left[what]
            if left:
                await trio.sleep(LOOK_SECONDS)
    return [
        f"{what} is still there: {reasons.get(what, 'no answer')}; `tandem {what.split()[0]} delete"
        f" {what.split()[1]}` takes it away"
        for what in left
        # It was never created, or the answer to an earlier attempt was lost.
        if getattr(reasons.get(what), "cause", None) is not RouteCause.NO_TOPIC
    ]
