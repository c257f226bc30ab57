import re

from node.figures.families import FAMILIES, PUT_STEPS, RUNTIME, Base, Family, Kind, sample_names
from node.tables.put_times import STEP_NAMES
from tests.support.paths import ROOT


def test_names_are_those_of_prometheus_with_their_kind() -> None:
    """A counter ends in `_total`, and nothing of ours ends so that is none."""
    for name, family in FAMILIES.items():
        assert re.fullmatch("[a-z_][a-z0-9_]*", name)
        if family.base is not Base.EXPORTER:
            assert name.endswith("_total") == (family.kind is Kind.COUNTER), name
        assert "\n" not in family.help


def test_no_two_families_have_a_sample_of_one_name() -> None:
    names = [sample for name, each in FAMILIES.items() for sample in sample_names(name, each)]
    assert len(names) == len(set(names))


def test_a_histogram_has_three_names() -> None:
    family = Family(Kind.HISTOGRAM, "")
    assert list(sample_names("h", family)) == ["h_bucket", "h_sum", "h_count"]


def test_each_step_of_a_put_has_its_name() -> None:
    assert len(PUT_STEPS) == len(STEP_NAMES)


def test_the_page_names_every_family_and_no_other() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(?:rocketmq|tandem|process)_[a-z0-9_]+[a-z0-9]\b", page))
    named -= {"tandem_server"}
    runtime = {name for name in FAMILIES if name.startswith(RUNTIME)}
    assert FAMILIES.keys() - runtime <= named
    prefixes = {"rocketmq_rpc_latency", "rocketmq_message_size", "rocketmq_send_to_dlq"}
    assert named - FAMILIES.keys() <= {*prefixes, RUNTIME.rstrip("_")}
