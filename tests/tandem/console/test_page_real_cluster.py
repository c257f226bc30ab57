"""The page of a real console of a real cluster, whose master is killed while somebody looks."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.testing import RunningCluster
from tests.support.browser import Browser, Page

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.xdist_group("browser")]

SENDS = 12

WHEN_IT_WAS_SEEN = """(gone) => {
  const look = () => {
    const said = document.querySelector("#view")?.innerText ?? "";
    if (!window.seen.gone && said.includes("down")) window.seen.gone = Date.now();
    const master = /master (\\S+) /.exec(said)?.[1];
    if (window.seen.gone && !window.seen.next && /^broker-a-\\d$/.test(master) && master !== gone) {
      window.seen.next = Date.now();
    }
  };
  window.seen = {};
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver(look).observe(document.body, all);
}"""
"""Notes when the page first showed a node as down, and then another master."""


@pytest.fixture
def orders(tandem_fenced_cluster: RunningCluster) -> str:
    """A topic with messages, of which one was given up by the group `billing`."""
    topic = tandem_fenced_cluster.topic(queues=2)
    servers = tandem_fenced_cluster.name_servers
    with tandem.BlockingProducer(servers, group="shop") as producer:
        for number in range(SENDS):
            body = b'<img src=x onerror="document.title=1">'
            producer.send(tandem.Message(topic, body, keys=f"order-{number}", tags="<b>"))
    with tandem.BlockingConsumer(servers, group="billing") as consumer:
        for received in consumer.subscribe(topic):
            received.dead_letter()
            break
    return topic


@pytest.fixture
def page(browser: Browser, tandem_fenced_cluster: RunningCluster, orders: str) -> Iterator[Page]:
    """The page, logged in by the address that the console has printed."""
    assert orders
    program = str(Path(sys.executable).with_name("tandem"))
    console = subprocess.Popen(
        [program, "console", "--listen", "127.0.0.1:0", "-c", str(tandem_fenced_cluster.file)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    page = browser.new_page()
    try:
        assert console.stdout is not None
        address = re.search(r"http://\S+", console.stdout.readline())
        assert address is not None
        page.resize(1280)
        page.open(address[0])
        page.wait_text("takes messages", "#view")
        yield page
    finally:
        page.close()
        console.send_signal(signal.SIGINT)
        console.communicate(timeout=120)
    assert [said for said in page.errors if not said.startswith("network: ")] == []


def go(page: Page, address: str, text: str) -> None:
    page.evaluate(f"location.hash = {address!r}")
    page.wait_text(text, "#view")


def posted(page: Page, selector: str) -> None:
    page.wait(
        f"document.querySelector('{selector}') && !document.querySelector('{selector}').disabled"
    )
    page.click(selector)


def test_a_killed_master_is_seen_and_letters_and_offsets_are_changed(
    page: Page, tandem_fenced_cluster: RunningCluster, orders: str
) -> None:
    cluster = tandem_fenced_cluster
    go(page, f"#/topics/{orders}", "broker-a")
    go(page, f"#/messages?topic={orders}&by=key&key=order-3", "<img src=x")
    page.click("#view tbody a")
    page.wait_text("Properties", "#view")
    page.evaluate("location.hash += '/why'")
    page.wait_text("It is stored in topic", "#view")
    go(page, "#/settings", "store.flush_disk_type")

    go(page, "#/cluster", "MASTER")
    old = cluster.master()
    page.evaluate(f"({WHEN_IT_WAS_SEEN})({old!r})")
    cluster.kill(old)
    seen: dict[str, Any] = page.wait("window.seen.next && window.seen")
    assert seen["gone"] <= seen["next"]
    assert cluster.wait_for_master() != old
    assert f"from {old}" in page.text("#view")

    _resend(page)
    _reset(page)
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def _resend(page: Page) -> None:
    go(page, "#/dead-letters/billing", "not yet")
    page.click("#view tbody button")
    posted(page, "dialog button.main")
    page.wait_text("Sent to", "dialog")
    page.press("Escape")
    page.wait_text("sent again once", "#view")
    page.click("#view tbody button")
    posted(page, "dialog button.main")
    page.wait_text("Nothing was sent", "dialog")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")


def _reset(page: Page) -> None:
    go(page, "#/groups/billing", "Members")
    page.click("#view .head button")
    page.evaluate(
        "(() => { const e = document.querySelector('dialog [name=to]'); e.value = 'earliest';"
        "e.dispatchEvent(new Event('change')); })()"
    )
    posted(page, "dialog button.main")
    page.wait_text("once more, and leaves out none", "dialog")
    page.type("dialog [name=name]", "billing")
    posted(page, "dialog button.danger")
    page.wait_text("Done.", "dialog")
