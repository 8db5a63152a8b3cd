"""Random workloads on a real cluster: whatever runs under the plain scheduler runs steered, and nothing is refused."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.clusters import Cluster
from tests.seeds import SEED, cases
from verify.differential.run import arena, compare
from verify.differential.workloads import PRIORITIES, random_workload

CASES, DRAWN = cases(8, 20), 200
"""How many workloads run, and how many are drawn."""


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with arena(Path(tmp_path_factory.mktemp("differential"))) as cluster:
        yield cluster


@pytest.mark.cluster
@pytest.mark.timeout(1200)
def test_every_pod_that_runs_plain_runs_steered_and_none_is_refused(machines: Cluster) -> None:
    """Slow: real kubelets start and end some 80 pods. More of them: make differential."""
    print("seed", SEED)
    compared = compare(machines, SEED, range(CASES))
    assert compared.worse == (), f"seed {SEED}"
    assert compared.plain > CASES


def test_workloads_of_all_kinds_and_rules_come_up() -> None:
    batch = [random_workload(Random(f"{SEED} {number}"), number, "plain") for number in range(DRAWN)]
    kinds = {workload.kind for workload in batch}
    assert len(kinds) == 7
    text = str([workload.objects for workload in batch])
    for rule in ("podAntiAffinity", "podAffinity", "topologySpreadConstraints", "hostPort", "tolerations", *PRIORITIES):
        assert f"'{rule}'" in text


def test_a_workload_is_the_same_in_both_namespaces() -> None:
    for number in range(50):
        one, other = (
            random_workload(Random(f"{SEED} {number}"), number, namespace) for namespace in ("plain", "steered")
        )
        assert (one.kind, one.pods, len(one.objects)) == (other.kind, other.pods, len(other.objects))
        assert str(one.objects).replace("plain", "steered") == str(other.objects)
