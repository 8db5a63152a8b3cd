"""``python -m verify.e2e``: check whether this machine can run topomend as it is installed.

Exit codes: 0 it can; 1 programs are missing, which can be installed; 2 the machine does not allow containers.
"""

import sys

from verify.commands import Unavailable
from verify.e2e.prerequisites import MissingPrograms, check

if __name__ == "__main__":
    try:
        check()
    except Unavailable as error:
        print(f"make e2e: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, MissingPrograms) else 2)
