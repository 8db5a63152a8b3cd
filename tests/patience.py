"""How long something may take. A test says how long on a machine with time to spare; a busy one is given more."""

import os


def stretched(seconds: float) -> float:
    """So many seconds, times the processes that wait for each CPU where there are more than one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
