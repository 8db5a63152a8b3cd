"""``python -m verify.kubelet_tests.answers``: answer the questions of one test binary, JSON lines in and out.

A question has the ``function``, its ``arguments`` as ``kubelet/*.go`` sends them, and the feature ``gates`` in force.
TOPOMEND_VERSION is the release under test. What replay says of a kubelet that crashes or hangs becomes a panic there,
and so does a fault of replay itself.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from verify.kubelet_tests.answers import cpu, devices, memory, qos, topology

from topomend.model.nodes.kubelet import KubeletSettings
from topomend.replay.errors import KubeletBreaks
from topomend.replay.gates import Gates, read_gates

Answerer: TypeAlias = Callable[[dict[str, Any], Gates], Any]

ANSWERERS: Mapping[str, Answerer] = {
    **cpu.ANSWERERS,
    **memory.ANSWERERS,
    **devices.ANSWERERS,
    **topology.ANSWERERS,
    **qos.ANSWERERS,
}


def main() -> int:
    version = os.environ["TOPOMEND_VERSION"]
    for line in sys.stdin:
        print(json.dumps(reply(json.loads(line), version)), flush=True)
    return 0


def reply(question: dict[str, Any], version: str) -> dict[str, Any]:
    """The reply to one question: the answer, or with what the kubelet's function panics."""
    gates = read_gates(KubeletSettings(version=version, feature_gates=question["gates"]))
    try:
        return {"answer": ANSWERERS[question["function"]](question["arguments"], gates)}
    except KubeletBreaks as broken:
        return {"panic": f"{broken.reason}: {broken.why}"}
    except Exception:  # noqa: BLE001 - the test that asked fails with the fault
        return {"panic": traceback.format_exc()}


if __name__ == "__main__":
    sys.exit(main())
