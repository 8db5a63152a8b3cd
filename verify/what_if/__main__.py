"""``python -m verify.what_if``: switches of policy and scope on real kubelets, beside what ``what-if`` predicts.

Prints the seed, the counts, and every switch that went otherwise. Exits with 1 if there is one.
"""

import argparse
import secrets
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from tests.clusters import agents_on, cluster_of
from verify.room.real import wait_for_agents
from verify.what_if.switches import Lane, Switch, specs


def main() -> int:
    """Carry out as many switches as the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m verify.what_if", description=__doc__)
    parser.add_argument("--switches", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="repeats a run (default: random)")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}: repeat with --seed {options.seed} --switches {options.switches}\n")
    switches = carried_out(options.seed, options.switches)
    faults = [switch.fault for switch in switches if switch.fault]
    for fault in faults:
        sys.stdout.write(f"FAULT {fault}\n")
    pods = sum(len(switch.pods) for switch in switches)
    reasons = sum((switch.reasons for switch in switches), Counter[str]())
    refused = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    sys.stdout.write(f"{len(switches)} switches of {pods} pods, refused: {refused}; {len(faults)} went otherwise\n")
    return 1 if faults else 0


def carried_out(seed: int, switches: int) -> list[Switch]:
    """So many switches on the nodes of a sandbox."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="topomend-what-if-")))
        cluster = stack.enter_context(cluster_of(specs()))
        stack.enter_context(agents_on(cluster, folder / "agents.log"))
        wait_for_agents(cluster)
        restarting = threading.Lock()
        lanes = [Lane(cluster, name, seed, restarting) for name in cluster.states]
        shares = [switches // len(lanes) + (number < switches % len(lanes)) for number in range(len(lanes))]
        with ThreadPoolExecutor(len(lanes)) as pool:
            return [each for found in pool.map(_of_lane, lanes, shares) for each in found]


def _of_lane(lane: Lane, switches: int) -> list[Switch]:
    done = []
    for switch in islice(lane.switches(), switches):
        done.append(switch)
        sys.stdout.write(f"{switch.node}: {len(done)} of {switches}{'  FAULT' * bool(switch.fault)}\n")
        sys.stdout.flush()
    return done


if __name__ == "__main__":
    sys.exit(main())
