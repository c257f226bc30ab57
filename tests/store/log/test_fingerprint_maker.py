import pytest

from node.simulated.disk import SimulatedDisk
from store import MessageStore
from store.log.fingerprint_maker import FingerprintMaker
from store.log.fingerprints import Fingerprints
from tandem.wire.fingerprint import BLOCK_BYTES, Fingerprint, crcs_of
from tests.store.store_world import a_message, open_store, put

FILE_BYTES = 4 * BLOCK_BYTES + 4096


def _store(disk: SimulatedDisk | None = None, **settings: object) -> MessageStore:
    return open_store(disk or SimulatedDisk(), commit_log_bytes=FILE_BYTES, **settings)  # type: ignore[arg-type]


def _maker(store: MessageStore) -> FingerprintMaker:
    log = store.commit_log
    return FingerprintMaker(log.files, log.damage, Fingerprints(SimulatedDisk(), "/f", era=7))


def _fill(store: MessageStore, files: int, body_bytes: int = 5000) -> None:
    while len(store.commit_log.files.files) <= files:
        put(store, a_message(body_bytes=body_bytes))


def _all_of(maker: FingerprintMaker, step: int = 1 << 20) -> list[Fingerprint]:
    made = []
    while maker.is_behind:
        made.append(maker.step(step))
    return [fingerprint for fingerprint in made if fingerprint is not None]


@pytest.mark.parametrize(
    ("step", "body_bytes"),
    [
        (1, 9000),
        (BLOCK_BYTES, 60_000),
        (BLOCK_BYTES + 1, 33_333),
        (FILE_BYTES, 7001),
        (1 << 22, 20_000),
    ],
)
def test_whatever_the_steps_a_closed_file_has_the_crc_of_each_block(
    step: int, body_bytes: int
) -> None:
    store = _store()
    maker = _maker(store)
    made = []
    while len(store.commit_log.files.files) < 4:
        put(store, a_message(body_bytes=body_bytes))
        made += _all_of(maker, step)

    assert made == [
        Fingerprint(file.file_from_offset, FILE_BYTES, crcs_of(bytes(file.buffer)), 0, 7)
        for file in store.commit_log.files.files[:3]
    ]


def test_a_file_that_is_being_written_has_none_until_it_is_closed() -> None:
    store = _store()
    maker = _maker(store)
    put(store, a_message(body_bytes=3 * BLOCK_BYTES))

    assert _all_of(maker) == []
    _fill(store, 1)

    assert [made.start for made in _all_of(maker)] == [0]


def test_what_was_there_when_the_store_was_opened_is_not_written() -> None:
    disk = SimulatedDisk()
    store = _store(disk)
    end = put(store, a_message(body_bytes=BLOCK_BYTES))
    store.close()
    store = _store(disk)
    maker = _maker(store)
    _fill(store, 2)

    first, second = _all_of(maker)

    assert first.written_from == second.written_from == end
    assert [first.is_written(n * BLOCK_BYTES) for n in range(3)] == [False, False, True]
    assert second.is_written(second.start)


def test_what_is_not_committed_yet_waits() -> None:
    store = _store(transient_store_pool_enable=True)
    maker = _maker(store)
    _fill(store, 1)

    assert _all_of(maker) == []
    store.commit_log.files.commit(0)

    (made,) = _all_of(maker)
    assert made.crcs == crcs_of(bytes(store.commit_log.files.files[0].buffer))


def test_a_file_with_a_bad_range_gets_none() -> None:
    store = _store()
    maker = _maker(store)
    _fill(store, 3)
    store.commit_log.damage.note(FILE_BYTES + 7, FILE_BYTES + 8, "flipped")

    assert [made.start for made in _all_of(maker)] == [0, 2 * FILE_BYTES]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_file_that_is_deleted_meanwhile_is_passed_over(steps: int) -> None:
    store = _store()
    maker = _maker(store)
    _fill(store, 2)
    for _ in range(steps):
        maker.step(BLOCK_BYTES)
    files = store.commit_log.files
    files.delete_expired_file_by_time(
        now_ms=1 << 62, expired_time_ms=0, interval_forcibly_ms=0, delete_file_batch_max=1
    )

    (made,) = _all_of(maker)

    assert (made.start, made.crcs) == (FILE_BYTES, crcs_of(bytes(files.files[0].buffer)))


def test_a_slaves_log_that_begins_late_is_followed_from_there() -> None:
    master, slave = _store(), _store(is_slave=True)
    maker = _maker(slave)
    _fill(master, 3)
    slave.append_data(FILE_BYTES, bytes(master.commit_log.files.files[1].buffer))

    assert [made.start for made in _all_of(maker)] == [FILE_BYTES]
