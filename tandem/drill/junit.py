"""A drill as JUnit's XML, which CI systems show by test.

Each scenario is one, each group where there are several, and so is the audit.

What failed is a failure. What was not possible here and what a slow machine kept from being shown
is skipped, with the reason: neither passed nor failed. What was interrupted is an error. Pure.
"""

import re
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree as ET

from tandem.drill.run_record import (
    BROKEN,
    HELD,
    NOT_ENDED,
    NOT_POSSIBLE,
    NOT_SHOWN,
    RunRecord,
    ScenarioRecord,
)

AUDIT: Final = "what is on the disks"

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot say, not even escaped."""

_ELEMENTS: Final = {
    BROKEN: "failure",
    NOT_SHOWN: "skipped",
    NOT_POSSIBLE: "skipped",
    NOT_ENDED: "error",
}


def junit_of(record: RunRecord) -> bytes:
    """Return the file for a drill."""
    suite = ET.Element("testsuite")
    for case in _cases(record):
        suite.append(case)
    suite.attrib.update(
        name="tandem drill",
        timestamp=_clean(record.started_at),
        time=f"{record.seconds:.3f}",
        tests=str(len(suite)),
        failures=str(len(suite.findall("testcase/failure"))),
        errors=str(len(suite.findall("testcase/error"))),
        skipped=str(len(suite.findall("testcase/skipped"))),
    )
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    encoded: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded + b"\n"


def _cases(record: RunRecord) -> Iterator[ET.Element]:
    for scenario in record.scenarios:
        yield _case(
            record,
            scenario.name,
            scenario.outcome,
            scenario.failed or _reasons(record, scenario),
            scenario.seconds,
        )
    for group in record.groups:
        counts = [f"{count:,} {name}" for name, count in group.broken.items()]
        reasons = [*counts, *group.said] or [record.why or group.outcome]
        yield _case(record, f"group {group.name}", group.outcome, reasons, 0.0)
    broken = [f"{count:,} {name}" for name, count in _on_disks(record).items()]
    yield _case(record, AUDIT, _of_audit(record), broken or [record.why], 0.0)


def _reasons(record: RunRecord, scenario: ScenarioRecord) -> list[str]:
    """Return why a scenario was not played to its end: it is said of the drill."""
    return [record.why or scenario.outcome]


def _on_disks(record: RunRecord) -> dict[str, int]:
    """Return what is broken, without what groups have a test of their own for."""
    of_groups = {f"{group.name}: {name}" for group in record.groups for name in group.broken}
    return {name: count for name, count in record.broken.items() if name not in of_groups}


def _outcomes(record: RunRecord) -> list[str]:
    return [each.outcome for each in record.scenarios] + [each.outcome for each in record.groups]


def _of_audit(record: RunRecord) -> str:
    if _on_disks(record):
        return BROKEN
    match record.verdict:
        case "INTERRUPTED":
            return NOT_ENDED
        case "NOT POSSIBLE":
            return NOT_POSSIBLE
        case "FAILED" if record.sync_acknowledged is None:
            return BROKEN  # there was no audit, and nothing excuses that
        case "FAILED" if BROKEN not in _outcomes(record):
            return BROKEN
        case _:
            return HELD


def _case(
    record: RunRecord, name: str, outcome: str, reasons: list[str], seconds: float
) -> ET.Element:
    case = ET.Element(
        "testcase",
        name=_clean(name),
        classname=f"drill.{_clean(record.group_kind)}",
        time=f"{seconds:.3f}",
    )
    if outcome != HELD:
        words = [_clean(reason) for reason in reasons]
        found = ET.SubElement(case, _ELEMENTS[outcome], message=f"{outcome}: {words[0]}")
        found.text = "\n".join(words)
    return case


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
