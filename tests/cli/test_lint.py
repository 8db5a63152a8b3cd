"""A configuration is judged on a machine: verdict, corrected block, exit codes, and bad input in one line."""

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from topomend.cli.main import main
from topomend.model.shapes.shape import parse_shape
from topomend.sandbox.node.machine_files import write_machine

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
MACHINE = "numa:2 cores:4 threads:2 memory:16Gi"
PRESET = """topologyManagerPolicy: restricted
topologyManagerScope: pod
cpuManagerPolicy: static
reservedSystemCPUs: "0,8"
memoryManagerPolicy: Static
kubeReserved: {memory: 1229Mi}
evictionHard: {memory.available: 100Mi}
reservedMemory:
- numaNode: 0
  limits: {memory: SIZE}
"""


def run(text: str, *arguments: str, machine: str = MACHINE) -> Result:
    return CliRunner().invoke(main, ["lint", "-", "--machine", machine, *arguments], input=text)


def test_a_sound_configuration_starts_and_exits_with_0() -> None:
    result = run(HEAD + PRESET.replace("SIZE", "1329Mi"))
    assert result.output == (
        "A kubelet v1.37.2 starts with stdin on this machine, as far as both say.\nNothing is wrong: 15 checks.\n"
    )
    assert result.exit_code == 0


