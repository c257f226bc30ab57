"""Places in a queue as `--from` and `--to` say them: a word, an offset, or a time."""

from typing import TYPE_CHECKING, Final

import msgspec
import typer

from tandem.cli.times import TIME_FORMS, time_ms

if TYPE_CHECKING:
    from tandem.client import MessageQueue, PullConsumer

WORDS: Final = ("earliest", "latest", "committed")

PLACE_FORMS: Final = f"earliest, latest, committed, a queue offset, or a time ({TIME_FORMS})"


class Place(msgspec.Struct, frozen=True):
    """One of the three is set: a word, a queue offset, or a time in milliseconds since 1970."""

    word: str = ""
    offset: int | None = None
    time_ms: int | None = None

    async def in_queue(self, consumer: "PullConsumer", queue: "MessageQueue") -> int:
        """Return the offset it means in one queue.

        A group that has no offset there begins at the earliest.
        """
        if self.offset is not None:
            return self.offset
        if self.time_ms is not None:
            return await consumer.search_offset(queue, self.time_ms)
        if self.word == "latest":
            return await consumer.max_offset(queue)
        if self.word == "committed":
            committed = await consumer.fetch_consume_offset(queue)
            if committed is not None:
                return committed
        # A queue that begins later says so to the first pull.
        return 0


def place_of(text: str, option: str, *, now_ms: int, has_group: bool) -> Place:
    """Return what an option says.

    Raises:
        typer.BadParameter: Nothing, or `committed` without a group.
    """
    if text in WORDS:
        if text == "committed" and not has_group:
            raise typer.BadParameter(
                "committed offsets are a group's: add --group", param_hint=option
            )
        return Place(word=text)
    moment = time_ms(text, now_ms)
    if moment is not None:
        return Place(time_ms=moment)
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return Place(offset=int(text))
    raise typer.BadParameter(f"{text!r} is no place; give {PLACE_FORMS}", param_hint=option)
