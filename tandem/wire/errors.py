"""What can be wrong with bytes that came from somebody else, and with what a caller gives.

A reader of a connection drops it on any `WireError`; a reader of a file reports where. An
`ArgumentError` is the caller's own.
"""


class ArgumentError(ValueError):
    """An argument, or a part of a message, is out of range or contradicts another one.

    `names` are those that are wrong: arguments, fields of a `Message`, or properties of it. Of a
    contradiction they are all that it is between.
    """

    def __init__(self, text: str, *names: str) -> None:
        super().__init__(text, *names)
        self.names = names

    def __str__(self) -> str:
        return str(self.args[0])


class WireError(Exception):
    """The bytes are not what the protocol allows. The peer's fault, never the caller's."""


class FrameTooLargeError(WireError):
    """A frame or its header claims more bytes than we are willing to hold.

    Also what a peer that speaks another protocol looks like: its first four bytes make a huge
    length. Drop the connection.
    """

    def __init__(self, part: str, size: int, limit: int) -> None:
        super().__init__(part, size, limit)
        self.part = part
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.part} of {self.size} bytes; the limit is {self.limit} bytes"


class MalformedFrameError(WireError):
    """A frame, its header or one field of it does not parse.

    If `field` is set the frame itself was sound and only a header field is missing or wrong: a
    server may answer the request with an error. Otherwise drop the connection. If `limit` is set
    it has more of something than that.
    """

    def __init__(
        self,
        reason: str,
        *,
        code: int | None = None,
        field: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.field = field
        self.limit = limit


class MalformedMessageError(WireError):
    """A log record, a batch body or a message id does not parse.

    `position` is the byte where the record begins, or its part that is wrong; of an id it is 0.
    """

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(reason, position)
        self.position = position

    def __str__(self) -> str:
        return str(self.args[0])


class IllegalPropertyError(WireError):
    """A property of a message has a value that it cannot have. `name` is the property's."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text, name)
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])
