"""``python -m verify.reference``: the page ``docs/reference.md``, from the code alone. ``make generate`` writes it."""

import sys

from verify.reference.page import page

if __name__ == "__main__":
    sys.stdout.write(page())
