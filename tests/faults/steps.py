"""Recognizes the step of the relaunch protocol that a write belongs to, and kills a client at a given step."""

import json
from typing import Any

from tests.faults.proxy import Write

from topomend.wire.group import RELAUNCH_FINALIZER

CLAIM, RECORD, COMMIT = "claim the pod", "create the record", "mark it Committed"
DELETE, UNCLAIM, CREATE = "delete the pod", "take the finalizer off", "create the replacement"
CREATED, LAUNCH, LAUNCHED = "mark it Created", "narrow and ungate", "mark it Launched"
UNPROTECT = "give the record back"

MAIN_LINE = (CLAIM, RECORD, COMMIT, DELETE, UNCLAIM, CREATE, CREATED, LAUNCH, LAUNCHED, UNPROTECT)
"""The writes of one relaunch that nothing disturbs."""

_MARKS = {"Committed": COMMIT, "Created": CREATED, "Launched": LAUNCHED}


def step_of(write: Write) -> str:
    """The step's name, one of ``MAIN_LINE``; another mark by its name; empty for what is none."""
    parts = write.path.split("?")[0].split("/")
    body: dict[str, Any] = json.loads(write.body) if write.body else {}
    match write.method, "pods" in parts, "relaunches" in parts:
        case "POST", True, _:
            return CREATE
        case "POST", _, True:
            return RECORD
        case "DELETE", True, _:
            return DELETE
        case "PATCH", True, _:
            return _patch_of_pod(body)
        case "PATCH", _, True:
            if "finalizers" in body.get("metadata", {}):
                return UNPROTECT
            step = str(body.get("status", {}).get("step", ""))
            return _MARKS.get(step, step)
    return ""


def _patch_of_pod(body: dict[str, Any]) -> str:
    if "spec" in body:
        return LAUNCH
    return CLAIM if RELAUNCH_FINALIZER in (body["metadata"].get("finalizers") or ()) else UNCLAIM
