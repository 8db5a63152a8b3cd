"""Which files of two releases are named as differing."""

from pathlib import Path

from verify.upstream.__main__ import _order
from verify.upstream.sources import Change, changes, named_files


def written(root: Path, **files: str) -> Path:
    """Files of a release in pkg/kubelet/cm, by name."""
    folder = root / "pkg" / "kubelet" / "cm"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name}.go").write_text(text)
    return root


def test_a_docstring_names_a_file_with_or_without_its_folder(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text('"""Source: cm/policy.go:Merge, and ``manager.go``."""')
    assert named_files(tmp_path) == {"cm/policy.go": ("rule.py",), "manager.go": ("rule.py",)}


def test_comments_and_blanks_are_no_change(tmp_path: Path) -> None:
    before = written(tmp_path / "a", policy="func a() {}\n", manager="x := 1\ny := 2\n", scope="s\n")
    after = written(tmp_path / "b", policy="// says more\n\nfunc a() {}\n", manager="x := 1\ny := 3\n", scope="s\n")
    named = {"cm/policy.go": ["rule.py"], "manager.go": ["rule.py"], "scope.go": ["rule.py"]}
    assert list(changes(before, after, named)) == [Change("pkg/kubelet/cm/manager.go", "+1 -1", ("rule.py",))]


def test_a_new_file_beside_a_named_one_and_a_named_one_that_is_gone_are_told(tmp_path: Path) -> None:
    before = written(tmp_path / "a", policy="a\n", manager="b\n")
    after = written(tmp_path / "b", policy="a\n", score="c\n", score_test="c\n")
    named = {"cm/policy.go": ["r"], "manager.go": ["r"]}
    found = [(change.file.rpartition("/")[2], change.text) for change in changes(before, after, named)]
    assert found == [("manager.go", "gone"), ("score.go", "new")]


def test_a_release_comes_after_its_own_betas() -> None:
    versions = ["v1.38.0", "v1.38.0-beta.0", "v1.37.2", "v1.9.10", "v1.38.0-alpha.3"]
    assert sorted(versions, key=_order) == ["v1.9.10", "v1.37.2", "v1.38.0-alpha.3", "v1.38.0-beta.0", "v1.38.0"]
