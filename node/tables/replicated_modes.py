"""How groups read topics if they leave it to their broker, PULL or POP, as a replicated table.

Its file is RocketMQ's `messageRequestMode.json`. A group that is not in it pulls.

Source: RocketMQ 5.3.3, MessageRequestModeManager; SlaveSynchronize.syncMessageRequestMode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from node.tables.deleted import Deleted
from node.tables.node_table import PartTable, TableFiles
from node.tables.table_part import Content, Field, FieldKind, TablePart
from tandem.wire.route import decode_json_body
from tandem.wire.stats_requests import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)

MODES_VERSION: Final = 5
"""Of the journal's format: nodes of older versions do not read a journal with modes."""

Modes = dict[str, dict[str, SetMessageRequestModeRequestBody]]
"""By topic and group."""


class ModesChanged(msgspec.Struct, frozen=True, tag="messageRequestMode"):
    """Modes that are new or different."""

    messageRequestModeMap: Modes  # noqa: N815 - so it is called in RocketMQ's file
    version: int = MODES_VERSION


class ModesPart(TablePart):
    """The modes that were set."""

    record = ModesChanged
    also = (Deleted,)
    fields: ClassVar = (Field("messageRequestModeMap", Modes, FieldKind.MAP),)
    version = MODES_VERSION

    def __init__(self, modes: Modes | None = None) -> None:
        self.modes = modes or {}

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self.modes.values()))

    def find(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """Return what was set for a group, None if nothing was."""
        return self.modes.get(topic, {}).get(group)

    def is_concerned(self, record: Deleted) -> bool:
        """Whether a deletion takes a mode away."""
        return any(topic in self.modes for topic in record.topics) or any(
            group in groups for group in record.groups for groups in self.modes.values()
        )

    def apply(self, record: ModesChanged | Deleted) -> None:
        """See `TablePart`."""
        if isinstance(record, ModesChanged):
            self._update(record.messageRequestModeMap)
            return
        for topic in record.topics:
            self.modes.pop(topic, None)
        for group in record.groups:
            for groups in self.modes.values():
                groups.pop(group, None)

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        self._update(content["messageRequestModeMap"])

    def content(self) -> Content:
        """See `TablePart`."""
        modes = {topic: groups for topic, groups in self.modes.items() if groups}
        return {"messageRequestModeMap": modes}

    def copy(self) -> ModesPart:
        """See `TablePart`."""
        return ModesPart({topic: dict(groups) for topic, groups in self.modes.items()})

    def _update(self, modes: Modes) -> None:
        for topic, groups in modes.items():
            self.modes.setdefault(topic, {}).update(groups)


class ModesTable(PartTable[ModesPart]):
    """The modes of a node: `config/messageRequestMode.json`."""

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        super().__init__(ModesPart, files)

    def take(self, record: ModesChanged | Deleted) -> None:
        """See `NodeTable`. A deletion of what has no mode writes nothing."""
        if isinstance(record, Deleted) and not self.part.is_concerned(record):
            return
        super().take(record)

    def replace_all(self, body: bytes) -> None:
        """Make the table say what a master's does, by its answer to GET_ALL_MESSAGE_REQUEST_MODE.

        Raises:
            MalformedFrameError: that is none.
        """
        body_type = MessageRequestModeSerializeWrapper
        wanted = ModesPart(decode_json_body(body, body_type).message_request_mode_map)
        if wanted.modes != self.part.content()["messageRequestModeMap"]:
            self.show(wanted, None)
