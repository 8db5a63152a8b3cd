from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.discover.kubelet_config.test_kubelet_process import process
from tests.discover.test_kubelet_config import HEAD, config

from topomend.discover import kubelet_settings
from topomend.discover.kubelet_config import KubeletConfig
from topomend.discover.kubelet_settings import FLAGS_UNSEEN, VERSION_UNKNOWN, SettingsReader, WrittenConfig
from topomend.discover.kubelet_start import SECONDS
from topomend.kube.errors import APIError, Forbidden, Refused, Unanswered
from topomend.kube.kubelet_client import Configz
from topomend.model.nodes.kubelet import DEFAULT_VERSION, KubeletSettings, MemoryReservation


class Kubelet:
    """A kubelet's configz, and a clock."""

    def __init__(self, **fields: Any) -> None:
        self.fields, self.asked, self.now = fields, 0, 0.0
        self.error: APIError | None = None
        self.unverified = ""

    def __call__(self) -> Configz:
        self.asked += 1
        if self.error:
            raise self.error
        return Configz({"kubeletconfig": {**HEAD, **self.fields}}, self.unverified)

    def monotonic(self) -> float:
        return self.now


def with_flags(folder: Path, file: Path, *flags: str, version: str = DEFAULT_VERSION) -> KubeletConfig:
    """The settings where a kubelet of this version with these flags is seen."""
    process(folder / "proc", 7, "kubelet", f"--config={file}", *flags)
    (folder / "proc" / "7" / "root").unlink()
    (folder / "proc" / "7" / "root").symlink_to("/")
    return SettingsReader(WrittenConfig(file), proc=folder / "proc").read(version)


# The file and the flags


def test_where_no_process_is_seen_the_condition_says_that_flags_are_not_known(tmp_path: Path) -> None:
    kubelet_config = SettingsReader(
        WrittenConfig(config(tmp_path, cpuManagerPolicy="static")), proc=tmp_path / "proc"
    ).read(DEFAULT_VERSION)
    assert (kubelet_config.reason, kubelet_config.source, kubelet_config.remarks) == ("", "Read", (FLAGS_UNSEEN,))
    assert kubelet_config.settings.cpu_manager_policy == "static"


def test_every_flag_overrides_its_field(tmp_path: Path) -> None:
    file = config(
        tmp_path,
        topologyManagerPolicy="restricted",
        topologyManagerPolicyOptions={"max-allowable-numa-nodes": "9"},
        kubeReserved={"cpu": "1", "memory": "1Gi"},
        reservedMemory=[{"numaNode": 3, "limits": {"memory": "5Gi"}}],
        evictionHard={"memory.available": "1Gi"},
        featureGates={"CPUManagerPolicyBetaOptions": True, "DRAExtendedResource": True},
    )
    kubelet_config = with_flags(
        tmp_path,
        file,
        "--topology-manager-policy=single-numa-node",
        "--topology-manager-scope=pod",
        "--topology-manager-policy-options=prefer-closest-numa-nodes=true",
        "--cpu-manager-policy=static",
        "--cpu-manager-policy-options=full-pcpus-only=true",
        "--cpu-manager-policy-options=distribute-cpus-across-numa=false",
        "--memory-manager-policy",
        "Static",
        "--kube-reserved=cpu=2,memory=512Mi",
        "--system-reserved=cpu=500m",
        "--reserved-memory=0:memory=300Mi;1:memory=200Mi",
        "--reserved-memory=2:memory=112Mi",
        "--eviction-hard=memory.available<100Mi,nodefs.available<10%",
        "--feature-gates=CPUManagerPolicyBetaOptions=F,CPUManagerPolicyAlphaOptions=1",
    )
    assert kubelet_config.problems == ()
    settings = kubelet_config.settings
    assert (settings.topology_manager_policy, settings.topology_manager_scope) == ("single-numa-node", "pod")
    assert settings.topology_manager_policy_options == {"prefer-closest-numa-nodes": "true"}
    assert settings.cpu_manager_policy_options == {"full-pcpus-only": "true", "distribute-cpus-across-numa": "false"}
    assert settings.memory_manager_policy == "Static"
    assert settings.reserved_cpu_millis == 2500
    assert settings.reserved_memory == (
        MemoryReservation(0, "memory", 300 << 20),
        MemoryReservation(1, "memory", 200 << 20),
        MemoryReservation(2, "memory", 112 << 20),
    )
    assert settings.feature_gates == {
        "CPUManagerPolicyBetaOptions": False,
        "DRAExtendedResource": True,
        "CPUManagerPolicyAlphaOptions": True,
    }
    (remark,) = kubelet_config.remarks
    assert remark.startswith("flags on the kubelet's command line override topologyManagerPolicy, topologyManagerScope")
    assert "featureGates" in remark


def test_reserved_cpus_on_the_command_line_replace_those_of_the_file(tmp_path: Path) -> None:
    kubelet_config = with_flags(tmp_path, config(tmp_path, reservedSystemCPUs="0"), "--reserved-cpus=0-1")
    assert kubelet_config.settings.reserved_cpus == 0b11
    assert kubelet_config.remarks[0].endswith("override reservedSystemCPUs, kubeReserved and systemReserved")


