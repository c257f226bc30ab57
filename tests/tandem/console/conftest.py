"""The console's page in a browser, with a stand-in for the console."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.browser import Browser, Page, find_chromium, running_browser
from tests.support.fake_console import Served, served_console

Visit = Callable[[str], None]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip("no Chromium here: install one, or name it in TANDEM_TEST_BROWSER")
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def only_tab(browser: Browser) -> Page:
    """A process of the browser takes a while to start; one is enough for all tests."""
    return browser.new_page()


@pytest.fixture
def served() -> Iterator[Served]:
    with served_console() as served:
        yield served


@pytest.fixture
def tab(only_tab: Page, served: Served) -> Page:
    """The page, before anybody has logged in. What its console says is an error."""
    only_tab.forget()
    only_tab.resize(1280)
    only_tab.open(served.url)
    only_tab.wait("document.querySelector('#login input')")
    return only_tab


@pytest.fixture(autouse=True)
def _no_mistakes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if the page has raised, logged an error or broken its policy."""
    yield
    if "only_tab" in request.fixturenames:
        page: Page = request.getfixturevalue("only_tab")
        page.drain()
        # That an answer had the status of an error is no mistake of the page.
        assert [said for said in page.errors if not said.startswith("network: ")] == []


@pytest.fixture
def page(tab: Page) -> Page:
    """The page, logged in, at the cluster."""
    log_in(tab)
    tab.wait_text("broker-a-1", "#view")
    return tab


@pytest.fixture
def visit(page: Page) -> Visit:
    """Go to an address within the page, and wait until it shows what it has got."""

    def go(address: str) -> None:
        page.evaluate(
            "new Promise((done) => { addEventListener('hashchange', () => setTimeout(done),"
            f" {{ once: true }}); location.hash = {json.dumps(address)}; }})"
        )
        page.wait("document.querySelector('#view[aria-busy=false]')")

    return go


def log_in(tab: Page) -> None:
    tab.type("#login [name=user]", "shop")
    tab.type("#login [name=secret]", "sesame")
    tab.press("Enter")
