from random import Random

from topomend.publish.pod_fingerprint import pod_fingerprint

PODS = [("default", "train-9"), ("kube-system", "dns-x7"), ("default", "web-1")]


def test_a_fingerprint_is_that_of_the_format() -> None:
    # xxhash64 of nothing with seed 0, which its specification names.
    assert pod_fingerprint([]) == "pfp0v001ef46db3751d8e999"
    assert pod_fingerprint(PODS) == "pfp0v001102ab9e67e565431"


def test_the_order_of_the_pods_does_not_matter_and_each_of_them_does() -> None:
    random = Random(1)
    shuffled = random.sample(PODS, len(PODS))
    assert pod_fingerprint(shuffled) == pod_fingerprint(PODS)
    assert len({pod_fingerprint(PODS[:count]) for count in range(4)}) == 4
    # A name is of its namespace.
    assert pod_fingerprint([("a", "b")]) != pod_fingerprint([("b", "a")])
