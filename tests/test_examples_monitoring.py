"""The rules and the dashboard ask for figures that there are; promtool reads the rest."""

import json
import re

import yaml

from node.figures.families import FAMILIES, Kind, sample_names
from tests.support.paths import ROOT

MONITORING = ROOT / "examples" / "monitoring"

SAMPLES = {
    sample
    for name, family in FAMILIES.items()
    if not family.is_exporters
    for sample in sample_names(name, family)
}


def named(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:rocketmq|tandem|process)_[a-z0-9_]+", expression))


def test_rules_ask_for_what_there_is() -> None:
    (group,) = yaml.safe_load((MONITORING / "rules.yml").read_text(encoding="utf-8"))["groups"]
    asked = {name for rule in group["rules"] for name in named(rule["expr"])}
    assert asked <= SAMPLES
    assert all(rule["labels"]["severity"] in ("page", "ticket") for rule in group["rules"])
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"])


def test_the_dashboard_asks_for_what_there_is_and_takes_rates_of_counters() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])
    ]
    assert expressions
    for expression in expressions:
        names = named(expression)
        assert names
        assert names <= SAMPLES
        is_counter = any(FAMILIES[name].kind is Kind.COUNTER for name in names if name in FAMILIES)
        assert not is_counter or re.search(r"(?:rate|increase)\(", expression)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_scrape_is_of_the_example_cluster() -> None:
    scrape = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"127.0.0.{n}:5557" for n in (1, 2, 3)]
