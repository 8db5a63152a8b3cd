"""``python -m tests.e2e`` says whether this machine can run topomend as it is installed.

Exit codes: 0 it can, 1 programs are missing that can be installed, 2 the machine itself does not allow it.
"""

import sys

from tests.e2e.prerequisites import MissingPrograms, Unavailable, check

if __name__ == "__main__":
    try:
        check()
    except Unavailable as error:
        print(f"make e2e: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, MissingPrograms) else 2)
