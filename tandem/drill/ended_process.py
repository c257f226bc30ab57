"""The end of a process that a drill has beside it: it ends when its standard input does."""

import trio


async def end_process(process: trio.Process, seconds_max: float) -> None:
    """Close its standard input; kill it, should it still be there after this many seconds."""
    with trio.CancelScope(shield=True):
        assert process.stdin is not None
        await process.stdin.aclose()
        with trio.move_on_after(seconds_max):
            await process.wait()
            return
        process.kill()
        await process.wait()
