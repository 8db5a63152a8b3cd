"""Why a kubelet does not start, in its own sentences; the oracle of configurations compares them at random."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from tests.seeds import SEED

from topomend.replay.startup.configuration import Host
from topomend.replay.startup.defaults import with_defaults
from topomend.replay.startup.feature_gates import FeatureGates
from topomend.replay.startup.validation import MAX_SENTENCES, why_not_start

NEWEST = "v1.37.2"
SECOND = 1_000_000_000
EVICTION = {"memory.available": "100Mi"}
STATIC_MEMORY = {"memoryManagerPolicy": "Static", "evictionHard": EVICTION}


def reserved(*limits: Mapping[str, str]) -> dict[str, Any]:
    """A static Memory Manager with reservations on NUMA node 0."""
    return {**STATIC_MEMORY, "reservedMemory": [{"numaNode": 0, "limits": dict(limit)} for limit in limits]}


def test_a_kubelet_starts_with_its_defaults_on_every_release() -> None:
    for minor in range(30, 38):
        assert why_not_start({}, f"v1.{minor}.0") == ()


CASES: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "reserved CPUs beside reserved cgroups": (
        {"reservedSystemCPUs": "0", "systemReservedCgroup": "/system", "kubeReservedCgroup": "/runtime"},
        (
            (
                "invalid configuration: can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup "
                "(--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)"
            ),
        ),
    ),
    "memory reserved twice for a NUMA node": (
        reserved({"memory": "50Mi"}, {"memory": "50Mi"}),
        ('invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource "memory"',),
    ),
    "another resource reserved on a NUMA node": (
        reserved({"memory": "100Mi", "cpu": "1"}),
        (
            (
                'invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory '
                "hugepages-<HugePageSize>] is accepted"
            ),
        ),
    ),
    "nothing reserved on a NUMA node": (
        reserved({"memory": "100Mi"}, {"hugepages-2Mi": "0"}),
        ('invalid configuration: reserved memory may not be zero for NUMA node 0 and resource "hugepages-2Mi"',),
    ),
    "another resource reserved for the kubelet": (
        {**reserved({"memory": "100Mi"}), "kubeReserved": {"gpu": "1", "memory": "0"}},
        ('--kube-reserved value failed to parse: cannot reserve "gpu" resource',),
    ),
    "gates that are gone": (
        {"featureGates": {"CPUManager": True, "TopologyManager": True}},
        ("unrecognized feature gate: CPUManager", "unrecognized feature gate: TopologyManager"),
    ),
    "more reserved than kept": (
        reserved({"memory": "1Gi"}),
        (
            (
                'the total amount "1Gi" of type "memory" is not equal to the value "100Mi" determined by Node '
                "Allocatable feature"
            ),
        ),
    ),
    "huge pages reserved, which nothing keeps": (
        reserved({"memory": "100Mi", "hugepages-2Mi": "4Mi"}),
        (
            (
                'the total amount "4Mi" of type "hugepages-2Mi" is not equal to the value "0" determined by Node '
                "Allocatable feature"
            ),
        ),
    ),
    "a log format": ({"logging": {"format": "x"}}, ('logging.format: Invalid value: "x": Unsupported log format',)),
    "a soft threshold without its time": (
        {"evictionSoft": {"memory.available": "200Mi"}},
        ("grace period must be specified for the soft eviction threshold memory.available",),
    ),
    "images pulled at once and one by one": (
        {"maxParallelImagePulls": 5, "serializeImagePulls": True},
        (
            (
                "invalid configuration: maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls "
                "(--serialize-image-pulls) is set to false"
            ),
        ),
    ),
    "a taint with a time": (
        {"registerWithTaints": [{"key": "a/b/c", "effect": "Never", "timeAdded": "2024-01-02T03:04:05+02:00"}]},
        (
            "invalid taint: {a/b/c  Never 2024-01-02 01:04:05 +0000 UTC}",
            "invalid configuration: taint.TimeAdded is not nil",
        ),
    ),
    "no cipher for HTTP/2": (
        {"tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"]},
        (
            (
                "http2: TLSConfig.CipherSuites is missing an HTTP/2-required AES_128_GCM_SHA256 cipher (need at least "
                "one of TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)"
            ),
        ),
    ),
    "a port that is none": (
        {"tracing": {"endpoint": "dns://a:b"}},
        (('tracing.endpoint: Invalid value: "dns://a:b": parse "dns://a:b": invalid port ":b" after host'),),
    ),
    "several at once, in the kubelet's order": (
        {"maxPods": -1, "eventBurst": -2, "hairpinMode": "x"},
        (
            "invalid configuration: eventBurst (--event-burst) -2 must not be a negative number",
            "invalid configuration: maxPods (--max-pods) -1 must not be a negative number",
            (
                'invalid configuration: option "x" specified for hairpinMode (--hairpin-mode). Valid options are '
                '"none", "hairpin-veth" or "promiscuous-bridge"'
            ),
        ),
    ),
}


@pytest.mark.parametrize(("content", "sentences"), CASES.values(), ids=CASES)
def test_the_kubelet_says_why_it_does_not_start(content: dict[str, Any], sentences: tuple[str, ...]) -> None:
    assert why_not_start(content, NEWEST) == sentences


def test_a_list_of_reserved_cpus_hides_the_amounts() -> None:
    amounts = {"kubeReserved": {"cpu": "x"}, "systemReserved": {"cpu": "y"}}
    assert why_not_start({**amounts, "reservedSystemCPUs": "0"}, NEWEST) == ()
    assert "--kube-reserved value failed to parse" in why_not_start(amounts, NEWEST)[0]


def test_the_first_group_of_checks_that_fails_hides_the_others() -> None:
    everything = {"featureGates": {"Gone": True}, "logging": {"format": "x"}, "maxPods": -1, "tlsMinVersion": "x"}
    kept = [why_not_start(everything, NEWEST)]
    for name in ("featureGates", "logging", "maxPods"):
        del everything[name]
        kept.append(why_not_start(everything, NEWEST))
    assert [texts[0].split(":")[0] for texts in kept] == [
        "unrecognized feature gate",
        "logging.format",
        "invalid configuration",
        'unknown tls version "x"',
    ]


def test_a_percentage_is_judged_where_the_memory_is_known() -> None:
    content = {**reserved({"memory": "100Mi"}), "evictionHard": {"memory.available": "10%"}}
    assert why_not_start(content, NEWEST) == ()
    assert why_not_start(content, NEWEST, host=Host(memory=1 << 30)) == (
        (
            'the total amount "100Mi" of type "memory" is not equal to the value "107374184" determined by Node '
            "Allocatable feature"
        ),
    )


def test_cgroup_v1_ends_a_kubelet_by_default_since_1_35() -> None:
    host = Host(cgroup_v1=True)
    assert why_not_start({}, "v1.34.4", host=host) == ()
    assert why_not_start({}, "v1.35.0", host=host) == (
        (
            "kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be "
            "removed in a future release"
        ),
    )
    assert why_not_start({"failCgroupV1": False}, "v1.35.0", host=host) == ()


def test_a_default_stays_when_a_flag_turns_its_gate_off() -> None:
    filled = with_defaults({}, FeatureGates(37, {}))
    off = {"featureGates": {"KubeletEnsureSecretPulledImages": False}}
    assert why_not_start(off, NEWEST) == ()
    assert why_not_start(filled | off, NEWEST, has_defaults=True) == (
        (
            "invalid configuration: `imagePullCredentialsVerificationPolicy` must not be set if "
            "KubeletEnsureSecretPulledImages feature gate is not enabled"
        ),
    )


def test_releases_differ() -> None:
    content = {"cgroupsPerQOS": False, "enforceNodeAllocatable": ["pods"]}
    oldest, next_one = why_not_start(content, "v1.30.14"), why_not_start(content, "v1.31.14")
    assert "is not supported unless cgroupsPerQOS" in oldest[0]
    assert 'must be set to true when "pods" contained' in next_one[0]
    content = {"memoryThrottlingFactor": 0.8, "featureGates": {"MemoryQoS": False}}
    assert why_not_start(content, "v1.36.0") == ()
    assert why_not_start(content, NEWEST) == (
        "invalid configuration: memoryThrottlingFactor must not be set when MemoryQoS feature gate is disabled",
    )


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 70,
    0.5,
    "x",
    "9" * 5000,
    [],
    ["x", 1, None, {}],
    {},
    {"x": {"y": []}, "": None},
    [[]],
    "\ud800",
)


def test_odd_content_is_answered_and_never_raises() -> None:
    random = Random(SEED)
    names = [
        "featureGates", "logging", "registerWithTaints", "reservedMemory", "evictionHard", "kubeReserved", "tracing",
        "cpuCFSQuotaPeriod", "crashLoopBackOff", "reservedSystemCPUs", "podLogsDir", "memoryThrottlingFactor",
        "preloadedImagesVerificationAllowlist", "tlsCurvePreferences", "defaultPodSysctls", "qosReserved", "memorySwap",
        "containerLogMaxSize", "userNamespaces", "maxPods", "enforceNodeAllocatable", "evictionSoftGracePeriod",
        "allowedUnsafeSysctls", "memoryManagerPolicy",
    ]  # fmt: skip
    for _ in range(400):
        content = {name: random.choice(ODD) for name in random.sample(names, 4)}
        for inner in ("numaNode", "limits", "key", "timeAdded", "vmodule", "endpoint", "idsPerPod"):
            for name in ("reservedMemory", "registerWithTaints"):
                if random.random() < 0.3:
                    content[name] = [{inner: random.choice(ODD)}]
            for name in ("logging", "tracing", "userNamespaces"):
                if random.random() < 0.1:
                    content[name] = {inner: random.choice(ODD)}
        for version in (NEWEST, "v1.30.14", "x"):
            assert isinstance(why_not_start(content, version), tuple), content


def test_a_thousand_faults_are_as_many_as_a_person_reads() -> None:
    taints = [{"key": f"-{number}"} for number in range(100_000)]
    assert len(why_not_start({"registerWithTaints": taints}, NEWEST)) == MAX_SENTENCES


def test_a_zero_is_an_unset_field_until_defaults_are_filled_in() -> None:
    assert why_not_start({"syncFrequency": 0}, NEWEST) == ()
    filled = with_defaults({"syncFrequency": 0}, FeatureGates(37, {}))
    assert why_not_start({**filled, "syncFrequency": 0}, NEWEST, has_defaults=True) == ("invalid sync frequency 0",)


_INVALID = "invalid configuration: "
_ALLOWED = {"preloadedImagesVerificationAllowlist": ["registry.io/app"]}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"evictionHard": {"memory.available": "101%"}}, "must be <= 100%: 101%"),
        (
            {"evictionMinimumReclaim": {"memory.available": "0%"}},
            "minimum reclaim memory.available must be positive: 0%",
        ),
        (
            {"imageMinimumGCAge": SECOND, "imageMaximumGCAge": SECOND},
            f"{_INVALID}imageMaximumGCAge 1s must be greater than imageMinimumGCAge 1s",
        ),
        (_ALLOWED, "can't set `preloadedImagesVerificationAllowlist` if"),
        (
            {"cpuCFSQuotaPeriod": SECOND, "featureGates": {"CustomCPUCFSQuotaPeriod": False}},
            "requires feature gate CustomCPUCFSQuotaPeriod",
        ),
        ({"healthzPort": 65536}, "healthzPort (--healthz-port) 65536 must be between 1 and 65535, inclusive"),
        ({"runOnce": True}, "Runonce mode has been deprecated and should not be set"),
        ({"reservedSystemCPUs": "3-1"}, 'error: invalid range "3-1" (3 > 1)'),
        (
            {"shutdownGracePeriod": SECOND, "shutdownGracePeriodCriticalPods": 2 * SECOND},
            "must be <= shutdownGracePeriod",
        ),
        ({"userNamespaces": {"idsPerPod": 65537}}, "userNamespaces.idsPerPod must be a multiple of 65536"),
        (
            {
                "featureGates": {"KubeletCrashLoopBackOffMax": True},
                "crashLoopBackOff": {"maxContainerRestartPeriod": 301 * SECOND},
            },
            "must be set between 1s and 300s",
        ),
    ],
)
def test_a_value_beyond_its_edge_is_told(content: dict[str, Any], sentence: str) -> None:
    assert sentence in "; ".join(why_not_start(content, NEWEST))


def test_port_0_turns_healthz_off() -> None:
    assert why_not_start({"healthzPort": 0}, NEWEST) == ()
