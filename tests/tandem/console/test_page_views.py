"""What the page shows, in a browser: every view at every width, keys, addresses, the unknown."""

import base64
from collections.abc import Callable

import pytest

from tests.support.browser import Page
from tests.support.fake_console import (
    NOW_MS,
    Served,
    body,
    drill_run,
    drills,
    error,
    message,
    topic_row,
    well,
    without_master,
)

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("browser")]

Visit = Callable[[str], None]

VIEWS = {
    "#/cluster": "takes messages",
    "#/topics": "Orders",
    "#/topics/Orders": "At brokers",
    "#/groups": "billing",
    "#/groups/billing": "CLUSTERING",
    "#/messages": "by time",
    "#/messages?topic=Orders": "order-1",
    "#/messages?topic=Orders&by=key&key=order-1": "order-1",
    "#/messages/Orders/7F00": "Properties",
    "#/messages/Orders/7F00/trace": "%DLQ%billing",
    "#/messages/Orders/7F00/why": "It is in the log of all 3 nodes.",
    "#/dead-letters": "billing",
    "#/dead-letters/billing": "not yet",
    "#/settings": "store.flush_disk_type",
    "#/settings?node=broker-a-0": "brokerName",
    "#/drills": "master-kill",
    "#/drills/2026-11-27": "byte for byte",
}

WIDER_THAN_THE_WINDOW = """
    [...document.querySelectorAll("body *")].filter((e) => {
      const box = e.getBoundingClientRect();
      return box.width && box.right > innerWidth + 1 && !e.closest("svg");
    }).map((e) => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 40)}`)
"""

LONG = "a_name_that_has_no_place_to_break_and_goes_on_" * 5


def test_every_view_shows_what_it_is_for(page: Page, visit: Visit) -> None:
    for address, text in reversed(VIEWS.items()):
        visit(address)
        assert text in page.text("#view"), address
        assert page.evaluate("document.title").endswith("TandemMQ console")


@pytest.mark.parametrize("width", [80, 320, 768, 1280, 2560])
def test_nothing_is_wider_than_the_window(
    page: Page, served: Served, visit: Visit, width: int
) -> None:
    served.fake.topics.append(topic_row(LONG[:127]))
    served.fake.messages[0]["keys"] = served.fake.messages[0]["id"] = LONG
    served.fake.letters[0]["message"]["body"] = body(LONG.encode())
    served.fake.show(without_master())
    page.resize(width)
    for address in reversed(VIEWS):
        visit(address)
        assert page.evaluate(WIDER_THAN_THE_WINDOW) == [], address
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        scrolled = (
            "document.querySelectorAll('.scrolls')].filter((e) => e.scrollWidth > e.clientWidth)"
        )
        assert page.evaluate(f"[...{scrolled}.length") == 0, address


def test_lines_of_text_do_not_become_as_wide_as_a_wide_window(page: Page, visit: Visit) -> None:
    page.resize(2560)
    visit("#/messages/Orders/7F00/why")
    widest = "Math.max(...[...document.querySelectorAll('p, li')].map((e) => e.offsetWidth))"
    assert page.evaluate(widest) < 1700
    assert page.evaluate("document.querySelector('#view').offsetWidth") < 1900


def test_a_reader_of_the_dark_gets_a_dark_page(page: Page) -> None:
    seen = []
    for scheme in ("light", "dark"):
        page.media(prefers_color_scheme=scheme)
        colours = "(({backgroundColor, color}) => [backgroundColor, color])"
        seen.append(page.evaluate(f"{colours}(getComputedStyle(document.body))"))
    assert seen[0] == ["rgb(255, 255, 255)", "rgb(29, 35, 43)"]
    assert seen[1] == ["rgb(18, 22, 27)", "rgb(226, 231, 236)"]


