"""What `tandem log verify` can find, what each finding means, and what to do about it.

damage     something that no correct store leaves behind, not even after a crash
warning    what a crash, a running node or a setting explains; the next start puts it right
note       worth knowing, wrong in no way
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["damage", "warning", "note"]

FINDINGS_KEPT_MAX: Final = 20
"""Of one kind in one file: more say nothing new. All are counted."""

_RESTORE: Final = (
    "heal it from another node's copy of the log: `tandem log repair DIR --from OTHER_DIRECTORY"
    " --write`; what cannot be had back is cut off by"
    " `tandem log repair DIR --write --cut-at OFFSET --accept-loss`"
)
_REBUILD: Final = "rebuild queues and index from the log: `tandem log repair DIR --write`"
_NEXT_START: Final = "none: the next start of the node puts it right"
_COMPACTION: Final = (
    "stop another node of the group, and copy both directories of this queue from there; or move"
    " them away: it is then compacted anew from what the commit log still has"
)
_LOOK: Final = "look at the file; move it out of the store if it is not wanted"


class Kind(msgspec.Struct, frozen=True):
    """One kind of finding."""

    severity: Severity
    meaning: str
    remedy: str


KINDS: Final[dict[str, Kind]] = {
    # -- the log
    "log-file-length": Kind(
        "damage", "the file is not as long as the others; RocketMQ refuses to load it", _RESTORE
    ),
    "log-file-too-long": Kind(
        "damage",
        "no store makes files of its log as long as this: something else wrote it",
        "if it holds records, " + _RESTORE + "; else " + _LOOK,
    ),
    "log-file-missing": Kind(
        "damage", "the log has a hole; a recovery loses everything after it", _RESTORE
    ),
    "record-corrupt": Kind(
        "damage",
        "bytes that were a record have changed; a recovery loses it and everything after it",
        _RESTORE,
    ),
    "record-crc": Kind(
        "damage",
        "the body is not what was stored; a pull that comes to it is answered with an error until"
        " it is healed or an operator passes over it",
        _RESTORE,
    ),
    "record-property-crc": Kind(
        "damage", "some byte of the record is not what was stored", _RESTORE
    ),
    "block-changed": Kind(
        "damage",
        "bytes of a closed file are not what was written, perhaps in headers or properties, which"
        " no record's checksum covers",
        _RESTORE + "; to keep a header as it is now, remove the file of the same name in"
        " fingerprints/ while the node is stopped, then `tandem log repair DIR --write`",
    ),
    "damage-noted": Kind(
        "warning",
        "the node has noted bytes as bad, and hands out nothing of them until it has looked again",
        "none if nothing else is found: the next scrub takes the note away; else " + _RESTORE,
    ),
    "fingerprint-file": Kind(
        "damage",
        "the fingerprint of a log file has changed: what no record's checksum covers cannot be"
        " compared there",
        "none: the next scrub of the node makes it anew, from what is there then",
    ),
    "fingerprint-torn": Kind(
        "warning",
        "the node or the machine stopped while it wrote a fingerprint",
        "none: the next scrub of the node makes it anew",
    ),
    "fingerprint-outdated": Kind(
        "note",
        "another program has written the end of the file anew after its fingerprint was taken",
        "none: the next scrub of the node makes it anew",
    ),
    "log-end-damaged": Kind(
        "damage",
        "after a clean stop queues or checkpoint know records past the end of the log: its end"
        " was destroyed",
        _RESTORE,
    ),
    "torn-tail": Kind(
        "warning", "the node or the machine stopped in the middle of writing", _NEXT_START
    ),
    "leftover": Kind(
        "warning",
        "RocketMQ does not erase what a recovery cuts off; it writes over it later",
        "none; `tandem log repair DIR --write` cuts it off and keeps it in torn/",
    ),
    "being-written": Kind("note", "a running node is writing here", "none"),
    # -- queues
    "queue-file-length": Kind(
        "damage", "the file is not as long as the others; RocketMQ refuses to load it", _REBUILD
    ),
    "queue-file-missing": Kind("damage", "a part of the queue cannot be read", _REBUILD),
    "queue-gap": Kind("damage", "the queue seems to end here, but goes on after it", _REBUILD),
    "queue-leftover": Kind(
        "warning", "bytes past the end of the queue that are no units", _NEXT_START
    ),
    "queue-missing": Kind(
        "damage",
        "messages of a topic that config/topics.json knows are in no queue: no consumer gets them",
        _REBUILD,
    ),
    "queue-unknown": Kind(
        "warning",
        "messages of the log are in no queue: their topic was deleted, or its queues were lost",
        "none if the topic was deleted; else " + _REBUILD,
    ),
    "earlier-life": Kind(
        "note",
        "the queue begins after these messages, with 0: the topic was deleted and created again",
        "none",
    ),
    "unit-missing": Kind(
        "damage", "a message of the log is not in its queue: no consumer gets it", _REBUILD
    ),
    "unit-wrong": Kind(
        "damage", "consumers of this queue get a wrong message, or filters go wrong", _REBUILD
    ),
    "unit-without-record": Kind(
        "damage", "consumers of this queue get what is no message of it", _REBUILD
    ),
    "unit-order": Kind("damage", "messages of the queue are twice or out of order", _REBUILD),
    "filler-misplaced": Kind(
        "damage", "a unit that leads nowhere follows ones that lead somewhere", _REBUILD
    ),
    "ext-unit": Kind(
        "damage",
        "what a filter needs to know of the message is lost: every filter passes it",
        _REBUILD,
    ),
    "unsynced": Kind(
        "warning",
        "the node stopped before this had reached the disk: it is newer than what the checkpoint"
        " vouches for",
        _NEXT_START,
    ),
    "dispatch-behind": Kind(
        "warning",
        "messages had not been entered in their queues when the node stopped",
        _NEXT_START,
    ),
    "queues-ahead": Kind(
        "warning", "the queues reached the disk, the records did not", _NEXT_START
    ),
    "queues-absent": Kind("note", "there are no queues here to compare with the log", "none"),
    # -- compaction topics
    "compaction-pair": Kind(
        "damage",
        "of the two files of a pair one is missing, or a file has a wrong name; no node starts with"
        " that, nor does RocketMQ",
        _COMPACTION,
    ),
    "compaction-unit": Kind(
        "damage",
        "a unit does not name the record that comes next; later ones are lost",
        _COMPACTION,
    ),
    "compaction-record": Kind(
        "damage",
        "a record is not what was stored; a pull that comes to it is answered with an error, and"
        " its queue is not compacted any more",
        _COMPACTION,
    ),
    "compaction-swap": Kind(
        "warning", "the node or the machine stopped while compacted files were put in", _NEXT_START
    ),
    # -- index
    "index-settings": Kind(
        "damage",
        "how many slots the index files have cannot be found out from them",
        "name them with --max-hash-slot-num and --max-index-num",
    ),
    "index-file-length": Kind(
        "damage", "the file does not have the length of an index file", _REBUILD
    ),
    "index-header": Kind("damage", "the header does not fit the entries", _REBUILD),
    "index-chain": Kind("damage", "look-ups by key miss messages, or do not end", _REBUILD),
    "index-entry": Kind("damage", "the entry leads to no message with such a key", _REBUILD),
    "index-time": Kind("damage", "look-ups by key and time miss the message", _REBUILD),
    "index-key-missing": Kind("damage", "the message is not found by its key", _REBUILD),
    "index-behind": Kind(
        "warning",
        "the newest messages are not in the index, or it was switched off",
        "none: the next start of the node enters them, if its index is on",
    ),
    "index-ahead": Kind("warning", "the index reached the disk, the records did not", _NEXT_START),
    "index-absent": Kind("note", "there is no index here to compare with the log", "none"),
    # -- the rest
    "checkpoint-length": Kind(
        "damage", "the checkpoint is not whole", "delete it: the next start checks the whole log"
    ),
    "checkpoint-ahead": Kind(
        "warning", "the checkpoint knows later messages than the log holds", _NEXT_START
    ),
    "checkpoint-changed": Kind(
        "warning",
        "the checkpoint and the second copy of its numbers differ: a byte has changed, or another"
        " program has written it",
        _NEXT_START,
    ),
    # -- small files
    "replica-file": Kind(
        "damage",
        "the node cannot show what it acknowledged: it is another replica, which has to catch up"
        " before it counts",
        _NEXT_START,
    ),
    "epoch-copy": Kind("warning", "one of two copies of a list of epochs has changed", _NEXT_START),
    "epoch-files": Kind(
        "damage",
        "both copies have changed: nobody can say which master wrote which part of the log",
        "move the store directory away: the node copies the log from its master",
    ),
    "group-file": Kind(
        "damage",
        "what the node knows of topics, groups and offsets has changed",
        "none: the next start of the node reads it from the log again",
    ),
    "topic-changes": Kind(
        "damage",
        "the topics of the last seconds before a kill have changed",
        "none: the next start goes on without them, and a send to one of them creates it again",
    ),
    "order-file": Kind(
        "damage",
        "what the next start is to do to the log cannot be read: it refuses to start",
        "move the file away and start the node: it finds out anew",
    ),
    "log-start": Kind(
        "damage",
        "the first files of the log are gone, and it was not retention that deleted them",
        _RESTORE,
    ),
    "start-file": Kind(
        "damage",
        "where the log has to begin cannot be read: the node takes it to begin where it does",
        _NEXT_START,
    ),
    "damage-file": Kind(
        "damage",
        "which parts of the log are in doubt cannot be read: all of it is",
        "none: the node looks at all of the log",
    ),
    "progress-file": Kind(
        "warning",
        "how far the scrub is, or what has been healed, cannot be read",
        "none: the node begins anew with it",
    ),
    "queue-note": Kind(
        "warning",
        "which queues have files cannot be read: one that is gone is not missed",
        _NEXT_START,
    ),
    "queue-ends": Kind(
        "warning",
        "where queues ended at the last clean stop cannot be read",
        "none: the next start reads their files",
    ),
    "queue-gone": Kind(
        "warning",
        "the queue had files at the last start or clean stop, and has none",
        "none: the next start builds all queues anew",
    ),
    "rebuild-file": Kind(
        "damage",
        "why all queues are to be built anew cannot be read",
        "none: the next start builds all queues anew",
    ),
    "rebuild-noted": Kind(
        "warning",
        "the node has found units that it could not put in their places",
        "none: the next start builds all queues anew",
    ),
    "table-changed": Kind(
        "damage",
        "the table is not what the node wrote",
        "none: the next start reads the version before, in .bak, and what changed since is to be"
        " set again; a node of a fenced group writes both anew",
    ),
    "table-lost": Kind(
        "damage",
        "neither the table nor the version before can be read: the node does not start",
        "bring one of the two back from a backup; or remove the table and its .bak, start the node,"
        " and set again what was in it",
    ),
    "table-written": Kind(
        "note", "somebody else has written the table; the node takes it as it is", "none"
    ),
    "table-checksum": Kind(
        "warning",
        "the checksums of a table have changed; the table is taken as it is",
        _NEXT_START,
    ),
    # -- what the nodes of a machine share
    "coordinator-journal": Kind(
        "damage",
        "what the coordinator knows of the groups may be lost: it does not start",
        "bring the journal back from a copy; or remove it, start the cluster, and recover each"
        " fenced group: `tandem ha recover-group GROUP`",
    ),
    "coordinator-copy": Kind(
        "warning",
        "one of two copies of a record of the coordinator has changed: the other one counts",
        "none: the next start of the coordinator writes both anew",
    ),
    "coordinator-torn": Kind(
        "warning",
        "the coordinator or the machine stopped in the middle of writing; nobody was answered",
        "none: the next start of the coordinator cuts it off",
    ),
    "secret-file": Kind(
        "damage",
        "the cluster's secret is not what was made: nothing starts with it",
        "copy it from another machine of the cluster, or from a backup; without a copy remove it:"
        " the next start makes another, and clients need new ones: `tandem cluster credentials`",
    ),
    "stray-file": Kind("warning", "no store would have this here", _LOOK),
}


class Finding(msgspec.Struct, frozen=True):
    """Something found at byte `position` of `file` (-1: the whole file).

    `offset` is the physical offset that it is about, -1 if it is about none. `count` says how many
    alike there are in that file, of which this is one.
    """

    kind: str
    file: str
    position: int
    what: str
    offset: int = -1
    count: int = 1

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return KINDS[self.kind].severity

    @property
    def meaning(self) -> str:
        """What it means."""
        return KINDS[self.kind].meaning

    @property
    def remedy(self) -> str:
        """What to do."""
        return KINDS[self.kind].remedy


class FindingReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, the worst first."""

    findings: tuple[Finding, ...]

    @property
    def damage_count(self) -> int:
        """How many findings are damage."""
        return self._count("damage")

    @property
    def warning_count(self) -> int:
        """How many findings are warnings."""
        return self._count("warning")

    def _count(self, severity: str) -> int:
        return sum(found.count for found in self.findings if found.severity == severity)


