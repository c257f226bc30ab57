"""The page while the cluster changes, the console goes and comes, and sessions begin and end."""

import time
from collections.abc import Callable

import pytest

from tests.support.browser import Browser, Page
from tests.support.fake_console import NOW_MS, Served, error, well, without_master

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("browser")]

Visit = Callable[[str], None]


def log_in(page: Page, secret: str = "sesame") -> None:
    page.type("#login [name=user]", "shop")
    page.type("#login [name=secret]", secret)
    page.press("Enter")


def test_a_master_that_is_gone_is_seen_wherever_one_is(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/topics")
    page.evaluate("window.stays = true")
    served.fake.show(without_master())
    page.wait_text("takes no messages", "#state")
    page.wait("document.querySelector('#said').textContent.includes('broker-a-0: down')")
    page.click("#state a")
    page.wait_text("connection to 127.0.0.1:10911: refused", "#view")
    served.fake.show(well())
    page.wait_text("well", "#state")
    assert page.evaluate("window.stays") is True


def test_a_console_that_goes_is_missed_and_found_again_without_a_reload(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/groups")
    page.evaluate("window.stays = true")
    served.stop()
    page.wait_text("No connection to the console since", "#lost")
    assert "UTC" in page.text("#lost")
    assert "billing" in page.text("#view")  # what was seen is better than nothing
    served.fake.groups[0]["group"] = "ledger"
    served.start()
    page.wait("document.querySelector('#lost').hidden")
    page.wait_text("ledger", "#view")
    assert page.evaluate("window.stays") is True


def test_a_console_that_hangs_is_missed(page: Page, served: Served) -> None:
    served.fake.gate.clear()
    page.wait_text("No connection to the console since", "#lost")
    served.fake.gate.set()
    page.wait("document.querySelector('#lost').hidden")


def test_a_session_that_is_over_is_begun_anew_where_one_was(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/groups/billing")
    page.click("#view .head button")
    page.wait("document.querySelector('dialog[open]')")
    served.fake.end_sessions()
    served.fake.push("over", {"reason": "no_session"})
    page.wait_text("Your session is over", "#login")
    assert page.evaluate(
        "[document.querySelector('#view').childElementCount, !!document.querySelector('dialog')]"
    ) == [0, False]
    log_in(page)
    page.wait_text("CLUSTERING", "#view")
    assert page.evaluate("location.hash") == "#/groups/billing"


def test_a_session_that_ends_without_a_word_is_noticed_with_the_next_request(
    page: Page, served: Served
) -> None:
    served.fake.end_sessions()
    page.press("g", "t")
    page.wait_text("Your session is over", "#login")
    log_in(page)
    page.wait_text("Orders", "#view")


def test_wrong_keys_are_refused_with_what_to_do(tab: Page) -> None:
    log_in(tab, "open")
    tab.wait_text("no user has these keys", "#login")
    log_in(tab)
    tab.wait_text("takes messages", "#view")
    assert tab.evaluate("document.querySelectorAll('#login input').length") == 0


def test_who_logs_out_sees_nothing_any_more(page: Page, served: Served) -> None:
    page.click("#who button:last-child")
    page.wait_text("You are logged out", "#login")
    assert page.text("#view") == ""
    assert served.fake.sessions == set()


def test_a_token_in_the_address_logs_in_and_leaves_it(browser: Browser, served: Served) -> None:
    served.fake.login = "token"
    page = browser.new_page()
    page.open(f"{served.url}#token=sesame")
    page.wait_text("takes messages", "#view")
    assert page.evaluate("location.hash") == "#/cluster"
    assert page.evaluate("history.length") <= 2
    page.close()


def test_a_token_that_is_wrong_is_asked_for(browser: Browser, served: Served) -> None:
    served.fake.login = "token"
    page = browser.new_page()
    page.open(f"{served.url}#token=%E0%A4%A")
    page.wait_text("wrong_keys", "#login")
    assert "paste its token" in page.text("#login")
    page.type("#login [name=token]", "sesame")
    page.press("Enter")
    page.wait_text("takes messages", "#view")
    page.close()


def test_who_may_not_see_the_cluster_is_not_told_that_the_connection_is_lost(
    tab: Page, served: Served
) -> None:
    refused = (403, error("forbidden", "user shop may not Get Cluster:DefaultCluster"))
    served.fake.answers["GET", "events"] = served.fake.answers["GET", "cluster"] = refused
    log_in(tab)
    tab.wait_text("may not Get Cluster", "#view")
    tab.wait_text("no live view", "#state")
    assert tab.evaluate("document.querySelector('#lost').hidden")
    tab.press("g", "t")
    tab.wait_text("Orders", "#view")


def test_a_cluster_that_cannot_be_asked_is_said_and_what_was_seen_stays(
    page: Page, served: Served
) -> None:
    served.fake.push("trouble", error("no_answer", "no node answers"))
    page.wait_text("no node answers", "#view")
    assert "broker-a-1" in page.text("#view")
    served.fake.show(well(NOW_MS + 5000))
    page.wait("!document.querySelector('#view').innerText.includes('no node answers')")


def test_a_view_that_fails_can_be_asked_for_again(page: Page, served: Served, visit: Visit) -> None:
    served.fake.answers["GET", "topics"] = (503, error("no_answer", "no node answers", "start one"))
    visit("#/topics")
    assert "start one" in page.text("#view")
    del served.fake.answers["GET", "topics"]
    page.click("#view .note button")
    page.wait_text("Orders", "#view")


def test_a_snapshot_is_shown_as_soon_as_it_comes(page: Page, served: Served) -> None:
    """Measured, and not judged but for what no machine is too busy for."""
    begun = time.monotonic()
    served.fake.show(without_master())
    page.wait_text("down", "#view table")
    assert time.monotonic() - begun < 30
