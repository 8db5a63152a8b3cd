"""A manifest's text is edited where its nodes are, and stays as it was everywhere else."""

import pytest
from deploy.helm.manifest import Manifest, NoSuchNode
from deploy.manifests import DEPLOY, files

TEXT = """\
# Why it exists.
kind: Thing
metadata:
  name: it
spec:
  # Of the list.
  names:
    - first # this one
    # of the second
    - {second: 2}
  # Of what follows.
  rule: |-
    a: b
  other:
    inner:
      deep: 1
"""


@pytest.fixture
def manifest() -> Manifest:
    return Manifest(TEXT, "deploy/it.yaml")


def test_without_edits_it_is_the_same_text(manifest: Manifest) -> None:
    assert manifest.edited() == TEXT
    for path in files(DEPLOY):
        for text in path.read_text().split("---\n"):
            assert Manifest(text, path.name).edited() == text


def test_what_is_appended_comes_after_the_last_entry_and_before_the_comment_of_the_next_key(manifest: Manifest) -> None:
    manifest.append(("spec", "names"), ["- third"])
    manifest.append(("spec", "names"), ["- fourth"])
    assert manifest.edited() == TEXT.replace("2}\n", "2}\n    - third\n    - fourth\n")


def test_a_mapping_gets_entries_first_and_last(manifest: Manifest) -> None:
    manifest.append(("spec", "other", "inner"), ["deeper: 2"])
    manifest.insert_first(("spec", "other"), ["outer: 0"])
    assert manifest.edited().endswith("  other:\n    outer: 0\n    inner:\n      deep: 1\n      deeper: 2\n")


def test_a_key_is_replaced_with_all_that_is_below_it(manifest: Manifest) -> None:
    manifest.replace_entry(("spec", "other"), ["other: {{ . }}"])
    assert manifest.edited() == TEXT[: TEXT.index("  other:")] + "  other: {{ . }}\n"


def test_lines_surround_a_key_that_is_indented_as_they_are(manifest: Manifest) -> None:
    manifest.insert_before(("spec", "other", "inner"), ["{{- if a }}"])
    manifest.insert_after(("spec", "other", "inner"), ["{{- end }}"])
    assert manifest.edited().endswith("    {{- if a }}\n    inner:\n      deep: 1\n    {{- end }}\n")


def test_a_value_is_replaced_within_its_line(manifest: Manifest) -> None:
    manifest.replace(("spec", "names", "0"), "{{ .Values.name }}")
    manifest.replace(("spec", "names", "1", "second"), "{{ .Values.second }}")
    assert (
        "- {{ .Values.name }} # this one\n    # of the second\n    - {second: {{ .Values.second }}}\n"
        in manifest.edited()
    )


@pytest.mark.parametrize("path", [("spec", "name"), ("spec", "names", "2"), ("spec", "rule", "a")], ids=str)
def test_a_node_that_is_gone_is_named_with_its_file(manifest: Manifest, path: tuple[str, ...]) -> None:
    with pytest.raises(NoSuchNode, match=rf"deploy/it.yaml: Thing it has no {'.'.join(path)}"):
        manifest.append(path, ["- third"])


def test_every_scalar_is_found_with_its_path(manifest: Manifest) -> None:
    found = dict(manifest.scalars())
    assert found["spec", "names", "1", "second"] == "2"
    assert found["spec", "rule"] == "a: b"
    assert len(found) == 6
