"""The chart's README.md: how to use it, and a table of its values, which their schema and values.yaml describe."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from deploy.helm.schema import described

_HEAD = """# topomend

Explains pods that a kubelet refused for their NUMA topology, and gets them running on a node that admits them. The
chart installs the same objects as `kubectl apply -k deploy`; templates and this page are made by `make generate`.

```
helm install topomend deploy/chart --set image.repository=REGISTRY/topomend
helm test topomend
helm uninstall topomend   # drains first: ungates every pod, and finishes relaunches
```

- **Namespaces.** The operator is in the release's namespace, or in `topomend-system` where that is `default`; the
  agents are in `topomend-agent`, because they read the host. The chart creates and labels them, but for the release's
  own, which exists before it.
- **A private registry.** The secrets of `imagePullSecrets` must exist in both namespaces.
- **The first week.** With `mode=observe` nothing is changed ([how](../../docs/run/observe.md)).
- **Kinds.** An upgrade upgrades the CustomResourceDefinitions; an uninstallation leaves them, with `crds.keep`.
- **Rights.** Whoever installs it needs a cluster administrator's. The drain has rights of its own while it runs: to
  change, create and delete any pod and Relaunch, to delete what gates pods, and to update admission policies, by which
  topomend's own know an administrator.
- **GitOps.** No template looks anything up or is random. Tools that do not run helm's hooks do not drain: run
  `kubectl numa drain` before you delete the application ([uninstall](../../docs/run/uninstall.md)).
- **A misspelt value** is refused, and the error has the right name.
- Kubernetes 1.30 or newer; helm 3 or 4. [What topomend may do to pods](../../docs/run/effects.md).

## Values

| value | default | meaning |
|---|---|---|
"""


LONG = 60
"""Letters of a default from which on it is left to values.yaml."""


def readme(schema: Mapping[str, Any], values: str) -> str:
    """README.md for the schema of the values and the text of values.yaml."""
    comments = dict(described(values))
    rows = _values(schema, yaml.safe_load(values), "")
    return _HEAD + "".join(_row(path, default, comments.get(path, kind)) for path, default, kind in rows)


def _values(schema: Mapping[str, Any], defaults: Mapping[str, Any], at: str) -> Iterator[tuple[str, Any, str]]:
    """Path, default and Kubernetes' own type of each value."""
    for name, inner in schema["properties"].items():
        if name in defaults and "properties" in inner and defaults[name]:
            yield from _values(inner, defaults[name], f"{at}{name}.")
        elif name in defaults:
            yield at + name, defaults[name], _kind_of(inner)


def _kind_of(schema: Mapping[str, Any]) -> str:
    is_list = "items" in schema
    kind = (schema["items"] if is_list else schema).get("$ref", "").rpartition("/V1")[2]
    return kind and f"{'A list of' if is_list else ''} Kubernetes' {kind}".strip()


def _row(path: str, default: Any, meaning: str) -> str:
    text = default if isinstance(default, str) else json.dumps(default)
    shown = "(values.yaml)" if len(text) > LONG else f"`{text}`" if text else ""
    return f"| `{path}` | {shown} | {meaning} |\n"
