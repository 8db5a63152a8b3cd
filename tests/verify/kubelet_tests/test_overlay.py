"""A replaced function keeps its signature and asks replay; the kubelet's own stays beside it for what replay leaves."""

from pathlib import Path

import pytest
from verify.kubelet_tests import overlay
from verify.kubelet_tests.answers.__main__ import ANSWERERS
from verify.kubelet_tests.overlay import CPU, DEVICE, FUNCTIONS, ORIGINAL, Function, NotReplaced, replaced

NEW = """package cpumanager

// Allocate allocates.
func (p *staticPolicy) Allocate(ctx context.Context, s state.State, a, b T, operation lifecycle.Operation) (e error) {
	hint := p.affinity.GetAffinity(logger, a, b)
	return p.take(hint)
}

func (p *staticPolicy) AllocatePod() {
}
"""

OLD = """package cpumanager

func (p *staticPolicy) Allocate(s state.State, a, b string) error {
	return p.take(p.affinity.GetAffinity(a, b))
}
"""

ALLOCATE = Function(CPU, "policy_static.go", "staticPolicy", "Allocate", 'ask("{question}", {logger}s)', "cpu.Allocate")


def test_a_replaced_function_asks_and_leaves_other_operations_to_the_kubelets_own() -> None:
    source = replaced(NEW, ALLOCATE)
    signature = "(ctx context.Context, s state.State, a, b T, operation lifecycle.Operation) (e error) {"
    assert (
        f"// Allocate allocates.\nfunc (p *staticPolicy) Allocate{signature}\n"
        "\tif operation != lifecycle.AddOperation {\n"
        f"\t\treturn p.Allocate{ORIGINAL}(ctx, s, a, b, operation)\n"
        "\t}\n"
        "\tlogger := klog.FromContext(ctx)\n"
        '\task("cpu.Allocate", logger, s)\n'
        "}\n" in source
    )
    assert f"func (p *staticPolicy) Allocate{ORIGINAL}{signature}\n\thint := p.affinity.GetAffinity(" in source
    assert source.endswith("\nfunc (p *staticPolicy) AllocatePod() {\n}\n")


def test_what_a_release_calls_otherwise_is_called_as_it_does() -> None:
    source = replaced(OLD, ALLOCATE)
    assert '\task("cpu.Allocate", s)\n' in source
    assert "operation" not in source
    assert "logger" not in source


def test_the_options_of_the_choice_of_cpus_are_those_that_the_release_has() -> None:
    take = next(function for function in FUNCTIONS if function.name == "takeByTopologyNUMADistributed")
    source = replaced(
        "func takeByTopologyNUMADistributed(topo *T, availableCPUs S, numCPUs int, cpuGroupSize int) (S, error) {\n}\n",
        take,
    )
    assert 'topo, availableCPUs, numCPUs, map[string]any{"cpuGroupSize": cpuGroupSize})' in source


def test_what_the_kubelets_own_function_looks_at_first_is_looked_at() -> None:
    devices = next(function for function in FUNCTIONS if function.name == "devicesToAllocate")
    ready = "!m.sourcesReady.AllReady() && m.isContainerAlreadyRunning(logger, podUID, contName)"
    source = f"func (m *ManagerImpl) devicesToAllocate(podUID string) (S, error) {{\n\tif {ready} {{\n\t}}\n}}\n"
    assert f"required, reusableDevices, {ready}, affinity)" in replaced(source, devices)


def test_a_function_that_has_gone_is_an_error_that_names_it() -> None:
    with pytest.raises(NotReplaced, match=r"policy_static\.go has no function staticPolicy\.Allocate"):
        replaced("package cpumanager\n", ALLOCATE)


def test_a_function_that_looks_at_something_else_is_an_error_that_says_so() -> None:
    devices = next(function for function in FUNCTIONS if function.name == "devicesToAllocate")
    with pytest.raises(
        NotReplaced, match=r"another function ManagerImpl\.devicesToAllocate: nothing to take for 'running'"
    ):
        replaced("func (m *ManagerImpl) devicesToAllocate(podUID string) (S, error) {\n\treturn nil\n}\n", devices)


def test_a_file_that_has_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(NotReplaced, match=r"cpumanager has no cpu_assignment\.go"):
        overlay.write(tmp_path, 37, tmp_path)


def test_a_release_lacks_what_came_later() -> None:
    later = set(overlay.functions_of(36)) - set(overlay.functions_of(35))
    assert {function.name for function in later} == {"AllocatePod", "IsContainerEquivalentQOSGuaranteed"}


def test_an_overlay_names_changed_and_added_files_and_leaves_the_tree_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "FUNCTIONS", (ALLOCATE,))
    tree, folder = tmp_path / "tree", tmp_path / "overlay"
    folder.mkdir()
    for package in (CPU, DEVICE):
        (tree / package).mkdir(parents=True)
    (tree / CPU / "policy_static.go").write_text(OLD)
    files = overlay.write(tree, 34, folder)
    assert {Path(path).relative_to(tree) for path in files} == {
        Path(CPU, "policy_static.go"),
        *(Path(package, f"topomend_{file}.go") for package in (CPU, DEVICE) for file in overlay.ADDED[package]),
        Path(overlay.CLIENT, "topomend_client.go"),
    }
    assert ORIGINAL in Path(files[str(tree / CPU / "policy_static.go")]).read_text()
    assert (tree / CPU / "policy_static.go").read_text() == OLD


def test_every_question_has_an_answer() -> None:
    assert {function.question for function in FUNCTIONS} == set(ANSWERERS)
