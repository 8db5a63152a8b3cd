"""The story of ``make e2e`` on one release: the image, ``deploy/`` and real containers; its figures as cells."""

import json
import os
import subprocess
import sys
from pathlib import Path

from verify.e2e.steps.installed import APPLIED, BRAKED, DRAINED, EXPLAINED, FIGURES, RELAUNCHED

ROOT = Path(__file__).parents[2]
STORY = "verify/e2e/e2e_story.py"

COLUMNS = {
    "APPLIED-TO-READY": APPLIED,
    "REFUSED-TO-EXPLAINED": EXPLAINED,
    "REFUSED-TO-RUNNING": RELAUNCHED,
    "REFUSED-OF-2-REPLICAS": BRAKED,
    "DRAIN": DRAINED,
}
"""The figures of the story that the table has."""

SHOWN = 40
"""The last lines of a failed story that are printed."""


class StoryFailed(Exception):
    """A test of the story failed; its output was printed."""


def tell_story(release: str) -> tuple[str, ...]:
    """Run the whole story on ``release``; the cells of COLUMNS. Raises StoryFailed."""
    figures = ROOT / FIGURES / f"{release}.json"
    figures.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "1800", "-o", "python_files=e2e_*.py", STORY]
    environment = {**os.environ, "TOPOMEND_KUBERNETES": release}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print("\n".join((done.stdout + done.stderr).splitlines()[-SHOWN:]), file=sys.stderr)
        raise StoryFailed(f"as installed: {_last_line(done.stdout)}")
    content = json.loads(figures.read_text())
    return tuple(content[name] for name in COLUMNS.values())


def _last_line(output: str) -> str:
    return next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