def test_what_nobody_knows_is_unknown_and_not_0(page: Page, served: Served, visit: Visit) -> None:
    served.fake.show(without_master())
    page.wait_text("down", "#view table")
    cells = page.evaluate(
        "[...document.querySelector('#view tbody tr').cells].map((c) => c.innerText)"
    )
    assert cells[3:8] == ["unknown"] * 5
    served.fake.topics[0].update(messages=None, queues=None, last_store_timestamp_ms=None)
    visit("#/topics")
    assert page.text("#view tbody tr").split("\t")[2:] == ["unknown"] * 3
    served.fake.drills = drills([drill_run(1, "INTERRUPTED")])
    visit("#/drills")
    assert page.text("#view tbody tr").split("\t")[5:8] == ["unknown"] * 3


def test_a_topic_without_messages_was_never_written_to(
    page: Page, served: Served, visit: Visit
) -> None:
    served.fake.topics[0].update(messages=0, last_store_timestamp_ms=None)
    visit("#/topics")
    assert page.text("#view tbody tr").split("\t")[3:] == ["0", "never"]


def test_status_is_said_by_a_word_a_colour_and_a_shape(page: Page, served: Served) -> None:
    served.fake.show(without_master())
    # In one step: a table may be made anew between two.
    seen = page.wait(
        "(() => {"
        "const both = ['good', 'bad'].map((k) => document.querySelector(`table .st.${k}`));"
        "return both.every(Boolean) && both.map((e) => [e.innerText, getComputedStyle(e).color,"
        "getComputedStyle(e, '::before').content[1]]); })()"
    )
    assert seen == [["FOLLOWER", "rgb(23, 107, 70)", "●"], ["down", "rgb(179, 38, 30)", "■"]]


def test_times_have_a_zone_and_say_how_long_ago(page: Page) -> None:
    assert "2026-11-25 18:45:00 UTC 21 s ago" in page.text("#view")


def test_an_address_is_good_after_a_reload_and_back_goes_back(page: Page, visit: Visit) -> None:
    visit("#/topics/Orders")
    visit("#/groups/billing")
    page.reload()
    page.wait_text("CLUSTERING", "#view")
    page.evaluate("history.back()")
    page.wait_text("At brokers", "#view")
    assert page.evaluate("location.hash") == "#/topics/Orders"


def test_names_of_any_kind_have_an_address(page: Page, served: Served, visit: Visit) -> None:
    name = "%RETRY%a/b?c#d e"
    served.fake.topics = [topic_row(name)]
    visit("#/topics")
    page.click("#view tbody a")
    page.wait_text("At brokers", "#view")
    assert page.text("h1") == name
    assert ("GET", "topics/%25RETRY%25a%2Fb%3Fc%23d%20e", {}) in served.fake.requests
    page.reload()
    page.wait_text(name, "h1")


def test_an_address_that_is_none_says_so(page: Page, visit: Visit) -> None:
    visit("#/nowhere/%E0%A4%A")
    assert "There is no view nowhere" in page.text("#view")


def test_keys_go_everywhere(page: Page, served: Served) -> None:
    for letter, view in zip(
        "tgmdsrc",
        ("topics", "groups", "messages", "dead-letters", "settings", "drills", "cluster"),
        strict=True,
    ):
        page.press("g", letter)
        page.wait(f"location.hash === '#/{view}'")
        page.wait(f"document.querySelector('nav [aria-current]').dataset.view === '{view}'")
    page.press("g", "t")
    page.wait("document.querySelector('#view [type=search]')")
    page.press("/")
    page.wait("document.activeElement.type === 'search'")
    page.press("g", "g")  # is typed
    page.wait("document.activeElement.value === 'gg' && location.hash.includes('filter=gg')")
    page.press("Escape", "?")
    page.wait("document.querySelector('dialog[open]')")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")


def test_arrows_go_from_row_to_row(page: Page, served: Served, visit: Visit) -> None:
    served.fake.topics = [topic_row(f"T{number}") for number in range(3)]
    visit("#/topics")
    page.evaluate("document.querySelector('#view tbody a').focus()")
    for key, name in (
        ("ArrowDown", "T1"),
        ("ArrowDown", "T2"),
        ("ArrowDown", "T2"),
        ("ArrowUp", "T1"),
    ):
        page.press(key)
        assert page.evaluate("document.activeElement.textContent") == name
    page.press("Enter")
    page.wait_text("T1", "h1")