def test_flags_that_change_nothing_are_not_worth_a_word(tmp_path: Path) -> None:
    file = config(tmp_path, cpuManagerPolicy="static")
    assert with_flags(tmp_path, file, "--cpu-manager-policy=static", "--node-ip=::").remarks == ()


def test_the_drop_ins_that_the_kubelet_names_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "1.conf").write_text(yaml.safe_dump({**HEAD, "cpuManagerPolicy": "static"}))
    kubelet_config = with_flags(tmp_path, config(tmp_path), f"--config-dir={folder}")
    assert kubelet_config.settings.cpu_manager_policy == "static"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--reserved-memory=all:memory=1Gi", "overridden by --reserved-memory with 'all:memory=1Gi'"),
        (
            "--reserved-memory=0:memory",
            "overridden by --reserved-memory with '0:memory', in which a limit is not RESOURCE=QUANTITY",
        ),
        ("--kube-reserved=cpu", "overridden by --kube-reserved with 'cpu', which is not KEY=VALUE"),
        ("--eviction-hard=memory.available=1Gi", "which is not KEY<VALUE"),
        ("--cpu-manager-policy=dynamic", "cpuManagerPolicy: 'dynamic' where one of none, static"),
        ("--feature-gates=PodLevelResources=maybe", 'parsing "maybe": invalid syntax'),
        ("--reserved-cpus=0-", 'reservedSystemCPUs (--reserved-cpus) 0-, error: strconv.Atoi: parsing "": invalid'),
    ],
)
def test_a_flag_with_which_no_kubelet_starts_is_named(tmp_path: Path, flag: str, words: str) -> None:
    kubelet_config = with_flags(tmp_path, config(tmp_path), flag)
    assert kubelet_config.reason in ("Unreadable", "Invalid")
    assert words in kubelet_config.problems[0]


# Drop-ins and flags without a file


def test_drop_ins_alone_are_merged_over_the_defaults(tmp_path: Path) -> None:
    """K3s and RKE2 start their kubelets so."""
    (tmp_path / "00-defaults.conf").write_text(yaml.safe_dump({**HEAD, "cpuManagerPolicy": "static"}))
    (tmp_path / "50-mine.conf").write_text(yaml.safe_dump({**HEAD, "topologyManagerPolicy": "restricted"}))
    kubelet_config = SettingsReader(WrittenConfig(drop_ins=tmp_path)).read(DEFAULT_VERSION)
    assert (kubelet_config.reason, kubelet_config.source, kubelet_config.remarks) == ("", "Read", (FLAGS_UNSEEN,))
    assert kubelet_config.settings.cpu_manager_policy == "static"
    assert kubelet_config.settings.topology_manager_policy == "restricted"


def flags_file(folder: Path, text: str) -> Path:
    path = folder / "kubelet"
    path.write_text(text)
    return path


def test_a_file_of_flags_alone_is_read_as_a_shell_does(tmp_path: Path) -> None:
    """MicroK8s' own, with the flags of an administrator below."""
    path = flags_file(
        tmp_path,
        """--root-dir=${SNAP_COMMON}/var/lib/kubelet
--fail-swap-on=false
--eviction-hard="memory.available<100Mi,nodefs.available<1Gi,imagefs.available<1Gi"
--node-labels="microk8s.io/cluster=true,node.kubernetes.io/microk8s-controlplane=microk8s-controlplane"
# --cpu-manager-policy=none
--cpu-manager-policy=static  # as the vendor asks
--topology-manager-policy single-numa-node
--system-reserved='cpu=1,memory=412Mi'
--memory-manager-policy=Static
--reserved-memory=0:memory=512Mi
""",
    )
    kubelet_config = SettingsReader(WrittenConfig(flags=path)).read(DEFAULT_VERSION)
    assert (kubelet_config.reason, kubelet_config.problems, kubelet_config.remarks) == ("", (), ())
    assert kubelet_config.settings.cpu_manager_policy == "static"
    assert kubelet_config.settings.topology_manager_policy == "single-numa-node"
    assert kubelet_config.settings.reserved_cpu_millis == 1000


