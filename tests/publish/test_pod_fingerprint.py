"""Fingerprints are those of the library that schedulers use, github.com/k8stopologyawareschedwg/podfingerprint."""

from pathlib import Path
from random import Random

import pytest

from topomend.publish.pod_fingerprint import pod_fingerprint


def pods_of(*lines: str) -> list[tuple[str, str]]:
    """The pods of lines such as ``namespace pod-1 pod-2``."""
    words = [line.split() for line in lines if not line.startswith("#")]
    return [(namespace, name) for namespace, *names in words for name in names]


OPENSHIFT = pods_of(*(Path(__file__).parent / "fingerprinted_pods.txt").read_text().splitlines())
THREE = pods_of("production jaeger-dpgjk nginx-rt684 envoy-g9m22")
TEN = pods_of(
    "analytics controller-69dkj",
    "kube-public subscriber-tq6v7 transformer-hfbng validator-c6pn5",
    "kube-system proxy-wszrd",
    "middleware processor-jkrl4",
    "network gateway-vsll5 importer-kzdfr importer-q5vt9",
    "staging prometheus-bwgbn",
)
"""Upstream's testdata/compat-tiny-3pods-1ns and compat-small-10pods-3ns, with their .sign files."""


@pytest.mark.parametrize(
    ("pods", "count", "fingerprint"),
    [
        ([], 0, "pfp0v001ef46db3751d8e999"),  # xxhash64 of nothing with seed 0, as its specification has it
        (THREE, 3, "pfp0v001607b76a0e9d3aeb4"),
        (TEN, 10, "pfp0v001567144e4a561bb5a"),
        (OPENSHIFT, 259, "pfp0v001e477a4e3b2fc0ec6"),
    ],
    ids=["no pod", "three pods", "ten pods", "a whole cluster"],
)
def test_a_fingerprint_is_the_one_that_upstream_computes(
    pods: list[tuple[str, str]], count: int, fingerprint: str
) -> None:
    assert len(pods) == count
    assert pod_fingerprint(pods) == fingerprint


def test_the_order_of_the_pods_does_not_matter() -> None:
    assert pod_fingerprint(Random(1).sample(OPENSHIFT, len(OPENSHIFT))) == pod_fingerprint(OPENSHIFT)


def test_every_pod_changes_the_fingerprint() -> None:
    assert len({pod_fingerprint(TEN[:count]) for count in range(len(TEN) + 1)}) == len(TEN) + 1


def test_a_pod_name_counts_only_in_its_namespace() -> None:
    assert pod_fingerprint([("a", "b")]) != pod_fingerprint([("b", "a")])
