"""Why a shadow cannot go on."""

from typing import ClassVar

from node.errors import NodeError


class ShadowError(NodeError):
    """A person has to decide something; the text says what was found and what can be done."""

    exit_status: ClassVar[int] = 1