def test_a_sum_that_is_wrong_is_corrected_to_the_byte_and_then_starts() -> None:
    wrong = run(HEAD + PRESET.replace("SIZE", "1229Mi"))
    assert wrong.exit_code == 1
    assert wrong.output.startswith("A kubelet v1.37.2 does not start with stdin on this machine")
    assert 'the total amount "1229Mi" of type "memory" is not equal to the value "1329Mi" determined' in wrong.output
    block = wrong.output.partition("\n\n")[2]
    assert yaml.safe_load(block) == {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1329Mi"}}]}
    assert run(HEAD + PRESET.partition("reservedMemory")[0] + block).exit_code == 0


def test_a_share_of_the_machines_memory_is_corrected_for_this_machine() -> None:
    text = HEAD + "memoryManagerPolicy: Static\nevictionHard: {memory.available: 5%}\n"
    corrected = json.loads(run(text, "-o", "json").output)["reservedMemory"]
    right = json.loads(run(text + json.dumps({"reservedMemory": corrected})[1:-1], "-o", "json").output)
    assert (right["starts"], right["reservedMemory"]) == (True, None)
    assert [each["code"] for each in right["problems"]] == ["TM410", "TM404"]


def test_a_note_alone_exits_with_0_and_a_warning_with_1() -> None:
    assert run(HEAD).exit_code == 0
    assert "TM404" in run(HEAD).output
    warned = run(HEAD + "topologyMangerScope: pod\n")
    assert warned.exit_code == 1
    assert "did you mean topologyManagerScope?" in warned.output


def test_programs_read_verdict_findings_and_what_was_not_looked_at() -> None:
    document = yaml.safe_load(run(HEAD + PRESET.replace("SIZE", "1Gi"), "-o", "yaml").output)
    assert (document["ok"], document["starts"], document["kubeletVersion"]) == (False, False, "v1.37.2")
    assert document["problems"][0]["object"] == {"kind": "KubeletConfiguration", "namespace": None, "name": "stdin"}
    assert any("state files" in each for each in document["notLookedAt"])


def test_the_release_decides() -> None:
    text = HEAD + PRESET.replace("SIZE", "1329Mi") + "cpuManagerPolicyOptions: {strict-cpu-reservation: 'true'}\n"
    assert run(text, "--kubelet-version", "1.33.1").exit_code == 0
    older = run(text, "--kubelet-version", "v1.32.1")
    assert older.exit_code == 1
    assert 'Alpha-level Options not enabled, but option "strict-cpu-reservation" provided' in older.output


def test_what_a_shell_substitutes_for_a_command_is_read() -> None:
    read, write = os.pipe()
    os.write(write, (HEAD + "topologyMangerScope: pod\n").encode())
    os.close(write)
    with os.fdopen(read, "rb"):
        result = CliRunner().invoke(main, ["lint", f"/dev/fd/{read}", "--machine", MACHINE])
    assert f"starts with /dev/fd/{read} on this machine" in result.output
    assert "did you mean topologyManagerScope?" in result.output
    closed = CliRunner().invoke(main, ["lint", f"/dev/fd/{read}", "--machine", MACHINE])
    assert (closed.exit_code, closed.output.count("\n")) == (2, 1)


def test_drop_ins_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(HEAD)
    (tmp_path / "drop-ins").mkdir()
    (tmp_path / "drop-ins" / "10.conf").write_text(HEAD + "cpuManagerPolicy: static\n")
    arguments = [str(tmp_path / "file"), "--machine", MACHINE, "--kubelet-config-dir", str(tmp_path / "drop-ins")]
    assert "unable to determine reserved CPU" in CliRunner().invoke(main, ["lint", *arguments]).output


def test_a_folder_of_drop_ins_that_is_missing_is_bad_input(tmp_path: Path) -> None:
    """No kubelet starts with it, and whoever names it here has mistyped it."""
    missing = tmp_path / "drop-ins"
    result = run(HEAD, "--kubelet-config-dir", str(missing))
    assert result.exit_code == 2
    assert f"'--kubelet-config-dir': Directory '{missing}' does not exist" in result.output


def test_a_folder_of_drop_ins_that_is_a_link_is_told(tmp_path: Path) -> None:
    (tmp_path / "drop-ins").mkdir()
    (tmp_path / "drop-ins" / "10.conf").write_text(HEAD + "cpuManagerPolicy: static\n")
    (tmp_path / "link").symlink_to("drop-ins")
    result = run(HEAD, "--kubelet-config-dir", str(tmp_path / "link"))
    assert "link is a link, which the kubelet does not follow: nothing is dropped in" in result.output
    assert result.exit_code == 1


def test_what_of_a_recorded_machine_could_not_be_read_leaves_the_answer_open(tmp_path: Path) -> None:
    write_machine(tmp_path, parse_shape(MACHINE).machine())
    assert run(HEAD, machine=str(tmp_path)).exit_code == 0
    (tmp_path / "sys/devices/system/node/node0/meminfo").write_text("junk\n")
    result = run(HEAD, "-o", "json", machine=str(tmp_path))
    document = json.loads(result.stdout)
    assert (result.exit_code, document["ok"], document["starts"]) == (3, False, True)
    assert any("node0/meminfo has no MemTotal" in each for each in document["notLookedAt"])
    assert f"warning: --machine {tmp_path}: " in result.stderr
    assert run(HEAD + "topologyMangerScope: pod\n", machine=str(tmp_path)).exit_code == 1


def test_a_field_of_another_type_is_named_and_nothing_is_said_of_its_default() -> None:
    result = run(HEAD + "cpuManagerPolicy: 3\nreservedMemory: [{numaNode: x}]\n")
    assert result.exit_code == 1
    assert "cpuManagerPolicy: 3 where a string belongs" in result.output
    assert "reservedMemory[0].numaNode: 'x' where a whole number" in result.output
    assert "TM404" not in result.output


def test_of_hundreds_of_unknown_fields_the_first_are_told() -> None:
    document = json.loads(run(HEAD + "".join(f"x{number}: 1\n" for number in range(300)), "-o", "json").output)
    told = [each["message"] for each in document["problems"] if each["code"] == "TM402"]
    assert (len(told), told[-1]) == (65, "236 more are passed over")


@pytest.mark.parametrize("further", ["kind: Pod\n", "a: [\n"])
def test_further_documents_are_told_where_they_can_be_read(further: str) -> None:
    result = run(f"{HEAD}---\n{further}")
    assert ("the kubelet reads the first alone" in result.output) == further.endswith("Pod\n")


BAD = {
    "another kind": ("apiVersion: v1\nkind: Pod\n", "is not a KubeletConfiguration of kubelet.config.k8s.io/v1beta1"),
    "nothing": ("", "is not a KubeletConfiguration"),
    "a list": ("[1, 2]", "is not a KubeletConfiguration"),
    "no YAML": ("a: [", "is not YAML"),
    "a control character": ("\x1b[31mkind: x", "is not YAML"),
    "deep nesting": ("a: " + "[" * 5000, " nesting"),  # by our limit, or by that of a newer PyYAML
    "a huge file": ("a" * 70_000, "is longer than 65536 bytes"),
}


@pytest.mark.parametrize(("text", "words"), BAD.values(), ids=BAD)
def test_what_is_no_configuration_is_told_in_one_line(text: str, words: str) -> None:
    result = run(text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/no/such/file", "--machine", MACHINE], "/no/such/file is not there"),
        (["-", "--machine", "p5.48xlarg"], "did you mean p5.48xlarge?"),
        (["-", "--machine", MACHINE, "--kubelet-version", "new"], "not a version such as v1.37.2"),
        (["-"], "Missing option '--machine'"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["lint", *arguments], input=HEAD)
    assert result.exit_code == 2
    assert words in result.stderr


def test_hostile_names_are_escaped() -> None:
    result = run(HEAD + '"topology\\e[31m": x\n')
    assert result.exit_code == 1
    assert "\x1b" not in result.output