def test_a_file_without_flags_says_that_all_is_as_by_default(tmp_path: Path) -> None:
    kubelet_config = SettingsReader(WrittenConfig(flags=flags_file(tmp_path, "# none\n"))).read(DEFAULT_VERSION)
    assert (kubelet_config.reason, kubelet_config.settings.cpu_manager_policy) == ("", "none")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "kubelet is not there"),
        ("--a='b", "kubelet does not contain flags: No closing quotation"),
        ("--config=/etc/kubelet.yaml", "name /etc/kubelet.yaml: give it with --kubelet-config"),
        ("--config-dir /etc/d", "name /etc/d: give it with --kubelet-config-dir"),
    ],
)
def test_flags_that_cannot_be_read_or_name_what_is_not_given_are_a_problem(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "kubelet" if text is None else flags_file(tmp_path, text)
    kubelet_config = SettingsReader(WrittenConfig(flags=path)).read(DEFAULT_VERSION)
    assert kubelet_config.reason == "Unreadable"
    assert words in kubelet_config.problems[0]


def test_flags_in_a_file_override_the_configuration_that_is_given_beside(tmp_path: Path) -> None:
    path = flags_file(tmp_path, f"--config={tmp_path}/config.yaml --cpu-manager-policy=static")
    files = WrittenConfig(config(tmp_path, topologyManagerScope="pod"), flags=path)
    settings = SettingsReader(files).read(DEFAULT_VERSION).settings
    assert (settings.topology_manager_scope, settings.cpu_manager_policy) == ("pod", "static")


# What the kubelet itself tells


def test_what_the_kubelet_runs_with_is_trusted() -> None:
    kubelet = Kubelet(cpuManagerPolicy="static", reservedSystemCPUs="0", evictionHard={"memory.available": "5%"})
    kubelet_config = SettingsReader(WrittenConfig(), configz=kubelet).read(DEFAULT_VERSION)
    assert (kubelet_config.reason, kubelet_config.source, kubelet_config.remarks) == ("", "ReadFromConfigz", ())
    assert kubelet_config.settings.cpu_manager_policy == "static"


def test_a_file_that_says_the_same_in_another_order_contradicts_nothing(tmp_path: Path) -> None:
    limits = {"memory": "1Gi", "hugepages-1Gi": "2Gi"}
    file = config(tmp_path, reservedMemory=[{"numaNode": 0, "limits": limits}])
    kubelet = Kubelet(reservedMemory=[{"numaNode": 0, "limits": dict(reversed(limits.items()))}])
    assert SettingsReader(WrittenConfig(file), configz=kubelet).read(DEFAULT_VERSION).source == "ReadFromConfigz"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (yaml.safe_dump({**HEAD, "cpuManagerPolicy": "none"}), "runs with another cpuManagerPolicy than its file says"),
        (
            yaml.safe_dump({**HEAD, "cpuManagerPolicy": "other"}),
            "the changed file is not in force: the kubelet's configuration: cpu",
        ),
        ("{", "the changed file is not in force: the kubelet's configuration"),
    ],
)
def test_a_file_that_contradicts_what_the_kubelet_runs_with_is_reported_and_not_trusted(
    tmp_path: Path, content: str, words: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    kubelet_config = SettingsReader(WrittenConfig(file), configz=Kubelet(cpuManagerPolicy="static")).read(
        DEFAULT_VERSION
    )
    assert (kubelet_config.reason, kubelet_config.source) == ("", "FileContradicted")
    after = kubelet_config.after_restart
    assert after is None or after.cpu_manager_policy == "none", "a kubelet that restarts reads the file"
    assert words in kubelet_config.remarks[0]
    assert kubelet_config.settings.cpu_manager_policy == "static"


@pytest.mark.parametrize(("version", "running", "restarted"), [("v1.33.5", True, None), ("v1.34.4", None, False)])
def test_a_running_kubelet_and_its_changed_file_have_the_gates_of_the_release(
    tmp_path: Path, version: str, running: bool | None, restarted: bool | None
) -> None:
    file = config(tmp_path, featureGates={"AllBeta": False})
    read = SettingsReader(WrittenConfig(file), configz=Kubelet(featureGates={"AllAlpha": True})).read(version)
    assert "another featureGates than its file says" in read.remarks[0]
    assert read.settings.feature_gates.get("PodLevelResources") is running
    assert read.after_restart is not None
    assert read.after_restart.feature_gates.get("PodLevelResources") is restarted


def test_all_beta_of_the_command_line_sets_what_the_file_does_not_name(tmp_path: Path) -> None:
    file = config(tmp_path, featureGates={"AllBeta": True, "CPUManagerPolicyOptions": True})
    flagged = with_flags(tmp_path, file, "--feature-gates=AllBeta=false", version="v1.31.14")
    assert flagged.settings.feature_gates["MemoryManager"] is False
    assert flagged.settings.feature_gates["CPUManagerPolicyOptions"] is True


def test_a_kubelet_that_does_not_answer_leaves_the_file(tmp_path: Path) -> None:
    kubelet = Kubelet()
    kubelet.error = Unanswered("nobody is there")
    kubelet_config = SettingsReader(WrittenConfig(config(tmp_path, cpuManagerPolicy="static")), configz=kubelet).read(
        DEFAULT_VERSION
    )
    assert (kubelet_config.reason, kubelet_config.source) == ("", "ConfigzUnavailable")
    assert kubelet_config.remarks == (
        "the kubelet's configz cannot be read: nobody is there; its file is read instead",
        FLAGS_UNSEEN,
    )
    assert kubelet_config.settings.cpu_manager_policy == "static"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Forbidden(403, "", "no"), "403: no: a kubelet before 1.33 wants nodes/proxy, a right that no agent has"),
        (Forbidden(401, "", "who"), "401: who: it accepts no tokens (authentication.webhook.enabled)"),
        (Refused(405, "", "off"), "405: off: its configuration disables configz (enableDebuggingHandlers)"),
        (Refused(500, "", "oh"), "the kubelet's configz cannot be read: 500: oh"),
    ],
)
def test_a_kubelet_that_refuses_is_reported_with_what_it_takes(error: APIError, words: str) -> None:
    kubelet = Kubelet()
    kubelet.error = error
    kubelet_config = SettingsReader(WrittenConfig(), configz=kubelet).read(DEFAULT_VERSION)
    assert kubelet_config.reason == "NotGiven"
    assert words in kubelet_config.problems[0]
    assert "docs/run/layouts.md" in kubelet_config.problems[1]


