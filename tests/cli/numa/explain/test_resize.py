"""Which file beside a pod's name asks about a resize of that pod."""

import pytest
from tests.builders import guaranteed_pod

from topomend.cli.numa.cluster.arguments.pod_argument import RequestedPod
from topomend.cli.numa.explain.resize import check_is_resize
from topomend.cli.output.failures import BadInput
from topomend.model.pods.scheduling import Placement


def of_file(shown: str) -> RequestedPod:
    return RequestedPod(guaranteed_pod(cpus=2), Placement(), {}, shown=shown)


@pytest.mark.parametrize("shown", ["Pod train", "Pod", "Deployment web"])
def test_a_pod_of_the_same_name_or_none_and_a_workload_s_template_are_sizes(shown: str) -> None:
    check_is_resize("train", of_file(shown), "larger.yaml")


def test_another_pod_is_no_size_of_this_one() -> None:
    with pytest.raises(BadInput, match=r"^-f other.yaml is Pod other, .* a resize of train: leave pod/train out"):
        check_is_resize("train", of_file("Pod other"), "other.yaml")
