"""What a fork server is asked to run: `python -m tests.tandem.cluster.fake_program WHAT`."""

import json
import os
import sys
import time
from pathlib import Path


def main(what: str) -> None:
    if what == "report":
        seen = {
            "arguments": sys.argv[1:],
            "descriptors": sorted(int(each.name) for each in Path("/proc/self/fd").iterdir())[:-1],
            "directory": str(Path.cwd()),
            "environment": dict(os.environ),
            "leads": [os.getpid() == os.getsid(0), os.getpid() == os.getpgid(0)],
        }
        print(json.dumps(seen))
        sys.exit(3)
    if what == "fail":
        raise ZeroDivisionError("on purpose")
    if what == "refuse":
        sys.exit("words for a person")
    time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1])