def test_a_kubelet_whose_certificate_proves_nothing_is_trusted_and_that_is_reported(tmp_path: Path) -> None:
    kubelet = Kubelet(cpuManagerPolicy="static")
    kubelet.unverified = "self-signed certificate"
    alone = SettingsReader(WrittenConfig(), configz=kubelet).read(DEFAULT_VERSION)
    assert (alone.reason, alone.source) == ("", "ReadFromConfigz")
    assert "was not verified (self-signed certificate)" in alone.remarks[0]
    assert "serverTLSBootstrap" in alone.remarks[0]
    assert "--kubelet-ca" in alone.remarks[0]
    beside = SettingsReader(WrittenConfig(config(tmp_path)), configz=kubelet).read(DEFAULT_VERSION)
    assert beside.source == "FileContradicted"
    assert len(beside.remarks) == 2


@pytest.mark.parametrize("answer", [None, [], "x", {"kubeletconfig": []}, {"kubeletconfig": {"kind": "Pod"}}])
def test_an_answer_that_is_no_configuration_is_a_problem(answer: object) -> None:
    kubelet_config = SettingsReader(WrittenConfig(), configz=lambda: Configz(answer)).read(DEFAULT_VERSION)
    assert kubelet_config.reason == "Unreadable"
    assert kubelet_config.problems[0].startswith("the kubelet's configz is not a KubeletConfiguration")


BEFORE_136 = {
    "enableServer": True,
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0-1",
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "container",
    "memoryManagerPolicy": "None",
    "evictionHard": {"memory.available": "100Mi"},
    "featureGates": {},
}
"""A kubelet's configz before 1.36, which names neither its kind nor its version (kubernetes#136044)."""


@pytest.mark.parametrize("head", [HEAD, {}], ids=["since 1.36", "before 1.36"])
@pytest.mark.parametrize("with_file", [True, False])
def test_configz_is_read_with_and_without_kind(tmp_path: Path, head: dict[str, str], *, with_file: bool) -> None:
    fields = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1", "topologyManagerPolicy": "restricted"}
    written = WrittenConfig(config(tmp_path, **fields) if with_file else None)
    answer = Configz({"kubeletconfig": head | BEFORE_136})
    kubelet_config = SettingsReader(written, configz=lambda: answer).read(DEFAULT_VERSION)
    assert (kubelet_config.reason, kubelet_config.source) == ("", "ReadFromConfigz")
    assert kubelet_config.settings.topology_manager_policy == "restricted"
    assert kubelet_config.settings.reserved_cpus == 0b11


OTHERS: list[object] = [
    None,
    [],
    {},
    {"kubeletconfig": {}},
    {"kubeletconfig": {"anything": 1}},
    {"kubeletconfig": BEFORE_136 | {"kind": "Pod", "apiVersion": "v1"}},
    {"kubeletconfig": BEFORE_136 | {"kind": "KubeletConfiguration"}},
    {"kubeletconfig": BEFORE_136 | HEAD | {"apiVersion": "kubelet.config.k8s.io/v2"}},
    {"kubeletconfig": BEFORE_136 | {"cpuManagerPolicy": 7}},
]


@pytest.mark.parametrize("answer", OTHERS)
def test_a_file_is_believed_where_configz_tells_no_configuration(tmp_path: Path, answer: object) -> None:
    file = config(tmp_path, cpuManagerPolicy="static")
    kubelet_config = SettingsReader(WrittenConfig(file), configz=lambda: Configz(answer)).read(DEFAULT_VERSION)
    assert (kubelet_config.reason, kubelet_config.source) == ("", "ConfigzUnavailable")
    assert kubelet_config.settings.cpu_manager_policy == "static"
    assert kubelet_config.remarks[0].startswith("the kubelet's conf")
    assert kubelet_config.remarks[0].endswith("; its file is read instead")


def test_where_neither_source_tells_the_settings_both_are_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kind: Pod\n")
    kubelet_config = SettingsReader(WrittenConfig(file), configz=lambda: Configz([])).read(DEFAULT_VERSION)
    assert kubelet_config.reason == "Unreadable"
    assert [problem.split(" is not ")[0] for problem in kubelet_config.problems] == [
        f"the kubelet's configuration {file}",
        "the kubelet's configz",
    ]


