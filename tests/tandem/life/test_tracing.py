from tandem.life.evidence import TraceMark
from tandem.life.result import Kind
from tests.tandem.life.samples import KEY, STORED_MS, copy, kinds, life, stored, the


def test_a_dead_letter_that_was_sent_again_is_followed_both_ways() -> None:
    message = stored()
    again = stored(
        at_ms=900, offset=8, properties={"UNIQ_KEY": "NEW", "DLQ_ORIGIN_MESSAGE_ID": KEY}
    )
    old = life(copy(message), copy(again))
    assert "NEW" in the(old, Kind.RESENT).text
    assert the(old, Kind.RESENT).at_ms == STORED_MS + 900
    new = life(copy(message), copy(again), message="NEW")
    assert KEY in the(new, Kind.RESENT).text
    assert Kind.RESENT not in kinds(life(message))


def test_what_clients_wrote_is_told_of_with_its_time() -> None:
    marks = [
        TraceMark(what="sent", at_ms=STORED_MS, group="pg", source="s", success=True, cost_ms=7),
        TraceMark(what="received", at_ms=STORED_MS + 5, group="g", source="s"),
        TraceMark(what="handled", at_ms=STORED_MS + 9, group="g", source="s", success=False),
    ]
    found = life(stored(), traces=marks)
    traced = [each for each in found.findings if each.kind is Kind.TRACED]
    assert [(each.at_ms - STORED_MS, each.group) for each in traced] == [
        (0, ""),
        (5, "g"),
        (9, "g"),
    ]
    assert "in 7 ms" in traced[0].text
    assert "failed" in traced[2].text
    assert not any("answered" in gap.what for gap in found.unknown)
