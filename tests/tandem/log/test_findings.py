from tandem.log.findings import FINDINGS_KEPT_MAX, KINDS, Finding, FindingList


def test_every_kind_says_what_it_means_and_what_to_do() -> None:
    for kind in KINDS.values():
        assert kind.severity in ("damage", "warning", "note")
        assert kind.meaning
        assert kind.remedy


def test_a_finding_knows_its_kind() -> None:
    finding = Finding("record-crc", "file", 5, "what")
    assert finding.severity == "damage"
    assert finding.meaning == KINDS["record-crc"].meaning
    assert finding.remedy == KINDS["record-crc"].remedy


def test_findings_beyond_the_first_ones_are_counted_by_kind_and_file() -> None:
    found = FindingList()
    for number in range(FINDINGS_KEPT_MAX + 30):
        found.add("unit-wrong", "a", number, "what")
    found.add("unit-wrong", "b", 0, "what")
    found.add_count("unit-wrong", "a", 100)
    assert found.is_full("unit-wrong", "a")
    assert not found.is_full("unit-wrong", "b")
    every = found.all()
    assert len(every) == FINDINGS_KEPT_MAX + 1
    assert sum(f.count for f in every if f.file == "a") == FINDINGS_KEPT_MAX + 130


def test_counts_survive_being_put_together() -> None:
    parts = []
    for _ in range(3):
        part = FindingList()
        part.add("unit-wrong", "a", 0, "what")
        part.add_count("unit-wrong", "a", 9)
        parts += part.all()
    whole = FindingList()
    whole.extend(parts)
    assert sum(finding.count for finding in whole.all()) == 30
