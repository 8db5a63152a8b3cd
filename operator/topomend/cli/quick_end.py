"""The end of a short program. Python takes all modules and objects apart first, which the system does at once.

Owns the process's end. Leaves to ``kubectl_numa`` which programs end so.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_end() -> Iterator[None]:
    """Have the process end at once where the block ends by sys.exit with a number.

    That is after all that Python does at an end for others: threads are joined that are no daemons, and functions of
    ``atexit`` have run that were registered in the block. Where what was printed cannot be written, Python ends as it
    always does, which says so.
    """
    end = _End()
    atexit.register(end.come)  # those that are registered later run before
    try:
        yield
    except SystemExit as ended:
        end.code = ended.code
        raise


class _End:
    """The end, and the exit code that is known once the program has answered."""

    code: object = None

    def come(self) -> None:
        """End the process, if the code is known."""
        if not isinstance(self.code, int):
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream:  # None where the process was started without it
                    stream.flush()
        except (OSError, ValueError):  # the latter for a closed one
            return
        os._exit(self.code)
