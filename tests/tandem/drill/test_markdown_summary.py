import msgspec
import pytest

from tandem.drill.comparison import compare
from tandem.drill.markdown_summary import REASONS_MAX, markdown_of
from tandem.drill.plan import TargetFacts
from tests.tandem.drill import samples

FIRST = msgspec.structs.replace(samples.RUN, name="slave-loss", ended_at_seconds=5.0)


def test_the_verdict_comes_first_and_each_scenario_has_a_row() -> None:
    text = markdown_of(samples.record(samples.summary(runs=[FIRST]), label="abc123"))
    first, *lines = text.splitlines()
    assert first.startswith("### ")
    assert "abc123: PASSED" in first
    assert "| slave-loss | passed | 1 | 1.50 s | 1.50 s |" in lines
    assert "51 sync sends acknowledged; broken promises: none." in text


def test_another_target_than_our_own_cluster_is_named() -> None:
    ours = samples.summary(runs=[FIRST])
    target = TargetFacts(name="rocketmq", version="5.3.3 controller")
    record = samples.record(msgspec.structs.replace(ours, target=target))
    assert record.target == "rocketmq 5.3.3 controller"
    assert "rocketmq 5.3.3 controller, " in markdown_of(record)
    assert samples.record(ours).target == ""
    assert any(each.what == "target" for each in compare(samples.record(ours), record))


def test_what_failed_is_said() -> None:
    text = markdown_of(
        samples.record(
            samples.summary(
                runs=[FIRST],
                expectations=[samples.expectation(held=False)],
                found=samples.audit(sync_lost=2),
            )
        )
    )
    assert "FAILED" in text.splitlines()[0]
    assert "- **slave-loss** expected: every sync send answers" in text
    assert "2 sync&#95;lost" in text


def test_a_drill_without_an_audit_claims_nothing() -> None:
    text = markdown_of(samples.record(samples.summary(audited=False, interrupted=True)))
    assert "The logs were not audited." in text
    assert "acknowledged;" not in text


def test_many_reasons_are_cut() -> None:
    record = samples.record(samples.summary(runs=[FIRST]))
    scenario = msgspec.structs.replace(record.scenarios[0], failed=[f"no {n}" for n in range(30)])
    text = markdown_of(msgspec.structs.replace(record, scenarios=[scenario], why="no"))
    assert text.count("\n- **") == REASONS_MAX
    assert f"{30 - REASONS_MAX} more" in text


@pytest.mark.parametrize(
    "strange",
    ["<script>", "@everyone", "[a](b)", "![x](y)", "a|b", "`c`", "https://x", "\n# x", "\x1b[0m"],
)
def test_foreign_text_is_text(strange: str) -> None:
    record = samples.record(samples.summary(runs=[FIRST]))
    scenario = msgspec.structs.replace(record.scenarios[0], name=strange, failed=[strange])
    plain = markdown_of(record)
    text = markdown_of(
        msgspec.structs.replace(record, scenarios=[scenario], label=strange, why=strange)
    )
    assert strange not in text
    assert text.count("|") <= plain.count("|")


def test_each_group_of_several_has_a_row() -> None:
    text = markdown_of(samples.record(samples.summary(groups=samples.two_groups())))
    assert "| broker-a (hurt) | passed | 110 |  | none |" in text
    assert "| broker-b | failed | 110 | 2.35 s | 1 sync&#95;lost, 2 disturbed |" in text
    assert "| group |" not in markdown_of(samples.record())
