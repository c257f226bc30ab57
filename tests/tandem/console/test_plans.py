import pytest

from tandem.client.admin_results import ResetPlan
from tandem.console.errors import APIError
from tandem.console.plans import PLAN_SECONDS, PLANS_MAX, Plans

PLAN = ResetPlan("g", 0, [])


def code(plans: Plans, number: str, group: str = "g", typed: str = "g", now: float = 0) -> str:
    with pytest.raises(APIError) as caught:
        plans.take(number, group, typed, now)
    return caught.value.code


def test_a_plan_is_good_once_for_its_group_and_its_time() -> None:
    plans = Plans()
    plans.keep("T", PLAN, 0.0, lambda: "n")
    assert code(plans, "m") == "plan_over"
    assert code(plans, "n", group="h", typed="h") == "plan_over"
    assert code(plans, "n", now=PLAN_SECONDS) == "plan_over"
    assert code(plans, "n", typed="G") == "name_differs"
    assert plans.take("n", "g", "g", PLAN_SECONDS - 1).plan is PLAN
    assert code(plans, "n") == "plan_over"


def test_the_oldest_plan_makes_room() -> None:
    plans = Plans()
    for number in range(PLANS_MAX + 1):
        plans.keep("T", PLAN, 0.0, lambda number=number: str(number))  # type: ignore[misc]
    assert code(plans, "0") == "plan_over"
    assert plans.take("1", "g", "g", 0.0).topic == "T"
