"""What can go wrong with a sandbox, in words for the person who started it.

SandboxError
├── SandboxUnavailable   this machine, or this user on it, cannot run or build one
├── SandboxBusy          one of that name is up already, and differs
└── ProgramFailed        a program of it did not start or ended
"""


class SandboxError(Exception):
    """A sandbox that could not be brought up, asked or changed; one line."""


class SandboxUnavailable(SandboxError):
    """This machine, or this user on it, cannot run or build a sandbox: what is missing, and how to get it."""


class SandboxBusy(SandboxError):
    """A sandbox of that name is up already with other nodes."""


class ProgramFailed(SandboxError):
    """A program of the sandbox did not start or ended: its name, its last relevant words, its log file."""
