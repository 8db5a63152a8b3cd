"""A program that ends at once: what it owes to others before, and when it ends as Python does."""

import os
import subprocess
import sys

import pytest

OF_PYTHON = "class Last:\n    def __del__(self): print('taken apart')\nlast = Last()\n"
"""Tells whether Python takes objects apart."""


def ended(program: str, stdout: int = subprocess.PIPE) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a program."""
    command = [
        sys.executable,
        "-c",
        f"import atexit, sys, threading\nfrom topomend.cli.quick_end import quick_end\n{program}",
    ]
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env=buffered, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout or "", done.stderr


@pytest.mark.parametrize("code", [0, 1, 2, 3, 255])
def test_it_ends_with_its_code_and_all_that_it_printed(code: int) -> None:
    program = f"print('an answer', end=''); print('a warning', end='', file=sys.stderr); sys.exit({code})"
    assert ended(f"with quick_end(): {program}") == (code, "an answer", "a warning")


def test_nothing_is_taken_apart() -> None:
    assert ended(f"{OF_PYTHON}sys.exit(0)") == (0, "taken apart\n", "")
    assert ended(f"{OF_PYTHON}with quick_end(): sys.exit(0)") == (0, "", "")


def test_functions_for_the_end_have_run_and_threads_have_ended() -> None:
    program = """
with quick_end():
    atexit.register(print, "at the end")
    begun = threading.Event()
    def work():
        begun.set()
        threading.main_thread().join()
        print("a thread")
    threading.Thread(target=work).start()
    begun.wait()
    sys.exit(1)
"""
    assert ended(program) == (1, "a thread\nat the end\n", "")


@pytest.mark.parametrize("end", ["raise ValueError('a fault')", "sys.exit('a fault')"])
def test_a_fault_ends_it_as_python_does(end: str) -> None:
    code, stdout, stderr = ended(f"{OF_PYTHON}with quick_end(): {end}")
    assert (code, stdout) == (1, "taken apart\n")
    assert stderr.endswith("a fault\n")


def test_what_cannot_be_written_is_said() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - the device refuses what is written to it
        code, _, stderr = ended("with quick_end(): print('lost'); sys.exit(0)", full.fileno())
    assert code == 120  # Python's own
    assert "No space left on device" in stderr


def test_a_program_without_stdout_ends_with_its_code() -> None:
    assert ended("sys.stdout = None\nwith quick_end(): sys.exit(3)") == (3, "", "")
