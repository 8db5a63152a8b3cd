"""The input of ``pod_tokens``: which program gets the token of which pod. Written before that program starts."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from topomend.sandbox import layout

PLAN_FILE = "pod-tokens.json"


@dataclass(frozen=True)
class Bearer:
    """A program that gets the token of a pod of this account, on ``node`` unless that is empty."""

    program: str
    namespace: str
    account: str
    node: str
    kubeconfig: str


@dataclass(frozen=True)
class Plan:
    """The API server (``authority`` is the file of its certificate), the administrator's token, and the bearers."""

    host: str
    port: int
    authority: str
    token: str
    bearers: tuple[Bearer, ...]

    def write(self, folder: Path) -> None:
        """Write the plan into the sandbox's folder."""
        layout.write_private(folder / PLAN_FILE, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        """Read the plan from the sandbox's folder."""
        content = json.loads((folder / PLAN_FILE).read_text())
        return cls(**{**content, "bearers": tuple(Bearer(**bearer) for bearer in content["bearers"])})
