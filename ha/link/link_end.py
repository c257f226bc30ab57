"""The end of one link: why, and that everything that serves it stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class LinkEnd:
    """Serve a link inside `scope`, each task of it inside `guard`. The first reason counts.

    Attributes:
        scope: Cancelled when the link is to be served no more.
        reason: The first error that ended it; None while it lives, or if its owner was cancelled.
    """

    def __init__(self, *errors: type[Exception], on_end: Callable[[], None] | None = None) -> None:
        """`errors` end the link and concern nobody else; `on_end` is called in the same step."""
        self._errors = errors
        self._on_end = on_end
        self.scope = trio.CancelScope()
        self.reason: Exception | None = None

    def because(self, reason: Exception) -> None:
        """Stop serving the link, in this step."""
        self.reason = self.reason or reason
        if self._on_end is not None:
            self._on_end()
        self.scope.cancel()

    async def guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task of the link; what goes wrong with the link ends it, and is not raised."""
        try:
            await task()
        except self._errors as error:
            self.because(error)
