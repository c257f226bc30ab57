"""Stands in for `python -m node` where only the process matters: `fake_node.py BEHAVIOUR`.

Like a node it says READY, ends with status 0 on SIGTERM, and ends when its standard input does.
"""

import os
import signal
import sys
import time
from types import FrameType


def stop(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


def main(behaviour: str) -> None:
    signal.signal(signal.SIGTERM, stop)
    if behaviour == "broken":
        print("a warning that nobody should see", file=sys.stderr)
        print("port 127.0.0.1:10911 is taken", file=sys.stderr)
        sys.exit(3)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "silent":
        time.sleep(3600)
    print(f'READY {{"name": "{behaviour}"}}', flush=True)
    if behaviour == "chatty":
        print("words " * 100_000, flush=True)
    sys.stdin.read()


main(sys.argv[1])
