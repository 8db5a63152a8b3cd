"""The errors of a sandbox, with texts for the person who started it.

SandboxError
├── SandboxUnavailable   this machine, or this user on it, cannot run or build one
├── SandboxBusy          one of that name is up already, and differs
└── ProgramFailed        a program of it did not start or ended
"""


class SandboxError(Exception):
    """A sandbox could not be brought up, read or changed. The text is one line."""


class SandboxUnavailable(SandboxError):
    """This machine or this user cannot run or build a sandbox. The text says what is missing and what to do."""


class SandboxBusy(SandboxError):
    """A sandbox of that name is up already with other nodes."""


class ProgramFailed(SandboxError):
    """A program of the sandbox did not start, or ended. The text has its name, its last error and its log file."""
