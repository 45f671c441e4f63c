"""A Python for pytest-xdist that has imported libraries when it starts.

    python -m tests.support.forked_python MODULE,... -c CODE

It runs the code in a fork of an interpreter that has imported the modules. The imports of a tier's
test files take half a minute, and without this each process of the tier would repeat them.
"""

from __future__ import annotations

import sys

from tests.support.preloaded import Preloaded

if __name__ == "__main__":
    sys.exit(Preloaded(*sys.argv[1].split(",")).become(sys.argv[-1]))
