import struct

from tandem.wire.checkpoint_copy import COPY_AT, OWN_AT, copy_of, pieces_of, settled

NUMBERS = (1_795_219_475_114, 1_795_219_475_100, 0, 0, 81_920, 77_000)
FORM = struct.Struct(">6q")


def written(numbers: tuple[int, ...] = NUMBERS) -> bytearray:
    data = bytearray(4096)
    FORM.pack_into(data, 0, *numbers)
    copy = copy_of(numbers)
    data[COPY_AT : COPY_AT + len(copy)] = copy
    return data


def test_what_was_written_is_read() -> None:
    assert settled(bytes(written()), 6) == (NUMBERS, "", True)


def test_a_file_without_a_copy_is_taken_as_it_is() -> None:
    assert settled(bytes(4096), 6) == ((0,) * 6, "", False)
    data = FORM.pack(*NUMBERS).ljust(4096, b"\0")
    assert settled(data, 6) == (NUMBERS, "", False)


def test_no_flipped_bit_changes_a_number() -> None:
    whole = written()
    for position in (*range(64), *range(COPY_AT - 8, COPY_AT + 72)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[position] ^= 1 << bit
            numbers, trouble, _ = settled(bytes(changed), 6)
            assert numbers == NUMBERS
            used = position < FORM.size or COPY_AT <= position < COPY_AT + 8 + FORM.size
            assert bool(trouble) is used


def test_a_lost_sector_changes_no_number() -> None:
    for start in range(0, 4096, 512):
        changed = written()
        changed[start : start + 512] = bytes(512)
        assert settled(bytes(changed), 6)[0] == NUMBERS


def test_what_another_program_wrote_vouches_for_no_more_than_both() -> None:
    data = written()
    FORM.pack_into(data, 0, NUMBERS[0] + 500, NUMBERS[1] + 490, 0, 0, 79_000, 77_000)
    numbers, trouble, _ = settled(bytes(data), 6)
    assert numbers == (*NUMBERS[:4], 79_000, 77_000)
    assert "the lower one is taken" in trouble


def with_own() -> bytearray:
    data = bytearray(4096)
    for at, piece in pieces_of(NUMBERS, 1):
        data[at : at + len(piece)] = piece
    return data


def test_numbers_of_ours_are_not_where_rocketmq_has_its_next_ones() -> None:
    data = with_own()
    assert FORM.unpack_from(data) == (*NUMBERS[:5], 0)
    assert struct.unpack_from(">q", data, OWN_AT) == NUMBERS[5:]
    assert settled(bytes(data), 6, 1) == (NUMBERS, "", True)
    struct.pack_into(">q", data, 40, 81_000)
    assert settled(bytes(data), 6, 1) == (NUMBERS, "", False)


def test_no_flipped_bit_changes_a_number_of_ours() -> None:
    whole = with_own()
    for position in (*range(40), *range(OWN_AT, OWN_AT + 8), *range(COPY_AT, COPY_AT + 56)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[position] ^= 1 << bit
            numbers, trouble, _ = settled(bytes(changed), 6, 1)
            assert numbers == NUMBERS
            assert trouble


def test_a_lost_sector_changes_no_number_of_ours() -> None:
    for start in range(0, 4096, 512):
        changed = with_own()
        changed[start : start + 512] = bytes(512)
        assert settled(bytes(changed), 6, 1)[0] == NUMBERS


def test_a_file_of_an_earlier_version_has_the_number_behind_rocketmqs() -> None:
    assert settled(bytes(written()), 6, 1) == (NUMBERS, "", False)


def test_a_number_behind_rocketmqs_that_is_not_ours_says_nothing() -> None:
    """RocketMQ 5.5 has one of its queues there."""
    data = FORM.pack(*NUMBERS).ljust(4096, b"\0")
    assert settled(data, 6, 1) == ((*NUMBERS[:5], 0), "", False)
