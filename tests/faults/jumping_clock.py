"""topomend as a command, whose wall clock is off by the seconds in the file that ``CLOCK_OFFSET_FILE`` names.

The file is read at every look at the clock, so the clock jumps whenever its content changes. What only goes forward
(``time.monotonic``) is left alone. It reaches everything that reads the clock in Python, kopf included.

A Lease lasts for minutes, so that a machine that stands still, which is no jump of a clock, ends none.
"""

import datetime
import os
import time
from pathlib import Path
from typing import Any

_FILE = Path(os.environ["CLOCK_OFFSET_FILE"])
_true_time = time.time


def _off() -> float:
    return float(_FILE.read_text() or 0)


class _Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return super().fromtimestamp(_true_time() + _off(), tz)


def main() -> None:
    time.time = lambda: _true_time() + _off()
    datetime.datetime = _Jumping  # type: ignore[misc]
    from topomend.cli.main import main as topomend  # noqa: PLC0415  only now: modules keep the class they find
    from topomend.runtime import leader_election  # noqa: PLC0415

    leader_election.DURATION_SECONDS, leader_election.RENEW_DEADLINE_SECONDS = 300.0, 240.0
    topomend()


if __name__ == "__main__":
    main()
