"""A folder that may not be entered: what is below can be neither read nor looked up, also by a test that root runs."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2
"""The capabilities by which root passes over a file's mode (capabilities(7))."""


@contextmanager
def closed(folder: Path, mode: int = 0) -> Iterator[Path]:
    """The folder, which has this mode meanwhile. In this thread, root has no more rights by it than another owner."""
    libc = ctypes.CDLL(None)
    header, rights = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, rights) == 0
    before = rights[0]
    folder.mkdir(exist_ok=True)
    folder.chmod(mode)
    rights[0] = before & ~(_DAC_OVERRIDE | _DAC_READ_SEARCH)
    assert libc.capset(header, rights) == 0
    try:
        yield folder
    finally:
        rights[0] = before
        assert libc.capset(header, rights) == 0
        folder.chmod(0o700)
