"""What stands behind each kind of planted fault: rule, ledger and the disks of all nodes."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tandem.drill.evidence import EXAMPLES_MAX, Evidence, collect
from tandem.drill.quick_audit import run_quick_audit
from tandem.drill.targets.rocketmq_contract import contract_of
from tandem.drill.targets.rocketmq_layout import Mode
from tests.support import planted_drill as planted
from tests.support.planted_drill import MASTER, SLAVES, TOPIC, PlantedDrill

RULES = {"sync_lost": "a rule", "duplicated": "another rule"}


def evidence(
    folder: Path,
    *plants: Callable[[PlantedDrill], dict[str, int]],
    not_promised: Mapping[str, str] | None = None,
) -> list[Evidence]:
    drill = PlantedDrill()
    for plant in plants:
        plant(drill)
    ledger, stores = drill.write(folder)
    run_quick_audit(ledger, stores, master=MASTER, topic=TOPIC, out_dir=folder)
    return collect(folder, stores, TOPIC, promised=RULES, not_promised=not_promised or {})


def test_a_clean_drill_has_none(tmp_path: Path) -> None:
    assert evidence(tmp_path) == []


def test_a_lost_message_has_its_line_of_the_ledger_and_its_absence_on_each_disk(
    tmp_path: Path,
) -> None:
    (found,) = evidence(tmp_path, planted.a_lost_sync_send)

    assert (found.finding, found.is_broken, found.rule) == ("sync_lost", True, "a rule")
    assert "SEND_OK" in found.ledger
    assert set(found.disks) == {MASTER, *SLAVES}
    assert all(words.startswith("lacks it") for words in found.disks.values())
    assert found.in_words()[0] == f"sync_lost (broken): {found.send_id}"


def test_a_doubled_message_has_both_places(tmp_path: Path) -> None:
    (found,) = evidence(tmp_path, planted.a_duplicated_send)

    assert (found.finding, found.is_broken, found.rule) == ("duplicated", True, "another rule")
    assert all(", " in words for words in found.disks.values())


def test_a_loss_that_nobody_promised_is_not_broken_and_says_why(tmp_path: Path) -> None:
    contract = contract_of(Mode.CONTROLLER, {}, is_4=False)

    (found,) = evidence(tmp_path, planted.a_lost_sync_send, not_promised=contract.not_promised)

    assert not found.is_broken
    assert found.rule == contract.not_promised["sync_lost"]


def test_a_lost_async_send_is_shown_as_allowed(tmp_path: Path) -> None:
    (found,) = evidence(tmp_path, planted.a_lost_async_send)

    assert (found.finding, found.is_broken) == ("async_lost", False)


@pytest.mark.slow
@pytest.mark.parametrize("plant", planted.PLANTS, ids=lambda plant: plant.__name__)
def test_every_planted_fault_that_is_a_broken_promise_has_evidence(
    plant: Callable[[PlantedDrill], dict[str, int]], tmp_path: Path
) -> None:
    found = evidence(tmp_path, plant)
    expected = plant(PlantedDrill())
    broken = {"sync_lost", "stored_but_missing", "duplicated", "phantom", "misplaced"}
    broken |= {"out_of_order", "corrupt", "slaves_not_identical", "acknowledged_cut"}
    names = {"slaves_not_identical" if e.finding == "slave_differs" else e.finding for e in found}

    assert {name for name, count in expected.items() if name in broken and count > 0} <= names


def test_of_many_the_first_are_shown(tmp_path: Path) -> None:
    def many(drill: PlantedDrill) -> dict[str, int]:
        for number in range(0, 4 * EXAMPLES_MAX, 2):
            drill.send(number).copies = 0
        return {}

    assert len(evidence(tmp_path, many)) == EXAMPLES_MAX
