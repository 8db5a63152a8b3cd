"""Random configurations: files, drop-ins, links and flags, most of them nearly right.

Fields and their types are those of the release (``fields.json``), so that every field is tried with values of its type
and of others.
"""

import json
from base64 import b64encode
from random import Random
from typing import Any

import yaml
from verify.config_oracle import texts

from topomend.discover.kubelet_config.fields import ROOT, Types, flags

HEAD = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}

LIKELY = [
    "cpuManagerPolicy",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "memoryManagerPolicy",
    "reservedSystemCPUs",
    "kubeReserved",
    "systemReserved",
    "evictionHard",
    "reservedMemory",
    "featureGates",
    "cpuManagerPolicyOptions",
    "topologyManagerPolicyOptions",
    "mergeDefaultEvictionSettings",
    "evictionSoft",
    "syncFrequency",
    "maxPods",
    "authentication",
    "logging",
]
GATES = ("AllAlpha", "AllBeta", "CPUManagerPolicyAlphaOptions", "TopologyManagerPolicyAlphaOptions", "NodeSwap")
STRINGS = [
    "none",
    "static",
    "Static",
    "None",
    "restricted",
    "best-effort",
    "single-numa-node",
    "pod",
    "container",
    "0",
    "0-3",
    "0,2",
    "0-1,4",
    "1-0",
    "0,",
    "1-",
    "+1",
    "-1",
    "1--2",
    "a",
    "10s",
    "1m",
    "0",
    "1.5h",
    "100ms",
    "1h1m",
    "1d",
    "5",
    "-5s",
    ".5s",
    "1.s",
    "9223372036854775807ns",
    "9223372036854775808ns",
    "1Gi",
    "100m",
    "10%",
    "text",
    "json",
    "/var/x",
    "true",
    "false",
    "yes",
    "null",
    "~",
    "1e3",
    "0x10",
    "1_000",
    "é",
    "-",
    "#a",
]
STRINGS += ["", " ", "0, 1", "0-1\t", "0\n", "5 s"]
QUANTITIES = [
    "1Gi",
    "100Mi",
    "0",
    "1",
    "1.5Gi",
    "1e3",
    "1E3",
    "1E",
    "100m",
    "0.1m",
    "1n",
    "1k",
    "1K",
    "1Ki",
    "5e-3",
    "-1",
    "+1",
    ".5",
    "1.",
    "1Gib",
    "1gi",
    "9E",
    "10Ei",
    "1e19",
    "lots",
    "1e",
]
KEYS = [
    "memory.available",
    "nodefs.available",
    "imagefs.available",
    "cpu",
    "memory",
    "ephemeral-storage",
    "hugepages-2Mi",
    "full-pcpus-only",
    "a",
    "1",
    "true",
]


RESERVED_MEMORY = [
    "0:memory=1Gi",
    "0:memory=1Gi;1:memory=2Gi,hugepages-2Mi=4Mi",
    "0",
    "0:cpu=1",
    "0:memory=x",
    "a:memory=1",
    "-1:memory=1",
    "+1:memory=1",
    "0:memory=1;",
    "0:memory=1=2",
    "0:",
    "0:memory=1:2",
    " 0:memory=1",
    "0:memory= 1",
]


