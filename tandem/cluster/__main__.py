"""`python -P -m tandem.cluster FILE FD [--lifeline]`: a supervisor in the background."""

import sys
from pathlib import Path

from tandem.cluster.detached import run_detached

sys.exit(run_detached(Path(sys.argv[1]), int(sys.argv[2]), lifeline="--lifeline" in sys.argv[3:]))
