"""What it proves that nothing was found."""

import pytest

from tandem.life.absence import look_words
from tandem.life.evidence import Gap, Look, NodeLog
from tandem.life.made_id import made_key_of
from tandem.life.result import Finding, Kind
from tandem.wire.message import offset_msg_id
from tests.tandem.life.samples import KEY, MASTER, NOW_MS, copy, fenced, log, stored, the, why

OFFSET_ID = offset_msg_id(MASTER, 5_000)
LOOK = Look(where="topic T", how="by key", found=0, covers="all")
HERE = "10.0.0.1:10911, FENCED_STATUS"
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def absent(message: str, **facts: object) -> list[Finding]:
    found = why(message=message, **facts)
    assert not found.is_found
    return found.absence


def kinds(findings: list[Finding]) -> set[Kind]:
    return {each.kind for each in findings}


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (log(source=HERE, start=5_001), Kind.EXPIRED),
        (log(source=HERE, start=5_000, end=5_001), Kind.NO_RECORD),
        (log(source=HERE, end=5_000), Kind.PAST_END),
    ],
)
def test_an_offset_is_compared_with_where_the_log_begins_and_ends(
    node: NodeLog, kind: Kind
) -> None:
    found = absent(OFFSET_ID, nodes=[node])
    assert kinds(found) == {kind}
    assert the(found, kind).physical_offset == 5_000


def test_an_address_that_is_nobodys_is_said_to_be_one() -> None:
    assert Kind.OTHER_BROKER in kinds(absent(OFFSET_ID, nodes=[log()]))
    assert Kind.OTHER_BROKER not in kinds(absent(OFFSET_ID, nodes=[log(source=HERE)]))
    assert Kind.OTHER_BROKER not in kinds(absent(OFFSET_ID, nodes=[log()], is_cluster=False))


def test_another_message_in_its_place_shows_that_it_was_cut_off() -> None:
    there = copy(stored(place=5_000, properties={"UNIQ_KEY": "other"}))
    moved = OFFSET_ID.replace("0A000001", "0A000002")
    found = absent(moved, nodes=[log(source=HERE)], others=[there])
    assert "cut off" in the(found, Kind.REPLACED).text
    assert Kind.NO_RECORD not in kinds(found)


def test_only_the_group_of_the_address_in_the_id_is_compared() -> None:
    there = copy(stored(place=5_000, properties={"UNIQ_KEY": "other"}), "n9", broker="c")
    nodes = [log(source=HERE, end=5_000), log("n9", broker="c")]
    assert kinds(absent(OFFSET_ID, nodes=nodes, others=[there])) == {Kind.PAST_END}


def test_an_address_that_only_ends_alike_is_another() -> None:
    assert Kind.OTHER_BROKER in kinds(absent(OFFSET_ID, nodes=[log(source=f"1{HERE}")]))


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "kind"),
    [
        (NOW_MS - DAY_MS, 0, Kind.NOT_STORED),
        (NOW_MS + 30 * DAY_MS, 0, Kind.EXPIRED),
        (NOW_MS - 90 * DAY_MS, NOW_MS - 80 * DAY_MS, Kind.TOO_NEW),
    ],
)
def test_the_time_in_a_unique_key_is_compared_with_the_times_of_the_logs(
    first_ms: int, last_ms: int, kind: Kind
) -> None:
    node = log(first_store_ms=first_ms, last_store_ms=last_ms)
    assert kind in kinds(absent(KEY, nodes=[node]))


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "kind"),
    [
        (14 * HOUR_MS, 0, Kind.NOT_STORED),
        (14 * HOUR_MS + 1, 0, Kind.EXPIRED),
        (-90 * DAY_MS, -14 * HOUR_MS, Kind.NOT_STORED),
        (-90 * DAY_MS, -14 * HOUR_MS - 1, Kind.TOO_NEW),
    ],
)
def test_the_month_of_a_key_begins_in_the_zone_of_its_maker(
    first_ms: int, last_ms: int, kind: Kind
) -> None:
    """14 hours: the farthest that a zone is from UTC. Times are counted from that in the key."""
    made = made_key_of(KEY, NOW_MS)
    assert made is not None
    last = made.made_ms + last_ms if last_ms else 0
    node = log(first_store_ms=made.made_ms + first_ms, last_store_ms=last)
    found = kinds(absent(KEY, nodes=[node]))
    assert found & {Kind.NOT_STORED, Kind.EXPIRED, Kind.TOO_NEW} == {kind}


def test_a_key_that_is_no_id_has_no_time() -> None:
    found = absent("order 17", nodes=[log(first_store_ms=1)], looks=[LOOK])
    assert kinds(found) == {Kind.NO_RECORD}


def test_nothing_is_said_to_be_nowhere_if_a_place_was_not_looked_at() -> None:
    gap = Gap(what="node n2", why="it is away")
    assert absent("k", nodes=[log()], looks=[LOOK], gaps=[gap]) == []
    blind = Look(where="topic T", how="by key", found=0, covers="all", is_complete=False)
    assert absent("k", nodes=[log()], looks=[blind]) == []


def test_a_node_without_an_index_cannot_look_up_keys() -> None:
    found = absent("k", nodes=[log(is_indexed=False)], looks=[LOOK])
    assert kinds(found) == {Kind.NOT_INDEXED}


def test_what_is_not_confirmed_may_have_it() -> None:
    assert Kind.NOT_SHOWN in kinds(absent("k", nodes=[fenced(confirm=9_999)]))
    assert Kind.NOT_SHOWN not in kinds(absent("k", nodes=[fenced()]))


@pytest.mark.parametrize(
    ("switched_ms", "expected"), [(NOW_MS, {Kind.SWITCHED}), (1, set()), (0, set())]
)
def test_a_change_of_master_after_it_was_made_may_have_cut_it_off(
    switched_ms: int, expected: set[Kind]
) -> None:
    node = fenced(switched_ms=switched_ms, switch_reason="the lease ended")
    assert kinds(absent(KEY, nodes=[node])) & {Kind.SWITCHED} == expected


def test_places_that_were_looked_at_in_one_way_are_one_line() -> None:
    other = Look(where="topic U", how="by key", found=0, covers="all")
    blind = Look(where="topic V", how="by key", found=0, is_complete=False)
    assert look_words([LOOK, other, blind]) == [
        "topic T, topic U: by key, all",
        "topic V: by key; what is there may be missed",
    ]
