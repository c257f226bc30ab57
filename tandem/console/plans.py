"""Plans of resets that wait for their second step: each has a number that is good once. Pure."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from tandem.client.admin_results import ResetPlan
from tandem.console.errors import APIError

PLAN_SECONDS: Final = 600.0
PLANS_MAX: Final = 16


class KeptPlan(msgspec.Struct, frozen=True):
    """A plan, and until when it may be carried out."""

    topic: str
    plan: ResetPlan
    ends_at: float


class Plans:
    """Those of one session; the oldest makes room for a new one."""

    def __init__(self) -> None:
        self._plans: dict[str, KeptPlan] = {}

    def keep(self, topic: str, plan: ResetPlan, now: float, random_text: Callable[[], str]) -> str:
        """Keep a plan; return its number."""
        while len(self._plans) >= PLANS_MAX:
            del self._plans[next(iter(self._plans))]
        number = random_text()
        self._plans[number] = KeptPlan(topic, plan, now + PLAN_SECONDS)
        return number

    def take(self, number: str, group: str, typed: str, now: float) -> KeptPlan:
        """Return the plan of a number, which is used up.

        Raises:
            APIError: another name was typed, and it is good still; or there is no such plan.
        """
        kept = self._plans.get(number)
        if kept is None or kept.ends_at <= now or kept.plan.group != group:
            raise APIError(
                HTTPStatus.CONFLICT,
                "plan_over",
                "this plan was carried out already, is too old, or is of another group",
                "ask for a plan again, and look at it",
            )
        if typed != group:
            raise APIError(
                HTTPStatus.CONFLICT,
                "name_differs",
                "another name was typed than that of the group",
                "type the name of the group that is to be reset",
            )
        del self._plans[number]
        return kept
