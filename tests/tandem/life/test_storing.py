"""Where a message is, who has it, and under which contract."""

import pytest

from tandem.life.evidence import Epoch, Held, NodeLog, Replica
from tandem.life.result import Kind
from tests.tandem.life.samples import (
    STORED_MS,
    copy,
    cut,
    fenced,
    kinds,
    life,
    log,
    stored,
    the,
    why,
)

MESSAGE = stored(offset=5)


def test_a_message_was_made_and_stored() -> None:
    found = life(MESSAGE, nodes=[log()])
    born, stored_at = the(found, Kind.BORN), the(found, Kind.STORED)
    assert born.at_ms == STORED_MS - 2
    assert "process 20048 at 127.0.0.1" in born.text
    place = (stored_at.at_ms, stored_at.topic, stored_at.queue_id, stored_at.queue_offset)
    assert place == (STORED_MS, "T", 0, 5)
    assert (stored_at.broker, stored_at.physical_offset) == ("b", 1_000)


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        ((Epoch(1, 0), Epoch(2, 900), Epoch(3, 1_001)), "epoch 2 (from 900 on)"),
        ((Epoch(1, 0), Epoch(2, 1_000)), "epoch 2 (from 1000 on)"),
        ((Epoch(4, 1_001),), "The master then was at"),
        ((), "The master then was at"),
    ],
)
def test_the_epoch_is_that_under_which_its_bytes_were_written(
    epochs: tuple[Epoch, ...], words: str
) -> None:
    found = life(MESSAGE, nodes=[fenced(epochs=epochs)])
    assert words in the(found, Kind.STORED).text


@pytest.mark.parametrize(
    ("properties", "node", "words"),
    [
        ({"WAIT": "false"}, fenced(), "its master has it, and nobody else"),
        ({"WAIT": "true"}, fenced(), "every in-sync replica, at least 2, has it written"),
        ({}, fenced(ack_level="flushed"), "at least 2, has it flushed"),
        ({"TANDEM_ACK": "flushed"}, fenced(), "has synced it"),
        ({}, log(contract="brokerRole SYNC_MASTER"), "brokerRole SYNC_MASTER"),
        ({}, log(epochs=(Epoch(1, 0),)), "every in-sync replica has it"),
    ],
)
def test_the_contract_is_that_of_its_properties(
    properties: dict[str, str], node: NodeLog, words: str
) -> None:
    message = stored(offset=5, properties=properties)
    assert words in the(life(message, nodes=[node]), Kind.CONTRACT).text


def test_what_a_broker_delivered_has_the_contract_of_what_was_sent() -> None:
    sent = stored("SCHEDULE_TOPIC_XXXX", properties={"REAL_TOPIC": "T", "DELAY": "1"})
    delivered = stored(at_ms=1_000, properties={"WAIT": "false"})
    found = life(sent, delivered, nodes=[fenced()])
    assert "every in-sync replica" in the(found, Kind.CONTRACT).text


def test_a_retry_alone_does_not_say_how_the_message_was_sent() -> None:
    retry = stored("%RETRY%g", properties={"WAIT": "false", "RETRY_TOPIC": "T"})
    assert Kind.CONTRACT not in kinds(life(retry, nodes=[fenced()]))


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (fenced("n2", flushed=1_099), "not yet synced to the disk (synced up to 1099)"),
        (fenced("n3", trouble="no route to host"), "not be asked: no route to host"),
        (fenced("n3", start=2_000), "deleted it: the log begins at 2000"),
        (fenced("n3", end=1_000), "without it: the log ends at 1000"),
        (fenced("n3"), "not shown it"),
    ],
)
def test_who_has_a_message_is_said_of_each_node(node: NodeLog, words: str) -> None:
    found = life(copy(MESSAGE, "n1"), copy(MESSAGE, "n2"), nodes=[fenced(), node])
    text = the(found, Kind.REPLICATED).text
    assert "n1 (follower)" in text
    assert words in text


def test_a_node_that_was_not_asked_is_told_of_by_its_master() -> None:
    away = Replica(name="n3", written=900, flushed=800)
    found = life(MESSAGE, nodes=[fenced(replicas=(away, Replica(name="n1", written=10_000)))])
    text = the(found, Kind.REPLICATED).text
    assert "n3 was not asked; its master knows that it had the log up to 900" in text


@pytest.mark.parametrize(
    ("confirm", "kind"), [(1_100, Kind.CONFIRMED), (1_099, Kind.NOT_CONFIRMED)]
)
def test_a_message_is_confirmed_when_all_of_it_is(confirm: int, kind: Kind) -> None:
    found = life(MESSAGE, nodes=[fenced(confirm=confirm)])
    assert kinds(found) & {Kind.CONFIRMED, Kind.NOT_CONFIRMED} == {kind}


def test_the_same_key_in_two_records_is_a_duplicate() -> None:
    found = life(MESSAGE, stored(offset=6, at_ms=300), nodes=[log()])
    assert the(found, Kind.DUPLICATED).queue_offset == 6
    assert len(the(found, Kind.DUPLICATED).evidence) == 2
    assert Kind.DUPLICATED not in kinds(life(copy(MESSAGE, "n1"), copy(MESSAGE, "n2")))


def test_a_damaged_copy_is_named() -> None:
    found = life(copy(MESSAGE, "n1"), copy(MESSAGE, "n2", is_sound=False))
    assert "n2" in the(found, Kind.DAMAGED).text


def test_a_message_that_was_cut_off_is_lost_unless_it_was_stored_again() -> None:
    (lost,) = why(cut(MESSAGE), nodes=[fenced("n2")]).lives
    assert the(lost, Kind.CUT).node == "n1"
    assert "n2 became master of epoch 2" in the(lost, Kind.CUT).text
    assert lost.summary == [the(lost, Kind.CUT).text]
    again = life(cut(MESSAGE), copy(stored(offset=9, at_ms=500), "n2"), nodes=[fenced("n2")])
    assert Kind.CUT in kinds(again)
    assert "It is stored in topic T" in again.summary[0]


def test_a_store_that_was_set_aside_with_its_copy_is_named() -> None:
    found = life(cut(MESSAGE, held=Held.SET_ASIDE), copy(MESSAGE, "n2"))
    assert "n2 still has" in the(found, Kind.SET_ASIDE).text


def test_a_long_way_from_producer_to_broker_is_worth_a_word() -> None:
    late = stored(offset=5, at_ms=3_600_000)
    assert "1 h later" in the(life(late), Kind.BORN).text
    assert "later" not in the(life(MESSAGE), Kind.BORN).text