def test_what_to_do_where_no_source_tells_the_settings_depends_on_the_node() -> None:
    kubelet = Kubelet()
    kubelet.error = Forbidden(403, "", "Forbidden")
    reader = SettingsReader(WrittenConfig(), configz=kubelet, cure=lambda: "apply deploy/components/k3s")
    assert reader.read(DEFAULT_VERSION).problems[1].endswith(", or apply deploy/components/k3s")


def test_a_value_that_no_kubelet_is_known_to_have_is_published_as_it_is() -> None:
    kubelet_config = SettingsReader(WrittenConfig(), configz=Kubelet(topologyManagerPolicy="strict")).read(
        DEFAULT_VERSION
    )
    assert (kubelet_config.reason, kubelet_config.settings.topology_manager_policy) == ("Invalid", "strict")
    assert len(kubelet_config.problems) == 1


def test_an_odd_answer_of_a_kubelet_that_told_its_settings_before_changes_nothing(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    kubelet, answers = Kubelet(), [Configz({"kubeletconfig": BEFORE_136}), Configz("odd")]
    reader = SettingsReader(WrittenConfig(), configz=lambda: answers.pop(0), socket=socket, monotonic=kubelet.monotonic)
    first = reader.read(DEFAULT_VERSION)
    kubelet.now = kubelet_settings.RECHECK_SECONDS
    assert reader.read(DEFAULT_VERSION) is first
    assert not answers


# When the sources are asked again


def test_the_kubelet_is_asked_again_when_its_socket_is_new_or_time_has_passed(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(cpuManagerPolicy="none"), tmp_path / "kubelet.sock"
    socket.touch()
    reader = SettingsReader(WrittenConfig(), configz=kubelet, socket=socket, monotonic=kubelet.monotonic)
    first = reader.read(DEFAULT_VERSION)
    assert reader.read(DEFAULT_VERSION) is first
    assert kubelet.asked == 1
    kubelet.fields = {"cpuManagerPolicy": "static"}
    (tmp_path / "new").touch()
    (tmp_path / "new").rename(socket)
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "static"
    kubelet.fields = {"cpuManagerPolicy": "none"}
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "static"
    kubelet.now = kubelet_settings.RECHECK_SECONDS
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "none"
    assert kubelet.asked == 3


def test_an_equal_answer_is_the_very_same_object(tmp_path: Path) -> None:
    kubelet = Kubelet()
    reader = SettingsReader(WrittenConfig(config(tmp_path)), configz=kubelet, monotonic=kubelet.monotonic)
    first = reader.read(DEFAULT_VERSION)
    kubelet.now = 1000.0
    assert reader.read(DEFAULT_VERSION) is first
    assert kubelet.asked == 2


def test_a_kubelet_that_did_not_answer_is_asked_again_after_a_second_and_then_less_and_less() -> None:
    kubelet = Kubelet()
    kubelet.error = Unanswered("not yet")
    reader = SettingsReader(WrittenConfig(), configz=kubelet, monotonic=kubelet.monotonic)
    asked_at = []
    while kubelet.now < 200:
        before = kubelet.asked
        assert reader.read(DEFAULT_VERSION).reason == "NotGiven"
        if kubelet.asked > before:
            asked_at.append(kubelet.now)
        kubelet.now += 0.5
    assert asked_at == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    kubelet.error, kubelet.now = None, 243.0
    assert reader.read(DEFAULT_VERSION).source == "ReadFromConfigz"


def test_what_a_kubelet_answered_holds_until_it_starts_anew_even_if_it_does_not_answer(tmp_path: Path) -> None:
    """It takes settings only as it starts: an API server that is away for a moment makes nothing of that unknown."""
    kubelet, socket = Kubelet(cpuManagerPolicy="static"), tmp_path / "kubelet.sock"
    socket.touch()
    reader = SettingsReader(WrittenConfig(), configz=kubelet, socket=socket, monotonic=kubelet.monotonic)
    first = reader.read(DEFAULT_VERSION)
    kubelet.error, kubelet.now = Unanswered("away"), kubelet_settings.RECHECK_SECONDS
    assert reader.read(DEFAULT_VERSION) is first
    assert kubelet.asked == 2
    started_anew(socket)
    assert reader.read(DEFAULT_VERSION).reason == "KubeletStarting"
    kubelet.now += SECONDS
    assert reader.read(DEFAULT_VERSION).reason == "NotGiven"


def test_the_file_of_a_kubelet_that_has_just_started_counts_only_once_it_had_time_to_answer(tmp_path: Path) -> None:
    """Flags that cannot be seen override the file: the kubelet alone knows."""
    kubelet, socket = Kubelet(cpuManagerPolicy="static"), tmp_path / "kubelet.sock"
    socket.touch()
    reader = asked(config(tmp_path), kubelet, socket)
    before = reader.read(DEFAULT_VERSION)
    kubelet.error = Unanswered("not yet")
    started_anew(socket)
    starting = reader.read(DEFAULT_VERSION)
    assert (starting.reason, starting.settings) == ("KubeletStarting", before.settings)
    assert starting.problems[0].endswith("the kubelet has just started, and the settings that it had before are shown")
    while kubelet.now < SECONDS - 1.0:
        kubelet.now += 0.5
        assert reader.read(DEFAULT_VERSION) is starting
    kubelet.now = SECONDS
    late = reader.read(DEFAULT_VERSION)
    assert (late.reason, late.source, late.settings.cpu_manager_policy) == ("", "ConfigzUnavailable", "none")
    kubelet.error, kubelet.now = None, SECONDS + kubelet_settings.DELAYS.first
    assert reader.read(DEFAULT_VERSION).source == "FileContradicted"


def test_a_kubelet_that_has_just_started_is_asked_again_each_second(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(cpuManagerPolicy="static"), tmp_path / "kubelet.sock"
    socket.touch()
    reader = asked(config(tmp_path, cpuManagerPolicy="static"), kubelet, socket)
    before = reader.read(DEFAULT_VERSION)
    kubelet.error = Unanswered("not yet")
    started_anew(socket)
    for _ in range(4):
        assert reader.read(DEFAULT_VERSION).reason == "KubeletStarting"
        kubelet.now += kubelet_settings.STARTING_RECHECK_SECONDS
    assert kubelet.asked == 5
    kubelet.error = None
    assert reader.read(DEFAULT_VERSION) == before
    kubelet.error, kubelet.now = Unanswered("away"), kubelet.now + kubelet_settings.RECHECK_SECONDS
    assert reader.read(DEFAULT_VERSION) == before


def test_a_kubelet_that_has_just_started_and_says_what_nobody_knows_is_taken_at_its_word(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(), tmp_path / "kubelet.sock"
    socket.touch()
    reader = SettingsReader(WrittenConfig(), configz=kubelet, socket=socket, monotonic=kubelet.monotonic)
    assert not reader.read(DEFAULT_VERSION).reason
    kubelet.fields["topologyManagerPolicy"] = "strict"
    started_anew(socket)
    assert reader.read(DEFAULT_VERSION).reason == "Invalid"


def test_without_a_socket_nobody_knows_whether_it_is_the_same_kubelet() -> None:
    kubelet = Kubelet()
    reader = SettingsReader(WrittenConfig(), configz=kubelet, monotonic=kubelet.monotonic)
    reader.read(DEFAULT_VERSION)
    kubelet.error, kubelet.now = Unanswered("away"), kubelet_settings.RECHECK_SECONDS
    assert reader.read(DEFAULT_VERSION).reason == "NotGiven"


def test_a_changed_file_is_read_at_once(tmp_path: Path) -> None:
    reader = SettingsReader(WrittenConfig(config(tmp_path)), monotonic=lambda: 0.0)
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "none"
    config(tmp_path, cpuManagerPolicy="static")
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "static"


@pytest.mark.parametrize("how", ["renamed", "dropped in", "flagged"])
def test_a_configuration_that_is_replaced_is_noticed(tmp_path: Path, how: str) -> None:
    drop_ins = tmp_path / "d"
    drop_ins.mkdir()
    flags = flags_file(tmp_path, "")
    reader = SettingsReader(WrittenConfig(config(tmp_path), drop_ins, flags), monotonic=lambda: 0.0)
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "none"
    if how == "flagged":
        flags_file(tmp_path, "--cpu-manager-policy=static")
    else:
        new = tmp_path / "new"
        new.write_text(yaml.safe_dump({**HEAD, "cpuManagerPolicy": "static"}))
        new.rename(tmp_path / "config.yaml" if how == "renamed" else drop_ins / "1.conf")
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "static"


@pytest.mark.parametrize("asks", [False, True])
def test_a_file_that_changes_after_the_kubelets_start_counts_from_the_next_one(tmp_path: Path, asks: bool) -> None:
    """As on releases before 1.33, whose configz no agent may read."""
    kubelet, socket, file = Kubelet(), tmp_path / "kubelet.sock", config(tmp_path)
    kubelet.error = Forbidden(403, "", "no")
    socket.touch()
    configz = kubelet if asks else None
    reader = SettingsReader(WrittenConfig(file), configz=configz, socket=socket, monotonic=kubelet.monotonic)
    first = reader.read(DEFAULT_VERSION)
    config(tmp_path, cpuManagerPolicy="static", reservedSystemCPUs="0")
    changed = reader.read(DEFAULT_VERSION)
    assert changed.settings == first.settings
    assert changed.after_restart
    assert changed.after_restart.cpu_manager_policy == "static"
    contradicted = "the kubelet runs with another cpuManagerPolicy, "
    assert any(remark.startswith(contradicted) for remark in changed.remarks)
    config(tmp_path)
    assert reader.read(DEFAULT_VERSION) == first
    file.write_text("{")
    broken = reader.read(DEFAULT_VERSION)
    assert (broken.reason, broken.settings, broken.after_restart) == ("", first.settings, None)
    assert any(remark.startswith("the changed file is not in force: ") for remark in broken.remarks)
    config(tmp_path, cpuManagerPolicy="static", reservedSystemCPUs="0")
    started_anew(socket)
    after = reader.read(DEFAULT_VERSION)
    assert (after.settings, after.after_restart) == (changed.after_restart, None)
    assert (after.source, after.remarks) == (first.source, first.remarks)


def test_a_file_that_is_mended_without_a_start_is_read(tmp_path: Path) -> None:
    """It may not have been whole yet when it was first seen."""
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    (tmp_path / "config.yaml").write_text("{")
    reader = SettingsReader(WrittenConfig(tmp_path / "config.yaml"), socket=socket, monotonic=lambda: 0.0)
    assert reader.read(DEFAULT_VERSION).reason == "Unreadable"
    config(tmp_path, cpuManagerPolicy="static", reservedSystemCPUs="0")
    assert reader.read(DEFAULT_VERSION).settings.cpu_manager_policy == "static"


# What the kubelet's release makes of them

OF_131 = {"CPUManager": True}
"""Gates that kubelets know up to 1.32, and newer ones refuse to start with."""

OF_136 = {"PodLevelResourceManagers": True}
"""Gates that kubelets know since 1.36."""

NOT_IN_FORCE = (
    "the changed file is not in force: a kubelet with this configuration does not start: unrecognized feature"
)


def asked(file: Path, kubelet: Kubelet, socket: Path | None = None) -> SettingsReader:
    return SettingsReader(WrittenConfig(file), configz=kubelet, socket=socket, monotonic=kubelet.monotonic)


def started_anew(socket: Path) -> None:
    """Replace the socket as a kubelet does that starts."""
    (socket.parent / "new.sock").touch()
    (socket.parent / "new.sock").rename(socket)


@pytest.mark.parametrize(
    ("version", "gates"),
    [
        ("v1.30.14", OF_131),
        ("v1.31.13", OF_131),
        ("v1.32.6", OF_131),
        ("v1.35.5", {"MemoryManager": True, "DRAExtendedResource": True}),
        ("v1.36.3", OF_136),
        ("v1.37.2", OF_136),
    ],
)
def test_a_file_that_its_release_reads_and_runs_with_contradicts_nothing(
    tmp_path: Path, version: str, gates: dict[str, bool]
) -> None:
    read = asked(config(tmp_path, featureGates=gates), Kubelet(featureGates=gates)).read(version)
    assert (read.reason, read.source, read.remarks, read.after_restart) == ("", "ReadFromConfigz", (), None)
    assert read.settings.version == version


@pytest.mark.parametrize(
    ("version", "gates"), [("v1.33.5", OF_131), ("v1.37.2", OF_131), ("v1.30.14", OF_136), ("v1.35.5", OF_136)]
)
def test_a_file_with_which_its_release_does_not_start_is_not_in_force(
    tmp_path: Path, version: str, gates: dict[str, bool]
) -> None:
    read = asked(config(tmp_path, featureGates=gates, cpuManagerPolicy="static"), Kubelet()).read(version)
    assert (read.reason, read.source, read.after_restart) == ("", "FileContradicted", None)
    assert read.remarks[0] == f"{NOT_IN_FORCE} gate: {next(iter(gates))}"
    assert read.settings.cpu_manager_policy == "none"


@pytest.mark.parametrize(("version", "gates"), [("v1.31.13", OF_131), ("v1.37.2", OF_136)])
def test_a_changed_file_that_its_release_reads_tells_how_the_kubelet_would_restart(
    tmp_path: Path, version: str, gates: dict[str, bool]
) -> None:
    file = config(tmp_path, featureGates=gates, topologyManagerScope="pod")
    read = asked(file, Kubelet(featureGates=gates)).read(version)
    assert (read.source, len(read.remarks)) == ("FileContradicted", 1)
    assert "another topologyManagerScope than its file says" in read.remarks[0]
    assert read.after_restart is not None
    assert (read.after_restart.version, read.after_restart.topology_manager_scope) == (version, "pod")
    assert read.settings.topology_manager_scope == "container"


@pytest.mark.parametrize(("version", "restarted"), [("v1.30.14", "restricted"), ("v1.37.2", None)])
def test_what_a_restart_makes_of_a_drop_in_depends_on_the_release(
    tmp_path: Path, version: str, restarted: str | None
) -> None:
    """The newer kubelet refuses a drop-in of another version of the API."""
    folder = tmp_path / "conf.d"
    folder.mkdir()
    drop_in = {**HEAD, "apiVersion": "kubelet.config.k8s.io/v1", "topologyManagerPolicy": "restricted"}
    (folder / "1.conf").write_text(yaml.safe_dump(drop_in))
    read = SettingsReader(WrittenConfig(config(tmp_path), folder), configz=Kubelet()).read(version)
    assert read.source == "FileContradicted"
    assert read.settings.topology_manager_policy == "none"
    assert (read.after_restart and read.after_restart.topology_manager_policy) == restarted


def test_flags_are_seen_to_override_a_file_that_only_their_release_reads(tmp_path: Path) -> None:
    read = with_flags(
        tmp_path, config(tmp_path, featureGates=OF_131), "--cpu-manager-policy=static", version="v1.31.13"
    )
    assert (read.reason, read.problems) == ("", ())
    assert read.remarks == ("flags on the kubelet's command line override cpuManagerPolicy",)


def test_a_file_that_only_its_release_reads_is_read_where_configz_does_not_answer(tmp_path: Path) -> None:
    kubelet = Kubelet()
    kubelet.error = Unanswered("nobody is there")
    read = asked(config(tmp_path, featureGates=OF_131), kubelet).read("v1.31.13")
    assert (read.reason, read.problems, read.source) == ("", (), "ConfigzUnavailable")
    assert read.remarks == (
        "the kubelet's configz cannot be read: nobody is there; its file is read instead",
        FLAGS_UNSEEN,
    )


def test_a_file_that_its_release_refuses_is_named_with_the_configz_that_does_not_answer(tmp_path: Path) -> None:
    kubelet = Kubelet()
    kubelet.error = Unanswered("nobody is there")
    read = asked(config(tmp_path, featureGates=OF_136), kubelet).read("v1.35.5")
    assert (read.reason, read.settings.version) == ("Invalid", "v1.35.5")
    assert "unrecognized feature gate: PodLevelResourceManagers" in read.problems[0]
    assert read.problems[1] == "the kubelet's configz cannot be read: nobody is there"


@pytest.mark.parametrize("written", [WrittenConfig(), WrittenConfig(Path("none")), WrittenConfig(flags=Path("none"))])
def test_settings_that_cannot_be_read_are_still_those_of_the_known_version(written: WrittenConfig) -> None:
    kubelet = Kubelet()
    kubelet.error = Unanswered("nobody is there")
    read = SettingsReader(written, configz=kubelet).read("v1.31.13")
    assert read.reason
    assert read.settings == KubeletSettings("v1.31.13")


# A version that is not known, becomes known or changes


@pytest.mark.parametrize("gates", [{"AllBeta": True}, {"AllAlpha": False}])
def test_a_kubelet_of_unknown_version_is_read_as_the_one_that_is_assumed(
    tmp_path: Path, gates: dict[str, bool]
) -> None:
    file = config(tmp_path, featureGates=gates)
    unknown, assumed = (SettingsReader(WrittenConfig(file)).read(version) for version in (None, DEFAULT_VERSION))
    assert unknown.settings == assumed.settings
    assert unknown.settings.version == DEFAULT_VERSION
    assert unknown.remarks == (FLAGS_UNSEEN, VERSION_UNKNOWN)
    assert assumed.remarks == (FLAGS_UNSEEN,)


def test_once_the_version_is_known_the_file_is_judged_anew(tmp_path: Path) -> None:
    reader = asked(config(tmp_path, featureGates=OF_131), Kubelet(featureGates=OF_131))
    unknown = reader.read(None)
    assert unknown.source == "FileContradicted"
    assert unknown.remarks == (f"{NOT_IN_FORCE} gate: CPUManager", VERSION_UNKNOWN)
    known = reader.read("v1.31.13")
    assert (known.source, known.remarks, known.settings.version) == ("ReadFromConfigz", (), "v1.31.13")
    assert reader.read("v1.31.13") is known


def test_a_file_written_for_the_next_release_is_in_force_after_the_upgrade(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(), tmp_path / "kubelet.sock"
    socket.touch()
    reader = asked(config(tmp_path, featureGates=OF_136), kubelet, socket)
    before = reader.read("v1.35.5")
    assert (before.source, before.after_restart) == ("FileContradicted", None)
    kubelet.fields = {"featureGates": OF_136}
    started_anew(socket)
    assert reader.read("v1.35.5").source == "FileContradicted", "the Node still has the old version"
    after = reader.read("v1.36.3")
    assert (after.source, after.remarks, after.settings.version) == ("ReadFromConfigz", (), "v1.36.3")
    assert after.settings.feature_gates == OF_136


def test_a_file_left_from_the_last_release_would_not_start_the_upgraded_kubelet_again(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(featureGates=OF_131), tmp_path / "kubelet.sock"
    socket.touch()
    reader = asked(config(tmp_path, featureGates=OF_131), kubelet, socket)
    assert reader.read("v1.32.6").source == "ReadFromConfigz"
    kubelet.fields = {}
    started_anew(socket)
    after = reader.read("v1.33.5")
    assert (after.source, after.after_restart) == ("FileContradicted", None)
    assert after.remarks == (f"{NOT_IN_FORCE} gate: CPUManager",)


def test_what_a_kubelet_answered_is_read_anew_for_a_version_that_is_known_later(tmp_path: Path) -> None:
    kubelet, socket = Kubelet(featureGates={"AllAlpha": True}), tmp_path / "kubelet.sock"
    socket.touch()
    reader = asked(config(tmp_path, featureGates={"AllAlpha": True}), kubelet, socket)
    assert "PodLevelResources" not in reader.read("v1.34.4").settings.feature_gates
    kubelet.error = Unanswered("away")
    earlier = reader.read("v1.33.5")
    assert (earlier.source, earlier.remarks) == ("ReadFromConfigz", ())
    assert earlier.settings.feature_gates["PodLevelResources"] is True
