"""What changes something: a reset in two steps; a dead letter, sent twice only knowingly."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.browser import Page
from tests.support.fake_console import NOW_MS, Served, error

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("browser")]

Visit = Callable[[str], None]

BUTTON = "dialog button.danger"


def sent(served: Served, path: str) -> list[dict[str, Any]]:
    return [
        said for method, asked, said in served.fake.requests if method == "POST" and asked == path
    ]


def is_disabled(page: Page, selector: str) -> bool:
    return bool(page.evaluate(f"document.querySelector({selector!r}).disabled"))


@pytest.fixture
def plan(page: Page, visit: Visit) -> Page:
    """The second step of a reset to the beginning."""
    visit("#/groups/billing")
    page.click("#view .head button")
    page.evaluate(
        "(() => { const e = document.querySelector('dialog [name=to]'); e.value = 'earliest';"
        "e.dispatchEvent(new Event('change')); })()"
    )
    page.click("dialog button.main")
    page.wait_text("Step 2 of 2", "dialog")
    return page


def test_a_reset_shows_from_and_to_of_each_queue_before_it_does_anything(
    plan: Page, served: Served
) -> None:
    rows = plan.evaluate(
        "[...document.querySelectorAll('dialog tbody tr')].map((r) => r.innerText)"
    )
    assert rows[0].split("\t") == ["broker-a", "0", "has none", "0", "no change"]
    assert rows[1].split("\t") == ["broker-a", "1", "140", "0", "gets 140 messages again"]
    assert "560 messages once more" in plan.text("dialog")
    assert "1 member online" in plan.text("dialog")
    assert sent(served, "groups/billing/reset") == [{"topic": "Orders", "to": "earliest"}]


def test_a_reset_is_done_when_the_name_of_the_group_is_typed(plan: Page, served: Served) -> None:
    assert is_disabled(plan, BUTTON)
    plan.type("dialog [name=name]", "bilking")
    assert is_disabled(plan, BUTTON)
    plan.press("Enter")
    plan.type("dialog [name=name]", "billing")
    plan.press("Enter", "Enter")
    plan.wait_text("Done.", "dialog")
    assert sent(served, "groups/billing/reset")[1:] == [{"number": "plan-2", "name": "billing"}]
    plan.press("Escape")
    plan.wait("!document.querySelector('dialog')")


def test_a_plan_that_is_over_is_made_anew(plan: Page, served: Served) -> None:
    served.fake._plans.clear()
    plan.type("dialog [name=name]", "billing")
    plan.press("Enter")
    plan.wait_text("the plan is too old", "dialog")
    assert "Step 1 of 2" in plan.text("dialog")
    plan.click("dialog button.main")
    plan.wait_text("Step 2 of 2", "dialog")


def test_a_reset_that_is_left_changes_nothing(plan: Page, served: Served) -> None:
    plan.press("Escape")
    plan.wait("!document.querySelector('dialog')")
    assert len(sent(served, "groups/billing/reset")) == 1


@pytest.mark.parametrize(
    ("to", "typed", "number"),
    [
        ("time", "2026-11-25 18:00", 1_795_629_600_000),
        ("time", "-1h", NOW_MS - 3_600_000),
        ("offset", "20", 20),
    ],
)
def test_a_reset_to_a_time_or_an_offset(
    page: Page, served: Served, visit: Visit, to: str, typed: str, number: int
) -> None:
    visit("#/groups/billing")
    page.click("#view .head button")
    page.evaluate(
        f"(() => {{ const e = document.querySelector('dialog [name=to]'); e.value = '{to}';"
        "e.dispatchEvent(new Event('change')); })()"
    )
    page.type("dialog [name=number]", "rubbish")
    page.wait_text("not understood", "dialog")
    assert is_disabled(page, "dialog button.main")
    page.type("dialog [name=number]", typed)
    page.press("Enter")
    page.wait_text("Step 2 of 2", "dialog")
    (said,) = sent(served, "groups/billing/reset")
    assert said["to"] == to
    assert abs(said["number"] - number) < 200_000  # since the page was opened


def test_a_dead_letter_is_sent_once_however_often_the_button_is_pressed(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/dead-letters/billing")
    page.click("#view tbody button")
    page.wait("document.querySelector('dialog[open]')")
    assert "Every group that reads Orders gets it" in page.text("dialog")
    page.evaluate(
        "(() => { const b = document.querySelector('dialog button.main');b.click(); b.click(); })()"
    )
    page.wait_text("as 9A6F", "dialog")
    assert [said["again"] for said in sent(served, "dead-letters/resend")] == [False]
    page.press("Escape")
    page.wait_text("sent again once, last at", "#view")
    assert "by shop" in page.text("#view tbody tr")


def test_a_letter_that_was_sent_before_is_sent_again_by_a_second_choice_alone(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/dead-letters/billing")
    # Meanwhile somebody else sends it; the list here does not know.
    served.fake.letters[0]["resent"] = {
        "times": 2, "message_id": "77AA", "at_ms": NOW_MS - 60_000, "by": "mallory",
    }  # fmt: skip
    page.click("#view tbody button")
    page.click("dialog button.main")
    page.wait_text("Nothing was sent", "dialog")
    said = page.text("dialog")
    assert "2 times, last at 2026-11-25 18:44:21 UTC" in said
    assert "by mallory, as 77AA" in said
    assert is_disabled(page, BUTTON)
    page.press("Enter")  # The focus is not on what sends it.
    assert [said["again"] for said in sent(served, "dead-letters/resend")] == [False]


def test_the_second_choice_sends_it_once_more(page: Page, served: Served, visit: Visit) -> None:
    served.fake.letters[0]["resent"] = {
        "times": 1, "message_id": "77AA", "at_ms": NOW_MS - 60_000, "by": "",
    }  # fmt: skip
    visit("#/dead-letters/billing")
    page.click("#view tbody button")
    page.wait_text("It was sent again before", "dialog")
    page.click("dialog button.main")
    page.wait_text("Nothing was sent", "dialog")
    assert "unknown" in page.text("dialog")  # who: the sender has not said
    page.click("dialog [type=checkbox]")
    page.wait(f"!document.querySelector('{BUTTON}').disabled")
    page.click(BUTTON)
    page.wait_text("as 9A6F", "dialog")
    assert [said["again"] for said in sent(served, "dead-letters/resend")] == [False, True]


def test_a_letter_that_may_have_been_sent_is_looked_at_first(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/dead-letters/billing")
    served.fake.answers["POST", "dead-letters/resend"] = (
        504,
        error("timeout", "no answer in time", outcome_unknown=True),
    )
    page.click("#view tbody button")
    page.click("dialog button.main")
    page.wait_text("It may have been sent", "dialog")
    page.click("dialog button.main")
    page.wait("!document.querySelector('dialog')")


def test_copies_of_a_letter_are_shown(page: Page, served: Served, visit: Visit) -> None:
    visit("#/dead-letters/billing")
    served.fake.answers["POST", "dead-letters/resend"] = (
        200,
        {
            "sent": {
                "letter_id": "7F",
                "origin_id": "7F",
                "topic": "Orders",
                "message_id": "9A",
                "copies": 2,
            }
        },
    )
    page.click("#view tbody button")
    page.click("dialog button.main")
    page.wait_text("It is there 2 times", "dialog")


def test_a_letter_without_a_first_topic_cannot_be_sent(
    page: Page, served: Served, visit: Visit
) -> None:
    served.fake.letters[0]["origin_topic"] = ""
    visit("#/dead-letters/billing")
    row = page.text("#view tbody tr")
    assert "not possible" in row
    assert "unknown" in row


def test_a_dialog_keeps_the_focus_and_gives_it_back(page: Page, visit: Visit) -> None:
    visit("#/dead-letters/billing")
    page.evaluate("document.querySelector('#view tbody button').focus()")
    page.press("Enter")
    page.wait("document.querySelector('dialog[open]')")
    inside = "document.querySelector('dialog').contains(document.activeElement)"
    for _ in range(6):
        page.press("Tab")
        assert page.evaluate(f"{inside} || document.activeElement === document.body")
    page.press("Escape")
    page.wait("document.activeElement === document.querySelector('#view tbody button')")
