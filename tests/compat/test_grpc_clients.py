"""RocketMQ's gRPC clients, in five languages, at nodes of a fenced group (long).

The same scenarios as in the table of `docs/compatibility.md`; there RocketMQ's proxy has them, too.
"""

from pathlib import Path

import pytest

from tests.compat.agents import LACKS, LANGUAGES, Language
from tests.compat.grpc_kills import KILLS
from tests.compat.grpc_results import Result, load, section
from tests.compat.grpc_table import PARTS, Runner
from tests.compat.programs import NotToBeHadError


def results(*, ok: bool = True, client: Language = "python", place: str = "fenced") -> Result:
    reason = "" if ok else "nothing | comes"
    return Result("tag filter", client, place, ok, reason)  # type: ignore[arg-type]


def test_the_table_has_a_row_a_scenario_and_says_what_is_not_yes_and_why() -> None:
    page = section([results(), results(place="real", ok=False), results(client="go", ok=False)])
    assert "| tag filter | no | yes | - | - | - | - | - | no | - | - |" in page
    assert "| rocketmq-python-client 5.1.2 | 0 of 1 | 1 of 1 |" in page
    assert "| tag filter | go, here | nothing \\| comes |" in page


def test_what_a_library_has_nothing_for_is_no_failure_and_is_not_counted() -> None:
    lacks = Result("push", "rust", "fenced", ok=False, lacks="push consumers")
    page = section([results(), results(client="rust"), lacks])
    assert "| push | - | - | - | - | - | - | - | - | - | cannot |" in page
    assert "| crate rocketmq 5.0.0 | 0 of 0 | 1 of 1 |" in page
    assert 'Nothing is "no".' in page


def test_what_is_recorded_names_the_scenarios_that_there_are() -> None:
    recorded = load()
    assert {each.client for each in recorded} == set(LANGUAGES)
    assert {each.scenario for each in recorded} >= set(KILLS)
    assert all(each.ok or each.reason or each.lacks for each in recorded)
    for each in recorded:
        assert not each.lacks or each.lacks in LACKS[each.client].values()


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.xdist_group("rocketmq")
@pytest.mark.parametrize("part", PARTS)
def test_clients_of_five_languages_at_our_nodes(tmp_path: Path, part: str) -> None:
    try:
        done = Runner("fenced", LANGUAGES, tmp_path).run(part)
    except NotToBeHadError as error:
        pytest.skip(f"RocketMQ's clients cannot be fetched: {error}")
    known = {each.key for each in load() if each.has_failed}
    failed = {each.key: each.reason for each in done if each.has_failed and each.key not in known}
    assert failed == {}
