"""The total requests of a pod."""

from dataclasses import replace

from topomend.model.pods.pod import Container, ContainerKind, Pod, Resources, requests_of


def test_init_containers_run_beside_earlier_sidecars_and_before_the_rest() -> None:
    def container(kind: ContainerKind, cpus: int) -> Container:
        return Container(f"{kind.value}-{cpus}", kind, Resources({"cpu": cpus * 1000}, {}))

    containers = (
        container(ContainerKind.INIT, 5),
        container(ContainerKind.SIDECAR, 1),
        container(ContainerKind.INIT, 6),
        container(ContainerKind.APP, 2),
        container(ContainerKind.APP, 3),
    )
    assert requests_of(Pod("ns", "p", "1", containers)) == {"cpu": 7000}
    assert requests_of(Pod("ns", "p", "1", containers[3:])) == {"cpu": 5000}
    whole = Pod("ns", "p", "1", containers, resources=Resources({"cpu": 9000}, {}))
    assert requests_of(whole) == {"cpu": 9000}


def test_what_a_claim_takes_counts_unless_the_pod_says_what_it_takes_in_all_and_overhead_always_does() -> None:
    containers = (Container("main", ContainerKind.APP, Resources({"cpu": 2000}, {})),)
    pod = Pod("ns", "p", "1", containers, overhead={"cpu": 250}, claimed={"cpu": 3000, "memory": 5000})
    assert requests_of(pod) == {"cpu": 5250, "memory": 5000}
    assert requests_of(replace(pod, resources=Resources({"cpu": 4000}, {}))) == {"cpu": 4250, "memory": 5000}
