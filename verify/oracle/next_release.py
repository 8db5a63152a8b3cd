"""``python -m verify.oracle.next_release``: ask the kubelet that is not released its kept cases again.

Exits with 1 if an answer is another than the kept one, with 3 without an oracle.
"""

import sys

from verify.oracle.build import OracleNotBuilt, oracle_binary
from verify.oracle.kept import NEXT_KEPT, read_next
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.replay.gates import NEXT
from topomend.sandbox.failures import SandboxUnavailable


def main() -> int:
    """Ask, and name the cases with another answer."""
    try:
        binary = oracle_binary(NEXT)
    except (OracleNotBuilt, SandboxUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    changed = []
    with KubeletOracle(binary) as oracle:
        for path in NEXT_KEPT:
            case, answer = read_next(path)
            if oracle.ask(case) != answer:
                changed.append(path.stem)
    print(f"{NEXT}: {len(NEXT_KEPT) - len(changed)} of {len(NEXT_KEPT)} kept answers are given again")
    sys.stdout.writelines(f"another answer: {name}\n" for name in changed)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
