"""The end of the process that has started this one. Imports little, so that it is seen early."""

import os


class ParentProcess:
    """The process that has started this one, and its end."""

    def __init__(self) -> None:
        """Look who it is. If that cannot be seen, as in a container of its own, it never ends."""
        self._pidfd: int | None = None
        parent = os.getppid()
        if parent > 0:
            try:
                self._pidfd = os.pidfd_open(parent)
            except OSError:  # it has ended meanwhile, and standard input with it
                return

    async def wait_end(self) -> None:
        """Wait until it has ended."""
        import trio  # noqa: PLC0415 - it is there when this is awaited, and takes long

        if self._pidfd is None:
            await trio.sleep_forever()
        else:
            await trio.lowlevel.wait_readable(self._pidfd)
