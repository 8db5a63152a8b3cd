"""``python -m verify.e2e [RELEASE]``: check whether this machine can run topomend as it is installed.

Exit codes: 0 it can; 1 programs are missing, which can be installed, or RELEASE is none of Kubernetes that topomend
supports; 2 the machine does not allow containers.
"""

import sys

from tools.commands import Unavailable
from verify.e2e.prerequisites import MissingPrograms, check

from topomend.sandbox.releases.go_modules import NotARelease, minor_of


def main(releases: list[str]) -> int:
    try:
        for release in releases:
            minor_of(release)
        check()
    except (NotARelease, Unavailable) as error:
        print(f"make e2e: {error}", file=sys.stderr)
        return 1 if isinstance(error, NotARelease | MissingPrograms) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
