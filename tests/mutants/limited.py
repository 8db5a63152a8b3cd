"""``python -m tests.mutants.limited SECONDS MODULE ARGUMENT...``: a module that may use so much of a processor's time.

A mutant without an end is noticed, too; that a busy machine gives it little time must not pass for one.
"""

import resource
import runpy
import sys


def main() -> None:
    """Set the limit and become the module. The kernel ends with SIGXCPU what goes beyond it."""
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