class Generator:
    """Makes the configurations of one release."""

    def __init__(self, random: Random, types: Types) -> None:
        self._random, self._types = random, types

    def case(self) -> dict[str, Any]:
        """A case for the oracle; contents are base64."""
        random = self._random
        given: dict[str, Any] = {}
        if random.random() < 0.93:
            given["file"] = encoded(self._text(in_drop_in=False))
        if random.random() < 0.45 or not given:
            names = random.sample(
                ["10.conf", "20.conf", "a/5.conf", "a.conf", "15.CONF", "x.yaml", ".conf", "b"], random.randrange(4)
            )
            given["dropIns"] = {name: encoded(self._text(in_drop_in=True)) for name in names}
            if random.random() < 0.1:
                given["links"] = {
                    random.choice(("l.conf", "m.conf", "n")): random.choice(("10.conf", "a", "../kubelet.yaml", "no"))
                }
        if random.random() < 0.2:
            given["flags"] = [self._flag() for _ in range(random.randrange(1, 4))]
        return given

    def _text(self, *, in_drop_in: bool) -> bytes:
        random = self._random
        content: dict[str, Any] = self._struct(ROOT, random.randrange(0, 6), in_drop_in=in_drop_in)
        head: dict[str, Any] = dict(HEAD)
        if random.random() < 0.04:
            key = random.choice(("kind", "apiVersion"))
            head[random.choice((key, key.upper(), key.capitalize()))] = random.choice(
                ("KubeletConfiguration", "Pod", HEAD[key], "", "a/b/c", 1)
            )
            if random.random() < 0.5:
                head.pop(key, None)
        items = [*head.items(), *content.items()]
        random.shuffle(items)
        text = self._written(dict(items))
        for _ in range(random.choice((0, 0, 0, 0, 0, 1, 2))):
            text = texts.mutated(random, text)
        return text.encode(errors="surrogatepass")

    def _written(self, content: dict[str, Any]) -> str:
        random = self._random
        style = random.random()
        if style < 0.25:
            text = json.dumps(content, indent=random.choice((None, 2, "\t")))
            return self._repeated(text) if random.random() < 0.2 else text
        if style < 0.8:
            text = yaml.safe_dump(
                content, sort_keys=False, default_flow_style=random.choice((False, None)), allow_unicode=True
            )
        else:
            text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in content.items())
        if random.random() < 0.2:
            lines = text.splitlines(keepends=True)
            at = random.randrange(len(lines))
            lines[at] = lines[at].replace(": ", random.choice((":\t", ": \t", ":  ")), 1)
            text = "".join(lines)
        if random.random() < 0.1:
            text += f"{random.choice(LIKELY)}: {texts.flow(random, 2)}\n"
        return (
            random.choice(("", "", "", "---\n", "# c\n"))
            + text
            + random.choice(("", "", "", "---\n", "---\na: b\n", "...\n"))
        )

    def _repeated(self, text: str) -> str:
        """JSON with a member that comes twice."""
        random = self._random
        name = random.choice(LIKELY)
        inner = {name: self._value(self._types[ROOT].get(name, "string"), name)}
        return text.rstrip()[:-1] + ", " + json.dumps(inner)[1:]

    def _struct(self, struct: str, count: int, *, in_drop_in: bool = False) -> dict[str, Any]:
        random = self._random
        known = list(self._types[struct])
        result: dict[str, Any] = {}
        for _ in range(count):
            likely = [name for name in LIKELY if name in known]
            name = random.choice(likely) if likely and random.random() < 0.6 else random.choice(known)
            if name in ("kind", "apiVersion"):
                continue
            value = self._value(self._types[struct][name], name, in_drop_in=in_drop_in)
            if random.random() < (0.15 if in_drop_in else 0.04):
                name = self._recased(name)
            result[name] = value
        return result

    def _recased(self, name: str) -> str:
        random = self._random
        at = random.randrange(len(name))
        return random.choice(
            (name.lower(), name.upper(), name[0].upper() + name[1:], name[:at] + name[at].swapcase() + name[at + 1 :],
             name.replace("s", "\u017f").replace("k", "\u212a"), name + "s", name[:-1])
        )  # fmt: skip

    def _value(self, kind: str, name: str, *, in_drop_in: bool = False) -> Any:
        random = self._random
        if random.random() < 0.01:
            return random.choice((None, True, False, 0, 1.5, "a", [], {}, [1], {"a": 1}, 1 << 40, -1, 1e30, 2.0))
        if kind.startswith("*"):
            return self._value(kind[1:], name, in_drop_in=in_drop_in)
        if kind.startswith("[]"):
            return [self._value(kind[2:], name, in_drop_in=in_drop_in) for _ in range(random.randrange(4))]
        if name == "featureGates":
            return {gate: random.random() < 0.5 for gate in random.sample(GATES, random.randrange(3))}
        if kind.startswith("map["):
            inner = kind.partition("]")[2]
            return {random.choice(KEYS): self._value(inner, name) for _ in range(random.randrange(3))}
        if kind in self._types:
            return self._struct(kind, random.randrange(4), in_drop_in=in_drop_in)
        return self._scalar(kind)

    def _scalar(self, kind: str) -> Any:
        random = self._random
        if kind == "bool":
            return random.random() < 0.5
        if kind in ("int32", "int64", "uint32"):
            if random.random() < 0.9:
                return random.choice((1, 2, 5, 60, 110))
            return random.choice((0, 1, 2, 5, 110, -1, 2147483647, 2147483648, 5000000000, 1 << 63))
        if kind == "float64":
            return random.choice((0.5, 1, 0, 0.9, 1e-9, 1e22))
        if kind.startswith("resource"):
            if random.random() < 0.8:
                return random.choice(("1Gi", "100Mi", "1.5Gi", "1e3", "0.1m", "1n", "10Ei", "E", "5e-3", "2k", 1024))
            return random.choice((*QUANTITIES, 1, 1024, 0.5))
        if kind.startswith("v1."):
            if random.random() < 0.9:
                return random.choice(("10s", "1m30s", "1h1m", ".5s", "100ms", "0s"))
            return random.choice(("10s", "1m", "1m30s", "0s", "0", "100ms", *STRINGS, 5))
        return random.choice(STRINGS)

    def _flag(self) -> str:
        random = self._random
        if random.random() < 0.1:
            return f"--reserved-memory={random.choice(RESERVED_MEMORY)}"
        tried = [entry for entry in sorted(flags().items()) if entry[1][1][0] in self._types[ROOT]]
        name, (kind, _, separator) = random.choice([entry for entry in tried if "split-stream" not in entry[0]])
        value = {
            "bool": random.choice(("true", "false", "1", "T")),
            "int32": random.choice(("5", "7", "0", "0x10", "1_0", "a", "3000000000")),
            "int64": random.choice(("5", "7", "0", "-1", "1e3")),
            "duration": random.choice(("10s", "1m", "0", "0s", "5")),
            "ip": random.choice(("10.0.0.1", "::1", "", "010.0.0.1", "1.2.3", "fe80::1%a", "x")),
            "mapStringString": random.choice((f"a{separator}b", f"a{separator}b, c {separator} d", "a", "")),
            "mapStringBool": random.choice(("AllAlpha=false", "AllBeta=true,NodeSwap=false", "AllAlpha=x")),
            "quantity": random.choice(("1Ki", "0", "x", "1.5")),
            "Level": random.choice(("5", "0", "-1", "2147483647", "2147483648", "0x1")),
            "pattern=N,...": random.choice(("a=5", "a=5,b=1,", "", "a", "a=b", "a=2147483648")),
            "colonSeparatedMultimapStringString": random.choice(("a:b", "a:b,a: c ,b:d", "", "a", ":")),
            "[]v1.Taint": random.choice(
                (
                    "a=b:NoSchedule",
                    "a:NoExecute,b=:PreferNoSchedule",
                    "a",
                    "a-",
                    "a=b:NoSchedule-",
                    "a=b:X",
                    "",
                    "a:NoSchedule,a=b:NoSchedule",
                    "a=b=c:NoSchedule",
                    "a/b/c:NoSchedule",
                    "é:NoSchedule",
                )
            ),
            "stringSlice": random.choice(("a", "a,b", '"a,b",c', "")),
        }.get(kind, random.choice(("none", "static", "0-1", "/a", "")))
        return f"--{name}={value}"


def encoded(text: bytes) -> str:
    """The content of a file in a case."""
    return b64encode(text).decode()
