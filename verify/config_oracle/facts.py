"""``python -m verify.config_oracle.facts``: write what releases know of the kubelet's configuration, as data.

The types of v1beta1 come from the module k8s.io/kubelet of each release, which builds in seconds. What needs the whole
kubelet comes from the oracle of the default release: the fields that have a default, and the flags with the field that
each overrides, which is seen by trying it.
"""

import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verify.config_oracle.build import CONFIGURATIONS, config_oracle_binary
from verify.oracle.build import MINIMUM_GO, run_module
from verify.oracle.kubelet_oracle import KubeletOracle

from topomend.model.nodes.kubelet import DEFAULT_VERSION

RELEASES = ("v1.30.14", "v1.31.13", "v1.32.6", "v1.33.5", "v1.34.4", "v1.35.5", "v1.36.3", "v1.37.2")
TARGET = Path("operator/topomend/discover/kubelet_config/fields.json")
HEAD = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
SOURCE = (
    "KubeletConfiguration v1beta1 of the releases named, by reflection: struct -> field -> type, or [type, first minor "
    "release, last one]. Written by python -m verify.config_oracle.facts."
)

Types = Mapping[str, Mapping[str, str]]

_SAMPLES = {
    "string": ("sample",), "bool": ("true", "false"), "int32": ("7",), "int64": ("7",), "duration": ("7s",),
    "stringSlice": ("sample",), "ip": ("10.9.8.7",), "mapStringString": ("a=b", "a<b"),
    "mapStringBool": ("AllAlpha=false",), "quantity": ("7Ki",), "colonSeparatedMultimapStringString": ("a:b",),
    "[]v1.Taint": ("a=b:NoSchedule",), "Level": ("7",), "pattern=N,...": ("a=7",),
}  # fmt: skip


def oracle_facts(version: str = DEFAULT_VERSION) -> dict[str, Any]:
    """What the oracle says of its own release."""
    binary = config_oracle_binary(version)
    done = subprocess.run([binary, "schema"], stdout=subprocess.PIPE, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    facts["types"] = {name: dict(fields) for name, fields in facts["types"].items()}
    with KubeletOracle(binary) as oracle:
        config = _config(oracle, []) or {}
        # The thresholds are the file's default, which a kubelet without a file has not.
        facts["defaulted"] = _names({name: value for name, value in config.items() if name != "evictionHard"})
        facts["flags"] = dict(_flags(oracle, facts["flags"]))
    return facts


def _config(oracle: KubeletOracle, flags: list[str]) -> dict[str, Any] | None:
    answer = oracle.ask({"file": base64.b64encode(HEAD.encode()).decode(), "flags": flags})
    config: dict[str, Any] | None = answer.get("config")
    return config


def _names(config: Any) -> Any:
    """The names of all members; true for a value that is no object."""
    return {name: _names(value) for name, value in config.items()} if isinstance(config, dict) else True


def _flags(oracle: KubeletOracle, types: Mapping[str, str]) -> Iterator[tuple[str, list[Any]]]:
    """Flag -> its type and the path of the field that it overrides."""
    before = _config(oracle, [])
    for name, kind in sorted(types.items()):
        for sample in _SAMPLES.get(kind, ()):
            after = _config(oracle, [f"--{name}={sample}"])
            changed = list(_changed(before, after)) if after else []
            if changed:
                separator = [sample[1]] if kind == "mapStringString" else []
                yield name, [kind, changed[0], *separator]
                break


def _changed(before: Any, after: Any, path: tuple[str, ...] = ()) -> Iterator[list[str]]:
    if not isinstance(after, dict) or not isinstance(before, dict) or (path and path[-1].startswith("eviction")):
        if before != after:
            yield list(path)
        return
    for name in sorted({*before, *after}):
        yield from _changed(before.get(name), after.get(name), (*path, name))


def types_of(version: str) -> Types:
    """The types of a release, from a program that needs the module k8s.io/kubelet alone."""
    schema = (CONFIGURATIONS.sources / "types.go").read_text()
    main = 'package main\n\nimport (\n\t"encoding/json"\n\t"os"\n)\n\n'
    main += "func main() { _ = json.NewEncoder(os.Stdout).Encode(schemaOfConfiguration()) }\n"
    module = f"module types\n\ngo {MINIMUM_GO}.0\n\nrequire k8s.io/kubelet v0.{version.removeprefix('v1.')}\n"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"types.go": schema, "main.go": main, "go.mod": module}.items():
            (Path(folder) / name).write_text(text)
        read = json.loads(run_module(Path(folder)))
    return {name: dict(fields) for name, fields in read.items()}


def joined(releases: Mapping[int, Types]) -> dict[str, dict[str, Any]]:
    """All fields of all releases, with the first and last minor release where that is not every one."""
    oldest, newest = min(releases), max(releases)
    result: dict[str, dict[str, Any]] = {}
    for struct in dict.fromkeys(name for types in releases.values() for name in types):
        fields: dict[str, Any] = {}
        for field in dict.fromkeys(name for types in releases.values() for name in types.get(struct, {})):
            within = {
                minor: types[struct][field] for minor, types in releases.items() if field in types.get(struct, {})
            }
            kinds = set(within.values())
            assert len(kinds) == 1, f"{struct}.{field} is {kinds}: the format has no place for that"
            first, last = min(within), max(within)
            always = (first, last) == (oldest, newest)
            fields[field] = kinds.pop() if always else [within[last], first, last]
        result[struct] = fields
    return result


def internal_names(facts: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Struct -> name of a field -> its other name in the kubelet's own type."""
    result = {}
    for struct, fields in facts["internal"].items():
        by_fold = {name.lower(): name for name, _ in fields} | {"resolvconf": "ResolverConfig"}
        own = {name: by_fold[name.lower()] for name in facts["types"][struct] if name.lower() in by_fold}
        result[struct] = {name: other for name, other in own.items() if name != other}
    return {struct: names for struct, names in result.items() if names}


def main() -> None:
    minors = {int(version.split(".")[1]): types_of(version) for version in RELEASES}
    facts = oracle_facts()
    content = {
        "source": f"{SOURCE} Releases: {', '.join(RELEASES)}.",
        "newest": max(minors),
        "types": joined(minors),
        "internal": internal_names(facts),
        "defaulted": facts["defaulted"],
        "flags": facts["flags"],
    }
    TARGET.write_text(json.dumps(content, indent=1) + "\n")
    sys.stdout.write(f"wrote {TARGET}\n")


if __name__ == "__main__":
    main()
