"""docs/compatibility.md lists the requests as they are declared."""

from tests.compat.request_list import request_list
from tests.support.paths import ROOT


def test_the_page_has_the_requests_as_they_are_declared() -> None:
    """Put what `request_list` returns into the page, or write the page anew."""
    assert request_list() in (ROOT / "docs/compatibility.md").read_text()
