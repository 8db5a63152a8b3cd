"""``python -m verify.mutants.limited SECONDS MODULE ARGUMENT...``: run a module with a limit on its CPU time.

A mutant that loops forever must be killed too, and a busy machine must not look like one: so the limit is CPU time.
"""

import resource
import runpy
import sys


def main() -> None:
    """Set the limit and run the module. The kernel sends SIGXCPU beyond the limit."""
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
