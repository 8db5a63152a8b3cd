"""The page of machines is what the code says, and its table has every word that a shape may have."""

from deploy.manifests import ROOT
from verify.reference.machines import WORDS, page

from topomend.model.shapes.known_machines import MACHINES
from topomend.model.shapes.shape import _READERS, DEVICE_KEYS


def test_the_committed_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs" / "reference" / "machines.md").read_text() == page(), "run make generate"


def test_the_table_has_every_word_of_a_shape() -> None:
    assert {word.partition(":")[0] for word, _, _ in WORDS} == {*_READERS, "hugepages-SIZE", *DEVICE_KEYS}


def test_each_known_machine_has_a_section_with_its_sources() -> None:
    sections = page().split("\n### ")[1:]
    assert [section.partition("\n")[0] for section in sections] == [machine.name for machine in MACHINES]
    for section, machine in zip(sections, MACHINES, strict=True):
        assert all(f"<{source}>" in section for source in machine.sources)