def test_the_focus_is_seen(page: Page) -> None:
    page.press("Tab", "Tab")
    style = "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])"
    assert page.evaluate(f"{style}(getComputedStyle(document.activeElement))") == ["solid", "2px"]


def test_a_filter_is_part_of_the_address_and_keeps_the_focus(
    page: Page, served: Served, visit: Visit
) -> None:
    served.fake.topics = [topic_row("Orders"), topic_row("Bills")]
    visit("#/topics")
    page.type("#view [type=search]", "bil")
    page.wait("document.querySelectorAll('#view tbody tr').length === 1")
    assert page.evaluate("[location.hash, document.activeElement.type]") == [
        "#/topics?filter=bil",
        "search",
    ]
    page.reload()
    page.wait_text("Bills", "#view")
    assert page.evaluate("document.querySelector('#view [type=search]').value") == "bil"


def test_who_may_not_see_a_list_opens_what_they_know(
    page: Page, served: Served, visit: Visit
) -> None:
    refused = (403, error("forbidden", "user shop may not List Cluster:DefaultCluster"))
    for view, name, text in (
        ("topics", "shop-orders", "At brokers"),
        ("groups", "shop", "CLUSTERING"),
        ("dead-letters", "shop", "not yet"),
    ):
        served.fake.answers["GET", view] = served.fake.answers["GET", "topics"] = refused
        visit(f"#/{view}")
        assert "may not List" in page.text("#view")
        served.fake.answers.clear()
        page.type("#view [type=search]", name)
        page.press("Enter")
        page.wait(f"location.hash === '#/{view}/{name}'")
        page.wait_text(text, "#view")


def test_thousands_of_topics_and_groups_are_shown_in_pages(
    page: Page, served: Served, visit: Visit
) -> None:
    served.fake.topics = [topic_row(f"T{number:04}") for number in range(5_000)]
    visit("#/topics")
    assert "1 to 50 of 5,000" in page.text("#view")
    page.click("#view .pager button:last-child")
    page.wait_text("T0050", "#view")
    served.fake.groups = [
        {"group": f"G{n:04}", "members_count": 0, "topics": [], "lag": n} for n in range(3_000)
    ]
    visit("#/groups")
    assert page.evaluate("document.querySelectorAll('#view tbody tr').length") == 100
    assert "first 1,000 of 3,000" in page.text("#view")
    page.click("#view thead th:nth-child(2) button")
    page.wait("document.querySelector('#view tbody tr').innerText.includes('999')")
    assert page.evaluate("document.querySelector('th[aria-sort]').ariaSort") == "descending"


def test_what_is_looked_at_is_kept_while_new_figures_come(page: Page, served: Served) -> None:
    page.evaluate(
        "(() => { const cell = document.querySelector('#view tbody tr strong'); window.cell = cell;"
        "getSelection().selectAllChildren(cell); })()"
    )
    later = well(NOW_MS + 1000)
    later["groups"][0]["nodes"][0]["written"] = 2_000_000
    served.fake.show(later)
    page.wait_text("2,000,000", "#view")
    assert page.evaluate("[window.cell.isConnected, String(getSelection())]") == [
        True,
        "broker-a-0",
    ]


def test_a_body_is_shown_as_text_json_and_hex(page: Page, visit: Visit) -> None:
    visit("#/messages/Orders/7F00")
    pretty = page.text("#view pre")
    assert '"order": 12345678901234567890,\n  "lines": [],\n  "of": {\n    "a": [\n' in pretty
    page.click("#view .switch button:first-child")
    assert page.text("#view pre").startswith('{"order": 12345678901234567890, ')
    page.click("#view .switch button:last-child")
    first = page.text("#view pre").splitlines()[0]
    assert first == '000000  7b 22 6f 72 64 65 72 22 3a 20 31 32 33 34 35 36  {"order": 123456'


