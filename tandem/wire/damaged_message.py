"""What an answer says of a damaged record that was asked for: ours, in an error to try again."""

from tandem.wire.remoting_command import Int64
from tandem.wire.request_headers import Header


class DamagedMessageHeader(Header, frozen=True):
    """Fields of an error. Without them it has another reason."""

    damaged_queue_offset: Int64 | None = None
    """The number of the message; -1 where a place of the log was asked for."""
    damaged_physical_offset: Int64 | None = None
