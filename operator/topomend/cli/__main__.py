"""``python -m topomend.cli``: the same as the program ``topomend``, for processes that start ``topomend`` again."""

from topomend.cli.main import main

main(prog_name="topomend")