def test_a_body_that_is_no_text_is_hex_and_one_that_is_cut_says_so(
    page: Page, served: Served, visit: Visit
) -> None:
    data = bytes(range(256)) * 4
    served.fake.messages = [message(body=body(data, size=9_000))]
    visit("#/messages/Orders/7F00")
    assert "only the first 1,024 of 9,000 bytes" in page.text("#view")
    assert page.evaluate("document.querySelectorAll('#view .switch [aria-pressed]').length") == 1
    lines = page.text("#view pre").splitlines()
    assert len(lines) == 64
    assert base64.b16encode(data[16:32]).decode().lower() in lines[1].replace(" ", "")


def test_messages_are_asked_for_as_the_form_says(page: Page, served: Served, visit: Visit) -> None:
    visit("#/messages?topic=Orders&by=key")
    page.type("#view [name=key]", "order-1")
    page.press("Enter")
    page.wait_text("order-1", "#view table")
    asked = [path for _, path, _ in served.fake.requests if path.startswith("messages?")]
    assert asked == ["messages?topic=Orders&key=order-1"]
    assert page.evaluate("location.hash") == "#/messages?topic=Orders&by=key&key=order-1"


def test_a_time_is_in_the_zone_that_times_are_shown_in(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/messages?topic=Orders&begin=2026-11-25 18:00&end=2026-11-25T18:30:00%2B01:00")
    (asked,) = (path for _, path, _ in served.fake.requests if path.startswith("messages?"))
    assert asked == "messages?topic=Orders&begin_ms=1795629600000&end_ms=1795627800000"
    visit("#/messages?topic=Orders&begin=yesterday")
    assert "stored from: yesterday is no time" in page.text("#view")


def test_the_next_messages_have_an_address_of_their_own(
    page: Page, served: Served, visit: Visit
) -> None:
    visit("#/messages?topic=Orders")
    page.click("#view .pager a")
    page.wait("location.hash.includes('cursor=1.1')")
    page.wait("document.querySelector('#view[aria-busy=false]')")
    assert any("cursor=1.1" in path for _, path, _ in served.fake.requests)


def test_a_point_of_the_trend_leads_to_its_run(page: Page, served: Served, visit: Visit) -> None:
    served.fake.drills = drills([drill_run(1), drill_run(2, "FAILED"), drill_run(3)])
    visit("#/drills")
    shapes = "[...document.querySelectorAll('#view svg .dot')].map((e) => e.tagName)"
    assert page.evaluate(shapes) == ["circle", "rect", "circle"]
    page.click("#view svg a:nth-of-type(2) .dot")
    page.wait_text("Drill 2026-11-02", "h1")


def test_dialogs_and_lists_have_names_for_those_who_do_not_see_them(
    page: Page, visit: Visit
) -> None:
    for address in list(VIEWS)[1:]:
        visit(address)
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, a, input, select')]"
            ".filter((e) => !e.closest('[hidden]') && !("
            "e.innerText || e.ariaLabel || e.labels?.[0]?.innerText || e.textContent).trim())"
            ".map((e) => e.outerHTML)"
        )
        assert nameless == [], address
        assert page.evaluate("document.querySelectorAll('h1').length") == 1


def test_a_body_that_is_nested_as_deep_as_it_goes_is_shown(
    page: Page, served: Served, visit: Visit
) -> None:
    served.fake.messages = [message(body=body(b"[" * 100_000 + b"1" + b"]" * 100_000))]
    visit("#/messages/Orders/7F")
    page.wait("document.querySelector('#view pre').textContent.length < 40e6")
    assert "JSON" in page.text("#view .switch[aria-label='body as']")


def test_an_address_that_every_object_has_is_no_view(page: Page, visit: Visit) -> None:
    for name in ("constructor", "__proto__", "toString"):
        visit(f"#/{name}")
        assert f"There is no view {name}" in page.text("#view")
