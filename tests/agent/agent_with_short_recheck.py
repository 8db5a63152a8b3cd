"""topomend as a command that looks after its object every ``RECHECK_SECONDS``, and not only every few minutes."""

import os

from topomend.publish import recheck


def main() -> None:
    recheck.RECHECK_SECONDS = float(os.environ["RECHECK_SECONDS"])
    from topomend.cli.main import main as topomend  # noqa: PLC0415  only now, so that nothing has the old number

    topomend()


if __name__ == "__main__":
    main()
