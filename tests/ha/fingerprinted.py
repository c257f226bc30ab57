"""Fingerprints at once, where a test does not wait until they are taken; and bits that flip."""

from store import MessageStore
from tandem.wire.fingerprint import Fingerprint, crcs_of


async def take_fingerprints(store: MessageStore, *, is_written: bool = True) -> None:
    """Take those of all closed files, of the bytes as they are."""
    for file in store.commit_log.files.files:
        if file.is_full:
            start, size = file.file_from_offset, file.size
            crcs = crcs_of(bytes(file.buffer))
            written_from = start if is_written else start + size
            made = Fingerprint(start, size, crcs, written_from, store.fingerprints.era)
            assert await store.fingerprints.save(made)


def flip(store: MessageStore, offset: int, bits: int = 1) -> None:
    """Change a byte of the log that is at rest."""
    file = store.commit_log.files.find_by_offset(offset)
    assert file is not None
    file.buffer[offset - file.file_from_offset] ^= bits
