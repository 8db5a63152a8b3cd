"""Files that a user names: what they hold, or one line that says what is wrong with which flag."""

import io
from pathlib import Path

import pytest

from topomend.cli.input.manifests import read_documents
from topomend.cli.output.failures import BadInput


def test_every_document_of_a_file_is_read_and_json_is_yaml(tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text('kind: Pod\n---\n{"kind": "Node"}\n')
    assert [*read_documents(str(file), "--pod")] == [{"kind": "Pod"}, {"kind": "Node"}]


def test_json_may_have_tabs_and_a_tag_of_python_is_no_code(tmp_path: Path) -> None:
    file = tmp_path / "pod.json"
    file.write_text('{\n\t"kind": "Pod",\n\t"spec": {"priority":\t1, "overhead": 1.5}\n}\n')
    assert [*read_documents(str(file), "--pod")] == [{"kind": "Pod", "spec": {"priority": 1, "overhead": 1.5}}]
    file.write_text("kind:\tPod\t# tabs\ncreated: 2026-01-02\ncode: !!python/object/apply:os.getcwd []\n")
    assert [*read_documents(str(file), "--pod")] == [{"kind": "Pod", "created": "2026-01-02", "code": []}]


def stdin_of(content: bytes) -> io.TextIOWrapper:
    """As Python makes it in the locale C, where what is no UTF-8 becomes surrogates."""
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="surrogateescape")


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin_of(b"kind: Pod"))
    assert [*read_documents("-", "--pod")] == [{"kind": "Pod"}]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_standard_input_of_another_encoding_is_answered_as_a_file(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "kind: Pod # größer".encode(encoding)
    (file := tmp_path / "pods.yaml").write_bytes(content)
    monkeypatch.setattr("sys.stdin", stdin_of(content))
    assert answer("-") == answer(str(file)).replace(str(file), "-")


def test_a_program_that_was_started_without_stdin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert answer("-") == "--pod -: there is no stdin: it is closed"


def answer(source: str) -> str:
    """The documents, or why there are none."""
    try:
        return str([*read_documents(source, "--pod")])
    except BadInput as error:
        return error.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [", "is neither YAML nor JSON: "),
        (b"\xff\xfe\xfd", "is neither YAML nor JSON: "),
        (b"NUMA   CPUS   MEMORY\n0      0-1    8Gi: x\n", ": it is a table; print it with -o yaml"),
        (b"\x1f\x8b\x08\x00", ": it is an archive; topomend discover --root prints"),
        (b"[" * 100_000, " nesting"),  # by our limit, or by that of a newer PyYAML
        (None, "No such file or directory"),
    ],
    ids=["an open list", "no text", "a table", "an archive", "too deep", "no file"],
)
def test_a_file_that_cannot_be_read_is_one_line_with_its_flag(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "pods.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput) as failure:
        list(read_documents(str(file), "--pod"))
    text = str(failure.value)
    assert text.startswith(f"--pod {file}")
    assert words in text
    assert "byte string" not in text
    assert "\n" not in text


def test_a_file_that_is_too_large_or_has_no_end_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pods.yaml"
    file.write_text("kind: Pod #" + "x" * 1014)
    assert [*read_documents(str(file), "--pods", 1025)] == [{"kind": "Pod"}]
    words = "is larger than 1Ki: too much to read; give fewer objects"
    with pytest.raises(BadInput, match=f"--pods {file} {words}"):
        list(read_documents(str(file), "--pods", 1024))
    with pytest.raises(BadInput, match=f"--pods /dev/zero {words}"):
        list(read_documents("/dev/zero", "--pods", 1024))
    monkeypatch.setattr("sys.stdin", stdin_of(file.read_bytes()))
    with pytest.raises(BadInput, match=f"--pods - {words}"):
        list(read_documents("-", "--pods", 1024))


def test_a_file_for_which_there_is_not_enough_memory_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: bytes) -> None:
        raise MemoryError

    (file := tmp_path / "pods.yaml").write_text("kind: Pod")
    monkeypatch.setattr("topomend.discover.documents.read.read_documents", full)
    with pytest.raises(BadInput, match="does not fit into the memory of this process"):
        list(read_documents(str(file), "--pods"))
