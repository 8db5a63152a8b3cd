"""``python -m tests.contended``: the same random arrivals under the plain scheduler, under topomend and at best.

The machines are kubelets of mixed width, policy and scope in the sandbox; pods arrive and end at random. Beside each
other: refused pods, pods that never ran, time to running, CPUs free while somebody waited. What is best is told twice:
with ends that are noticed as late as the kubelets notice them, before which nobody can place pods, and, for the
targets, with ends that are noticed at once.
Ends with 1 where a target of the steered run is missed.
"""

import argparse
import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.contended.arrivals import MACHINES, Arrival, arrivals, free_cpus
from tests.contended.bound import all_knowing
from tests.contended.outcome import Outcome
from tests.contended.run import DidNotStart, Way, run

from topomend.cli.table import echo_table
from topomend.sandbox import SandboxError

PODS = 600
"""They take 23 minutes a way. The p99 of so many is told by the six that wait longest, and the bound's, too: in virtual
time it is 1.1 times the bound's on average, and by chance alone over 1.5 times in one run of seven."""

WAIT_P50 = 0.5
WAIT_P99_OF_BOUND = 1.5


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.contended", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--load", type=float, default=0.6, help="CPUs asked for on average, as a part of all CPUs")
    parser.add_argument("--seed", type=int, default=None, help="the arrivals (default: random ones)")
    parser.add_argument("--logs", type=Path, default=None, help="a folder for the logs of agents and operator")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}: repeat with --seed {seed} --pods {options.pods} --load {options.load}\n")
    assumed_pods = arrivals(Random(seed), options.pods, options.load)
    try:
        with tempfile.TemporaryDirectory(prefix="topomend-contended-") as folder:
            outcomes = list(_outcomes(assumed_pods, options.logs or Path(folder)))
    except (DidNotStart, SandboxError) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    _show(assumed_pods, outcomes)
    return _judge(outcomes)


def _outcomes(assumed_pods: Sequence[Arrival], folder: Path) -> Iterator[Outcome]:
    for way in Way:
        logs = folder / way.name.lower()
        logs.mkdir(parents=True, exist_ok=True)
        sys.stdout.write(f"{way.value}: {assumed_pods[-1].at:.0f} s of arrivals\n")
        sys.stdout.flush()
        yield (last := run(way, assumed_pods, logs))
    lag = last.lag()
    yield replace(all_knowing(assumed_pods, lag), way=f"best fit, ends noticed {lag:.1f} s late")
    yield all_knowing(assumed_pods)


def _show(assumed_pods: Sequence[Arrival], outcomes: Sequence[Outcome]) -> None:
    rows: list[tuple[str, ...]] = [
        ("", "REFUSED", "NEVER-RAN", "WAIT-P50", "WAIT-P90", "WAIT-P99", "CPUS-FREE-WHILE-SOMEBODY-WAITS")
    ]
    for each in outcomes:
        waits = [f"{each.wait(percent):.2f} s" for percent in (50, 90, 99)]
        rows.append((each.way, str(each.refused), str(each.never_ran), *waits, f"{each.stranded(free_cpus()):.1f}"))
    sys.stdout.write(f"{len(assumed_pods)} pods on {len(MACHINES)} kubelets with {free_cpus()} CPUs\n")
    sys.stdout.flush()
    echo_table(rows)
    for each in outcomes:
        if each.cost:
            sys.stdout.write(f"{each.way}: {each.cost}\n")


def _judge(outcomes: Sequence[Outcome]) -> int:
    steered = next(each for each in outcomes if each.way == Way.STEERED.value)
    bound = outcomes[-1].wait(99)
    targets = (
        ("steered, refused", steered.refused, 0),
        ("steered, never ran", steered.never_ran, 0),
        ("steered, wait p50", steered.wait(50), WAIT_P50),
        ("steered, wait p99", steered.wait(99), WAIT_P99_OF_BOUND * bound),
    )
    missed = 0
    for what, measured, most in targets:
        missed += measured > most
        sys.stdout.write(f"{'MISSED' if measured > most else 'met'}: {what} {measured:.2f}, at most {most:.2f}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
