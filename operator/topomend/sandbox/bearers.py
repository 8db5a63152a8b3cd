"""What ``pod_tokens`` is told: which program is to have the token of which pod. Written before it starts."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from topomend.sandbox import layout

PLAN_FILE = "pod-tokens.json"


@dataclass(frozen=True)
class Bearer:
    """A program that is to have the token of a pod of this account, on ``node`` unless that is empty."""

    program: str
    namespace: str
    account: str
    node: str
    kubeconfig: str


@dataclass(frozen=True)
class Plan:
    """The API server (``authority`` is the file of its certificate), its administrator's token, and who is served."""

    host: str
    port: int
    authority: str
    token: str
    bearers: tuple[Bearer, ...]

    def write(self, folder: Path) -> None:
        """Write it for the program."""
        layout.write_private(folder / PLAN_FILE, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        """What was written for the program."""
        content = json.loads((folder / PLAN_FILE).read_text())
        return cls(**{**content, "bearers": tuple(Bearer(**bearer) for bearer in content["bearers"])})
