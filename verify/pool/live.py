"""``python -m verify.pool.live``: the arrivals of ``verify.pool`` on eight real kubelets, with time that passes faster.

The devices are made up, and a container does nothing but end; all else is real. A table has what the API server and
the agents said of each way, in virtual seconds, beside the bound in virtual time; another one has the same arrivals in
virtual time altogether. What is real takes as long as ever: at ``--speed 10`` a container that starts in half a second
costs five virtual ones. So each way tells the time from creation to running on the empty cluster, and by how much
longer than it asked for a pod seemed to run. Exits with 1 if the steered run misses a target that it can judge: a wait
that has to be shorter than a few starts is not judged.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from verify.contended.run import DidNotStart
from verify.pool.__main__ import COLUMNS, LOADS, coming_pods, measured, rows, targets
from verify.pool.figures import Figures
from verify.pool.real_ways import Ran, run, settings
from verify.pool.scenario import MACHINES
from verify.pool.ways import ALL_KNOWING, STEERED
from verify.targets import Target, judge

from topomend.cli.output.table import echo_table
from topomend.sandbox import SandboxError

PODS, SPEED = 150, 10.0
"""They take some eight minutes for each way and load. A faster clock distorts more."""

LEAST_STARTS = 10
"""How many times as long as the start of a pod a time has to be, for a target to be judged."""


def main() -> int:
    """Run every way on real kubelets, and report."""
    parser = argparse.ArgumentParser(prog="python -m verify.pool.live", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS, help="how many pods arrive (default: %(default)s)")
    parser.add_argument("--load", type=float, nargs="+", default=LOADS, help="the loads (default: 0.75 and 0.9)")
    parser.add_argument("--seed", type=int, default=0, help="repeats a run's arrivals (default: %(default)s)")
    parser.add_argument("--speed", type=float, default=SPEED, help="virtual seconds in a real one (%(default)s)")
    parser.add_argument("--logs", type=Path, default=None, help="keep the logs of agents and operator in this folder")
    options = parser.parse_args()
    judged = list[Target]()
    try:
        with tempfile.TemporaryDirectory(prefix="topomend-pool-") as folder:
            for load in options.load:
                folder_of_load = (options.logs or Path(folder)) / f"{load:g}"
                judged += compare(options.pods, load, options.seed, options.speed, folder_of_load)
    except (DidNotStart, SandboxError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return judge(judged)


def compare(pods: int, load: float, seed: int, speed: float, folder: Path) -> list[Target]:
    """Run each way under this load, and show what came of it. Returns the targets."""
    coming, virtual = coming_pods(pods, load, seed), measured(pods, load, [seed])
    bounds = {name: virtual[name] for name in ALL_KNOWING}
    say(f"{pods} pods, seed {seed}, in virtual time")
    show(load, virtual)
    say(f"the same on {MACHINES} real kubelets, {speed:g} virtual seconds in a real one")
    found, limits = dict[str, Figures](), list[Target]()
    for name, setting in settings().items():
        logs = folder / name.replace(" ", "-").replace(",", "")
        logs.mkdir(parents=True, exist_ok=True)
        ran = run(setting, coming, speed, logs)
        found[name] = Figures()
        found[name].add(coming, ran.outcome, ran.watched)
        (row, *_) = rows(load, {name: found[name]} | bounds)
        say(f"{'  '.join(row)}; {told(ran)}; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
        if name == STEERED:
            limits = [target for target in targets(load, {name: found[name]} | bounds) if can_judge(target, ran.starts)]
    show(load, found | bounds)
    return limits


def can_judge(target: Target, starts: float) -> bool:
    """Whether a run whose pods take so many virtual seconds to start can tell whether the target is met.

    Starts that a faster clock makes long are part of every wait. They must not be much of the longest one permitted.
    """
    return target.unit != "s" or target.limit >= LEAST_STARTS * starts


def told(ran: Ran) -> str:
    """What a run says beside its figures."""
    refusals = ", ".join(f"{number} {reason}" for reason, number in sorted(ran.refusals.items())) or "none"
    return (
        f"creation to running on the empty cluster {ran.starts:.0f} s, "
        f"seen to run {ran.outcome.lag():.0f} s longer than asked; refused: {refusals}"
    )


def show(load: float, found: Mapping[str, Figures]) -> None:
    """The table of these figures."""
    sys.stdout.flush()
    echo_table([COLUMNS, *rows(load, found)])


def say(text: str) -> None:
    """Print a line at once: a run takes long."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