class FindingList:
    """Findings, of which only the first ones of a kind and file are kept; all are counted."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], list[Finding]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, kind: str, file: str, position: int, what: str, offset: int = -1) -> None:
        """Note a finding."""
        self.extend([Finding(kind, file, position, what, offset)])

    def extend(self, findings: Iterable[Finding]) -> None:
        """Note findings that were counted elsewhere: each stands for itself."""
        for finding in findings:
            place = finding.kind, finding.file
            kept = self._kept.setdefault(place, [])
            if len(kept) < FINDINGS_KEPT_MAX:
                kept.append(finding)
            self._counts[place] = self._counts.get(place, 0) + finding.count

    def add_count(self, kind: str, file: str, more: int) -> None:
        """Count findings that are like one noted before."""
        place = kind, file
        self._counts[place] = self._counts.get(place, 0) + more

    def is_full(self, kind: str, file: str) -> bool:
        """Whether another one of this kind would only be counted."""
        return len(self._kept.get((kind, file), ())) >= FINDINGS_KEPT_MAX

    def in_order(self) -> tuple[Finding, ...]:
        """Return `all`, the worst first."""
        return tuple(sorted(self.all(), key=_order))

    def all(self) -> list[Finding]:
        """Return those kept; the last one kept of a kind and file counts for those left out."""
        found = []
        for place, kept in self._kept.items():
            left_out = self._counts[place] - sum(finding.count for finding in kept)
            last = msgspec.structs.replace(kept[-1], count=kept[-1].count + left_out)
            found += [*kept[:-1], last]
        return found


_SEVERITIES: Final = ("damage", "warning", "note")


def _order(finding: Finding) -> tuple[int, str, str, int]:
    return _SEVERITIES.index(finding.severity), finding.kind, finding.file, finding.position
