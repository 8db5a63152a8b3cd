"""The input of ``pod_tokens``: which program runs in the place of which pod. Written before that program starts."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from topomend.sandbox import layout

PLAN_FILE = "pod-tokens.json"


@dataclass(frozen=True)
class Bearer:
    """A program that runs in the place of a pod of this account, on ``node`` unless that is empty.

    ``kubeconfig`` and ``launch`` are the files that it starts with. ``address`` stands for the pod's IP. ``replaced``
    are the pod's flags that it starts without, ``added`` those that it gets beside.
    """

    program: str
    namespace: str
    account: str
    node: str
    kubeconfig: str
    launch: str = ""
    address: str = ""
    replaced: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The API server (``authority`` is the file of its certificate), the administrator's token, and the bearers.

    ``adapted`` are parts of objects by their path, which the sandbox's own field manager applies where they exist.
    """

    host: str
    port: int
    authority: str
    token: str
    bearers: tuple[Bearer, ...]
    adapted: Mapping[str, Mapping[str, Any]]

    def write(self, folder: Path) -> None:
        """Write the plan into the sandbox's folder."""
        layout.write_private(folder / PLAN_FILE, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        """Read the plan from the sandbox's folder."""
        content = json.loads((folder / PLAN_FILE).read_text())
        return cls(**{**content, "bearers": tuple(map(_bearer, content["bearers"]))})


def _bearer(content: Mapping[str, Any]) -> Bearer:
    bearer = Bearer(**content)
    return replace(bearer, replaced=tuple(bearer.replaced), added=tuple(bearer.added))
