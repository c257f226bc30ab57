"""The pages of operations are whole: every alert has its paragraph, every page is in the index."""

import re
from typing import Final

import pytest
import yaml

from tests.support.paths import ROOT

PAGES: Final = ROOT / "docs/operations"
RUNBOOK: Final = (PAGES / "runbook.md").read_text()
RULES: Final = yaml.safe_load((ROOT / "examples/monitoring/rules.yml").read_text())
ALERTS: Final = {
    rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule
}


def paragraphs() -> dict[str, str]:
    """What the runbook says, by its headings."""
    _, *parts = re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)
    return {part.partition("\n")[0].strip(): part.partition("\n")[2].strip() for part in parts}


def test_every_alert_has_a_paragraph_and_no_paragraph_is_of_none() -> None:
    assert list(paragraphs()) == list(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_a_paragraph_says_what_to_do_and_how_urgent_it_is(alert: str) -> None:
    text = paragraphs()[alert]
    urgency = {"page": "*Page.*", "ticket": "*Ticket.*"}[ALERTS[alert]["labels"]["severity"]]
    assert text.startswith(urgency)
    assert "`" in text, "nothing to look at or to type"


def test_every_page_is_in_the_index_and_the_index_in_that_of_all_pages() -> None:
    listed = re.findall(r"^\| \[(\S+)\]", (PAGES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(
        page.name for page in PAGES.iterdir() if page.name != "README.md"
    )
    assert "(operations/README.md)" in (ROOT / "docs/README.md").read_text()
