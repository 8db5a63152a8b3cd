from tests.builders import guaranteed_pod
from tests.decide.test_plan import FRAGMENTED

from topomend.cli.numa.explain.refusal_table import refusal_table
from topomend.replay.admission import admit


def test_a_refused_merge_is_shown_with_what_was_requested_and_is_free_on_each_numa_node() -> None:
    verdict, _ = admit(FRAGMENTED, guaranteed_pod(cpus=3))
    assert refusal_table(verdict, "single-numa-node") == (
        "     asked  NUMA 0 free  NUMA 1 free",
        "cpu      3         1 no         2 no",
        "NUMA 0 lacks 2 cpu; NUMA 1 lacks 1 cpu",
        "single-numa-node refuses what is not one NUMA node",
    )


def test_an_admitted_pod_has_no_table() -> None:
    verdict, _ = admit(FRAGMENTED, guaranteed_pod())
    assert refusal_table(verdict, "single-numa-node") == ()
