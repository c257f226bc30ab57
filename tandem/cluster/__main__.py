"""`python -P -m tandem.cluster FILE FD [OPTIONS]`: a supervisor in the background."""

import sys

from tandem.cluster.detached import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
