"""A NodeResourceTopology as schedulers read it: a Go program of the scheduler plugin's own packages, in ``reader/``.

The plugin is NodeResourceTopologyMatch of sigs.k8s.io/scheduler-plugins, by its newest tag. That reads no placements of
containers yet; the module that its main branch reads them by, numaplacement, is not in the Go proxy. Neither is KAI.
What both said when they were built by hand: docs/contribute/readers-tried.md.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verify.oracle.build import Program, oracle_binary

_FOLDER = Path(__file__).parent / "reader"
READER = Program("zone-reader", _FOLDER, _FOLDER, ())


def read_by_schedulers(content: Mapping[str, Any]) -> dict[str, Any]:
    """Policy, scope, the greatest number of NUMA nodes, and the zones with costs and amounts, as whole units or bytes.

    Raises CalledProcessError for an object that the plugin does not take, OracleNotBuilt, SandboxUnavailable.
    """
    done = subprocess.run(
        [str(oracle_binary(program=READER))], input=json.dumps(content), text=True, capture_output=True, check=True
    )
    read: dict[str, Any] = json.loads(done.stdout)
    return read
