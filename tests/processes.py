"""How tests end the processes that they started."""

import signal
import subprocess

from tests.waiting import stretched


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and wait until it has. Raises TimeoutExpired if it hangs.

    It is killed then, so that no later test meets it, and prints where it hung if PYTHONFAULTHANDLER is set.
    """
    process.terminate()
    try:
        process.wait(stretched(60))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait()
        raise
