"""Runs with clients that receive by POP, at a fenced group; see `tests.sim.consumers`."""

import random
from typing import Any, Final

import msgspec
import trio

from tandem.client import ClientError
from tandem.wire.request_code import RequestCode
from tandem.wire.route import encode_json_body
from tandem.wire.subscription_group import SubscriptionGroupConfig
from tests.sim.consumers.client import Client, NoAnswerError
from tests.sim.consumers.settings import CONSUMERS, ORDERLY_CONSUMERS
from tests.sim.consumers.simulation import (
    GROUP,
    ORDERLY_GROUP,
    ORDERLY_TOPIC,
    TOPIC,
    TOPICS_SECONDS_MAX,
    FencedConsumersSimulation,
)
from tests.sim.engine.history import Finding
from tests.sim.engine.trace import Trace
from tests.sim.pop.checker import Expectations, Kind, check, is_settled
from tests.sim.pop.consumer import RETRIES, PopConsumer, PopProducer
from tests.sim.pop.seen import PopSeen
from tests.sim.pop.settings import FencedPopSettings

OPERATOR: Final = "127.0.4.99"


class FencedPopSimulation(FencedConsumersSimulation):
    """One run under way."""

    seen: PopSeen

    def __init__(self, settings: FencedPopSettings, trace: Trace) -> None:
        super().__init__(settings, trace)
        self.seen = PopSeen()
        self._has_priorities = settings.has_priorities
        self._never_waits = settings.never_waits
        self._urgent_topics: frozenset[str] = frozenset()

    async def _create_topics(self) -> None:
        await super()._create_topics()
        if self._has_priorities:
            await self._give_priorities()
        async with trio.open_nursery() as nursery:
            operator = _Operator(self._place(self._chance("operator")), OPERATOR, 0)
            nursery.start_soon(operator.run)
            with trio.move_on_after(TOPICS_SECONDS_MAX):
                await operator.set_groups()
            operator.kill()

    async def _give_priorities(self) -> None:
        async with self._client_machine("127.0.2.6").admin() as admin:
            with trio.move_on_after(TOPICS_SECONDS_MAX):
                while True:
                    try:
                        await admin.alter_topic(TOPIC, attributes={"message.type": "PRIORITY"})
                        self._urgent_topics = frozenset({TOPIC})
                        break
                    except ClientError:
                        await trio.sleep(0.2)

    def _client_at(self, ip: str, life: int) -> Client:
        place = self._place(self._chance(f"client {ip} {life}"))
        if ip in CONSUMERS or ip in ORDERLY_CONSUMERS:
            is_orderly = ip in ORDERLY_CONSUMERS
            return PopConsumer(
                place,
                ip,
                life,
                group=ORDERLY_GROUP if is_orderly else GROUP,
                topic=ORDERLY_TOPIC if is_orderly else TOPIC,
                is_orderly=is_orderly,
                fails=self._fails_in_order if is_orderly else self._fails,
                lingers=self._has_priorities and not is_orderly,
                waits=not self._never_waits,
            )
        topics = (TOPIC, ORDERLY_TOPIC)
        pause_seconds = self.workload.pause_seconds
        return PopProducer(place, ip, life, topics=topics, pause_seconds=pause_seconds)

    def _fails(self, key: str) -> int:
        chance = random.Random(f"{self.settings.seed} {key}")
        if chance.random() >= self.workload.fail_chance:
            return 0
        return chance.choice((1, 2, RETRIES, 1_000))

    def _fails_in_order(self, key: str) -> int:
        return min(2, self._fails(key))

    # The verdict

    def _pop_expected(self, *, is_complete: bool) -> Expectations:
        return Expectations(
            groups={TOPIC: GROUP, ORDERLY_TOPIC: ORDERLY_GROUP},
            orderly_topics=frozenset({ORDERLY_TOPIC}),
            urgent_topics=self._urgent_topics,
            retries=RETRIES,
            is_complete=is_complete,
        )

    def _all_has_happened(self) -> bool:
        return is_settled(self.seen, self._log(), self._pop_expected(is_complete=True))

    def _check(self) -> list[Finding]:
        self._note_terms()
        for topic in {each.topic for each in self._log_at_end}:
            if topic.startswith(("%RETRY%", "%DLQ%")):
                self.cluster.note_hit("put again" if topic.startswith("%RETRY%") else "dead")
        crashes = [Finding(Kind.CRASHED, text) for text in self.history.crashes]
        expected = self._pop_expected(is_complete=not self._nobody_is_left())
        return [*crashes, *check(self.seen, self._log_at_end, expected)]


class _Operator(Client):
    """Says how often a group tries."""

    topics = (TOPIC,)

    async def set_groups(self) -> None:
        """Go on until a master has taken it."""
        config = SubscriptionGroupConfig(GROUP)
        body = encode_json_body(msgspec.structs.replace(config, retry_max_times=RETRIES))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        while True:
            try:
                answer: Any = await self.ask(self.master(TOPIC), code, None, body)
                if not answer.code:
                    return
            except NoAnswerError:
                pass
            await trio.sleep(0.2)
            await self._find_routes()
