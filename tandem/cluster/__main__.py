"""`python -P -m tandem.cluster FILE FD`: a supervisor in the background; see `detached`."""

import sys
from pathlib import Path

from tandem.cluster.detached import run_detached

sys.exit(run_detached(Path(sys.argv[1]), int(sys.argv[2])))
