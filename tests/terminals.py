"""What a process writes to a terminal of its own."""

import os
from multiprocessing import connection


def written(ours: int, theirs: int, ended: int) -> str:
    """All that arrives at our end until the process has ended, which ``ended`` tells by becoming readable.

    Closes both ends. Theirs stays open until then: a terminal whose other end nobody has open loses what is written to
    it.
    """
    text = b""
    while ours in connection.wait([ours, ended]):
        text += os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    return text.decode()
