"""replica.json: what a replica must remember about itself across restarts.

- `promised`: no byte is appended and none acknowledged under a lower epoch;
- `incarnation`: the name under which its acknowledgements count. It is drawn anew whenever the
  replica cannot show that it still has everything it acknowledged under the old one;
- `acked`: how far its log reached when that was last noted here. It may be less than the truth,
  never more;
- `seen_epoch`, `seen_version`: the newest record of the group that it has ever read; an older one
  comes from a backup;
- `boot_id`, `is_clean`, `has_failed`, `ack_level`: how the last run ended, and what its
  acknowledgements meant;
- `stands_back_until`: it has resigned and leaves elections to others for a while;
- `life`, `tokens`: which of its registrations the coordinator has to know (see `lives`);
- `level`: the highest feature level at which it has seen its group. Versions that do not know it
  have to leave the directory alone.

A new incarnation is drawn when

    there is no file, or it is damaged          nothing can be shown
    the log ends below `acked`                  the disk has lost what was acknowledged
    a record at its end does not fit its        the same, perhaps: `acked` may be too low
    checksum, and power was not lost
    the machine was started anew after an       what was acknowledged as written was in its page
    unclean stop at the level "written"         cache only
    a sync failed at the level "written"        the kernel may have dropped it from there
    the coordinator knows of a later life       the directory is an older copy of another one

The file has its checksum in its last line: one of which a byte has changed is a damaged one, and
nothing of it is believed. A number that came from a flipped bit would be: an epoch that was never
seen has its node blame the coordinator, and one that was never promised keeps it out of the group.

A replica that has lost its file has lost its promise, too. That is harmless: what it acknowledges
under its new name counts only for nodes that know that name, and it is known only once
the master of that moment has added it to the in-sync set. What it has seen of the group it reads
again, and its lives as well: a directory without a life never finds that the coordinator is the
older one, it is taken for an older directory itself (see `lives`).
"""

from __future__ import annotations

from random import Random

import msgspec

from ha.errors import LocalHAError
from ha.fenced.lives import TOKENS_MAX
from store.machine.checked_file import read_checked_json, replace_with_checked_json
from store.machine.disk import Disk
from tandem.cluster_file.choices import AckLevel
from tandem.wire.checksum_line import encode_checked_json
from tandem.wire.feature_level import LEVEL_MIN
from tandem.wire.group_state import Count, Epoch, Level
from tandem.wire.store_layout import REPLICA_FILE
from tandem.wire.untrusted import UnreadableError


class ReplicaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file. Offsets in bytes."""

    incarnation: str
    promised: Epoch = 0
    acked: Count = 0
    seen_epoch: Epoch = 0
    seen_version: Count = 0
    boot_id: str = ""
    is_clean: bool = False
    """The last run closed its store in order."""
    has_failed: bool = False
    """A sync of the store failed in the last run."""
    ack_level: AckLevel = AckLevel.WRITTEN
    stands_back_until: float = 0.0
    """CLOCK_BOOTTIME of the boot `boot_id`, in seconds; 0 if it does not stand back."""
    life: int = 0
    tokens: tuple[str, ...] = ()
    level: Level = LEVEL_MIN


class ReplicaFile:
    """The file of one store. Every change is on disk when its method returns.

    Each method may raise `StoreFullError` or `DiskFailedError`; then nothing has changed.
    """

    def __init__(self, disk: Disk, directory: str, random: Random) -> None:
        self._disk = disk
        self._random = random
        self.path = f"{directory}/{REPLICA_FILE}"
        self._record: ReplicaRecord | None = None
        self.trouble = ""
        """Why the file could not be read, in words."""
        self._read()

    @property
    def incarnation(self) -> str:
        """The name under which acknowledgements count; empty before `started`."""
        return self._record.incarnation if self._record else ""

    @property
    def promised(self) -> int:
        """No byte is appended under a lower epoch."""
        return self._record.promised if self._record else 0

    @property
    def acked(self) -> int:
        """The log reached at least so far, once."""
        return self._record.acked if self._record else 0

    @property
    def seen(self) -> tuple[int, int]:
        """Epoch and version of the newest record of the group that was read."""
        return (self._record.seen_epoch, self._record.seen_version) if self._record else (0, 0)

    @property
    def level(self) -> int:
        """The highest feature level at which it has seen its group."""
        return self._record.level if self._record else LEVEL_MIN

    @property
    def stands_back_until(self) -> float:
        """Until when it leaves elections to others, on CLOCK_BOOTTIME in seconds."""
        return self._record.stands_back_until if self._record else 0.0

    @property
    def life(self) -> int:
        """Number of the last life that is known to be registered; 0 for none."""
        return self._record.life if self._record else 0

    @property
    def tokens(self) -> tuple[str, ...]:
        """Of that life, and of all that may have been registered since."""
        return self._record.tokens if self._record else ()

    def started(
        self, boot_id: str, level: AckLevel, log_end: int, damaged_end: str | None = None
    ) -> str | None:
        """Begin a run on a recovered log; `damaged_end` says that a record at its end was lost.

        Returns:
            Why a new incarnation was drawn, in words; None if the old one is kept.
        """
        before = self._record
        reason = self._why_renew(boot_id, log_end, damaged_end)
        incarnation = self._draw() if before is None or reason is not None else before.incarnation
        self._write(
            ReplicaRecord(
                incarnation=incarnation,
                promised=self.promised,
                acked=self.acked if reason is None else log_end,
                seen_epoch=self.seen[0],
                seen_version=self.seen[1],
                boot_id=boot_id,
                is_clean=False,
                ack_level=level,
                stands_back_until=self._stands_back_until(boot_id),
                life=self.life,
                tokens=self.tokens,
                level=self.level,
            )
        )
        return reason

    def promise(self, epoch: int) -> None:
        """Never again append or acknowledge under an epoch below `epoch`.

        Raises:
            LocalHAError: a higher one was promised before.
        """
        if epoch < self.promised:
            raise LocalHAError(f"epoch {epoch} is below epoch {self.promised}, promised before")
        if epoch > self.promised:
            self._write(msgspec.structs.replace(self._started(), promised=epoch))

    def note_acked(self, log_end: int) -> None:
        """Remember that the log reaches `log_end`. Never lowers what was noted."""
        if log_end > self.acked:
            self._write(msgspec.structs.replace(self._started(), acked=log_end))

    def note_seen(self, epoch: int, version: int) -> None:
        """Believe no older record of the group any more."""
        if (epoch, version) > self.seen:
            record = msgspec.structs.replace(self._started(), seen_epoch=epoch)
            self._write(msgspec.structs.replace(record, seen_version=version))

    def note_level(self, level: int) -> None:
        """Leave the directory to versions that know this feature level."""
        if level > self.level:
            self._write(msgspec.structs.replace(self._started(), level=level))

    def stand_back(self, until: float) -> None:
        """Leave elections to others until then, also after a restart of the process."""
        self._write(msgspec.structs.replace(self._started(), stands_back_until=until))

    def sync_failed(self) -> None:
        """What was only written may be lost, whatever the page cache still shows."""
        self._write(msgspec.structs.replace(self._started(), has_failed=True))

    def stopped_clean(self) -> None:
        """The store is closed and all of it is on disk."""
        self._write(msgspec.structs.replace(self._started(), is_clean=True))

    def renew(self) -> None:
        """Draw a new incarnation: what the log holds is about to be given up."""
        self._write(msgspec.structs.replace(self._started(), incarnation=self._draw(), acked=0))

    def renew_keeping_log(self, log_end: int) -> None:
        """Draw a new incarnation for a log that may lack what was acknowledged under the old."""
        record = self._started()
        self._write(msgspec.structs.replace(record, incarnation=self._draw(), acked=log_end))

    def may_register(self, token: str) -> None:
        """From now on the coordinator may know a life of this directory by `token`."""
        if token not in self.tokens:
            tokens = (*self.tokens, token)[-TOKENS_MAX:]
            self._write(msgspec.structs.replace(self._started(), tokens=tokens))

    def registered(self, life: int, token: str) -> None:
        """The coordinator knows this life, and no older one any more."""
        if (self.life, self.tokens) != (life, (token,)):
            self._write(msgspec.structs.replace(self._started(), life=life, tokens=(token,)))

    def text_after_cut(self, cut: int) -> str:
        """Return the file's content once the log was cut at `cut` because its epochs said so.

        Such a cut takes nothing that was promised, so the incarnation is kept.
        """
        record = self._started()
        record = msgspec.structs.replace(record, acked=min(record.acked, cut))
        return encode_checked_json(REPLICA_FILE, record).decode()

    def _stands_back_until(self, boot_id: str) -> float:
        record = self._record
        return record.stands_back_until if record and record.boot_id == boot_id else 0.0

    def _why_renew(self, boot_id: str, log_end: int, damaged_end: str | None) -> str | None:
        record = self._record
        if record is None:
            missing = f"{self.path}: {self.trouble or 'there is no such file'}"
            is_new = not log_end and not self.trouble
            return None if is_new else f"{missing}, but there is a log of {log_end} bytes"
        if log_end < record.acked:
            return (
                f"the log ends at {log_end}, {record.acked - log_end} bytes below what was"
                " acknowledged"
            )
        if damaged_end is not None and boot_id == record.boot_id:
            # Without a power loss only a put under way is torn, and that is recognised.
            return f"the end of the log was damaged: {damaged_end}"
        lost_cache = boot_id != record.boot_id and not record.is_clean
        if lost_cache and record.ack_level is AckLevel.WRITTEN:
            return (
                "the machine was started anew after an unclean stop, and what was acknowledged was"
                " not flushed (ack_level: written)"
            )
        if record.has_failed and record.ack_level is AckLevel.WRITTEN:
            return "a sync failed, and what was acknowledged was not flushed (ack_level: written)"
        return None

    def _read(self) -> None:
        try:
            self._record = read_checked_json(self._disk, self.path, ReplicaRecord)
        except UnreadableError as error:
            self.trouble = f"cannot be read ({error})"

    def _draw(self) -> str:
        drawn = self.incarnation
        while drawn == self.incarnation:
            drawn = f"{self._random.getrandbits(64):016x}"
        return drawn

    def _started(self) -> ReplicaRecord:
        if self._record is None:
            raise LocalHAError("the replica was not started")
        return self._record

    def _write(self, record: ReplicaRecord) -> None:
        replace_with_checked_json(self._disk, self.path, record)
        self._record = record
