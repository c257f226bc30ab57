"""What a drill has made in a deployed cluster is taken away; whole drills: tests/faults."""

from collections import Counter
from typing import cast

import msgspec
import pytest
import trio
import trio.testing

from tandem.client import (
    Admin,
    ClientError,
    GroupNotFoundError,
    RequestTimeoutError,
    RouteCause,
    RouteNotFoundError,
)
from tandem.drill.consumers.names import Topics, groups_of
from tandem.drill.plan import TargetFacts
from tandem.drill.targets.putting_back import TAKE_AWAY_SECONDS_MAX, Made, made_by, take_away
from tests.tandem.drill import samples

MADE = Made(topics=("one", "two"), groups=("readers", "letters"))
SLOW = RequestTimeoutError("a:1")


class Brokers:
    """Answers of an administrator; each name has its errors, before it is deleted."""

    def __init__(self, **errors: list[ClientError]) -> None:
        self._errors = errors
        self.asked: Counter[str] = Counter()
        self.deleted: list[str] = []

    async def delete_topic(self, topic: str) -> None:
        await self._delete(topic)

    async def delete_group(self, group: str, *, with_dead_letters: bool) -> None:
        assert with_dead_letters
        await self._delete(group)

    async def _delete(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.asked[name] += 1
        errors = self._errors.get(name, [])
        if errors:
            raise errors.pop(0) if len(errors) > 1 or name != "two" else errors[0]
        self.deleted.append(name)


async def take(brokers: Brokers) -> list[str]:
    return await take_away(cast("Admin", brokers), MADE)


async def test_every_topic_and_group_is_deleted(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(one=[SLOW, SLOW], readers=[SLOW])

    assert await take(brokers) == []

    assert sorted(brokers.deleted) == ["letters", "one", "readers", "two"]


async def test_a_group_that_nobody_knows_is_gone(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(letters=[GroupNotFoundError("letters")])

    assert await take(brokers) == []

    assert brokers.asked["letters"] == 1
    assert trio.current_time() < TAKE_AWAY_SECONDS_MAX


async def test_a_topic_that_cannot_be_deleted_holds_up_no_other_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    brokers = Brokers(two=[SLOW])

    (left,) = await take(brokers)

    assert left.startswith("topic two is still there: ")
    assert "`tandem topic delete two`" in left
    assert sorted(brokers.deleted) == ["letters", "one", "readers"]


async def test_a_topic_that_no_name_server_knows_at_last_was_never_made(
    autojump_clock: trio.testing.MockClock,
) -> None:
    missing = RouteNotFoundError("two", RouteCause.NO_TOPIC, "no such topic")

    assert await take(Brokers(two=[missing])) == []


@pytest.mark.parametrize("has_consumers", [True, False])
def test_what_a_drill_makes_is_what_its_load_is_for(*, has_consumers: bool) -> None:
    facts = TargetFacts(topic="t-1a", consumers_suffix="-1a", has_consumers=has_consumers)
    made = made_by(msgspec.structs.replace(samples.plan(), target=facts))

    topics = Topics("-1a")
    assert made.topics == ["t-1a", *(topics.queue_counts if has_consumers else ())]
    read = {group.name for group in groups_of(topics)} if has_consumers else set()
    assert read <= set(made.groups)
    assert made.groups[:2] == ["t-1a-readers", "t-1a-rereaders"]
    assert len(made.groups) == (7 if has_consumers else 2)
