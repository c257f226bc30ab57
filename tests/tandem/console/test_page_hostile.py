"""Names, bodies and errors of others never become an element, a program or a request."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.browser import Page
from tests.support.fake_console import Served, error

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("browser")]

Visit = Callable[[str], None]

HOSTILE = "</script><img src=x onerror=hit()><svg onload=hit()>{{hit()}}"

VIEWS = (
    "#/topics",
    "#/topics/Orders",
    "#/groups",
    "#/groups/billing",
    "#/messages?topic=Orders",
    "#/messages/Orders/7F00",
    "#/messages/Orders/7F00/trace",
    "#/messages/Orders/7F00/why",
    "#/dead-letters",
    "#/dead-letters/billing",
    "#/settings",
    "#/settings?node=broker-a-0",
    "#/drills",
    "#/drills/x",
    "#/cluster",
)

WORDS_OF_THE_PAGE = {"kind", "state", "verdict", "started_at", "base64", "role"}
"""Fields whose values the API has a list of, or that are numbers in another form."""


def poisoned(value: Any, name: str = "") -> Any:  # noqa: ANN401 - any JSON
    """The same JSON with a hostile text in the place of every text, names of fields left alone."""
    match value:
        case dict():
            is_open = name in ("properties", "attributes", "subscriptions")
            return {
                (f"{key} {HOSTILE}" if is_open else key): poisoned(each, key)
                for key, each in value.items()
            }
        case list():
            return [poisoned(each, name) for each in value]
        case str() if name not in WORDS_OF_THE_PAGE:
            return f"{value} {HOSTILE}"
    return value


@pytest.fixture
def everything_hostile(served: Served) -> Served:
    """A console all of whose answers are full of markup."""
    usual = served.fake.answer
    served.fake.answer = (  # type: ignore[method-assign]
        lambda *request: (200, poisoned(usual(*request)[1]))
    )
    served.fake.show(poisoned(served.fake.cluster))
    return served


def elements_of_others(page: Page) -> list[str]:
    """Elements that the page itself never makes."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('img, script, svg[onload], iframe')].slice(1)"
        ".map((e) => e.outerHTML.slice(0, 200))"
    )
    return found


def test_markup_in_any_field_is_shown_as_text(
    page: Page, everything_hostile: Served, visit: Visit
) -> None:
    page.evaluate("window.hit = () => { window.wasHit = true; }")
    for address in VIEWS:
        visit(address)
        page.wait(f"document.querySelector('#view').innerText.includes({HOSTILE!r})")
        assert elements_of_others(page) == [], address
        assert "onerror" not in page.evaluate("document.title + ''") or address != "#/cluster"
    assert page.evaluate("window.wasHit ?? false") is False
    assert {url.split("/")[2] for url in page.requests if url != "about:blank"} == {
        everything_hostile.url.split("/")[2]
    }


def test_markup_in_an_error_is_shown_as_text(page: Page, served: Served, visit: Visit) -> None:
    served.fake.answers["GET", "topics"] = (502, error("refused", HOSTILE, HOSTILE))
    visit("#/topics")
    assert page.text("#view").count(HOSTILE) == 2
    assert elements_of_others(page) == []


def test_markup_in_an_address_is_shown_as_text(page: Page, visit: Visit) -> None:
    visit("#/<img src=x onerror=alert(1)>")
    assert "There is no view <img" in page.text("#view")
    visit("#/topics?filter=<img src=x onerror=alert(1)>&by=<b>&page=<i>")
    assert elements_of_others(page) == []
    value = page.evaluate("document.querySelector('#view [type=search]').value")
    assert value == "<img src=x onerror=alert(1)>"


def test_markup_in_dialogs_is_shown_as_text(
    page: Page, everything_hostile: Served, visit: Visit
) -> None:
    visit("#/dead-letters/billing")
    page.click("#view tbody button")
    page.wait_text(HOSTILE, "dialog")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    visit("#/groups/billing")
    page.click("#view .head button")
    page.click("dialog button.main")
    page.wait_text("Step 2", "dialog")
    assert HOSTILE in page.text("dialog")
    assert elements_of_others(page) == []


def test_what_shows_nothing_or_turns_the_text_round_is_spelled_out(
    page: Page, served: Served, visit: Visit
) -> None:
    served.fake.topics[0]["topic"] = "a\x00b\x1b[31m\u202egnp.exe\u200b\n"
    visit("#/topics")
    assert page.text("#view tbody a") == "a␀b␛[31m<U+202E>gnp.exe<U+200B>␊"


def test_the_policy_of_the_page_is_kept_by_the_browser(page: Page) -> None:
    """If somebody finds a way all the same, the browser does not follow it."""
    blocked = page.evaluate(
        """new Promise((done) => {
          const seen = [];
          addEventListener("securitypolicyviolation", (e) => {
            seen.push(e.effectiveDirective);
            if (seen.length === 4) done(seen.sort());
          });
          const box = document.createElement("div");
          box.innerHTML = '<img src="/x" onerror="1"><b style="color: red">x</b>';
          document.body.append(box);
          const program = document.createElement("script");
          program.textContent = "window.ran = 1";
          document.body.append(program);
          setTimeout(() => done(seen.sort()), 30000);
        })"""
    )
    assert blocked == ["img-src", "script-src-attr", "script-src-elem", "style-src-attr"]
    assert page.evaluate("window.ran ?? 0") == 0
    page.drain()
    page.errors.clear()
