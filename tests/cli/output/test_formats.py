"""The formats of ``-o``, and what a watch prints after its first answer."""

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from topomend.cli.input.manifests import read_documents
from topomend.cli.output.formats import Printer, Row, document_text
from topomend.runtime.manifests import documents

HEADING = ("NAME", "STATE")


def row(name: str, state: str) -> Row:
    return Row((name,), (name, state), {"name": name, "state": state}, f"thing/{name}", (f"why {state}",))


def printed(output: str, capsys: pytest.CaptureFixture[str], *batches: list[Row]) -> list[str]:
    """What is printed of each batch of rows."""
    printer, texts = Printer(output, HEADING, ("WHY",)), []
    for number, rows in enumerate(batches):
        if number:
            printer.next(rows)
        else:
            printer.first(rows, {"items": [one.record for one in rows]})
        texts.append(capsys.readouterr().out)
    return texts


def test_a_table_has_further_columns_if_it_is_wide(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("table", capsys, [row("a", "up")]) == ["NAME   STATE\na      up\n"]
    assert printed("wide", capsys, [row("a", "up")]) == ["NAME   STATE   WHY\na      up      why up\n"]


def test_a_watch_prints_rows_that_are_new_or_changed_in_the_same_columns(capsys: pytest.CaptureFixture[str]) -> None:
    first = [row("a", "starting"), row("b", "up")]
    texts = printed("table", capsys, first, first, [row("a", "up"), row("b", "up"), row("c", "up")], [row("a", "up")])
    assert texts == ["NAME   STATE\na      starting\nb      up\n", "", "a      up\nc      up\n", ""]


def test_a_row_that_comes_back_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("name", capsys, [row("a", "up")], [], [row("a", "up")]) == ["thing/a\n", "", "thing/a\n"]


def test_programs_get_one_document_and_then_one_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    batches = [row("a", "up")], [row("a", "down"), row("b", "up")]
    first, then = printed("json", capsys, *batches)
    assert json.loads(first) == {"items": [{"name": "a", "state": "up"}]}
    decoder, records = json.JSONDecoder(), []
    while then := then.strip():
        record, end = decoder.raw_decode(then)
        records.append(record)
        then = then[end:]
    assert records == [{"name": "a", "state": "down"}, {"name": "b", "state": "up"}]
    text = "".join(printed("yaml", capsys, *batches))
    assert [*documents(text)] == [{"items": [{"name": "a", "state": "up"}]}, *records]


@pytest.mark.parametrize("text", ["018000", "0108e0", "1e3", "0o17", "0x1f", "12", "a", "0000:00:1f.2"])
def test_a_text_that_looks_like_a_number_is_read_back_as_a_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "host.yaml"
    file.write_text(document_text({"class": text}, "yaml"))
    assert [*read_documents(str(file), "--node")] == [{"class": text}]


def test_names_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = row("a", "up"), Row(("x",), ("a", "up"), {}, "thing/a")
    assert printed("name", capsys, [one, other]) == ["thing/a\n"]


@pytest.mark.parametrize("output", ["table", "wide"])
def test_a_cell_has_its_style_under_its_heading_where_colours_are(
    capsys: pytest.CaptureFixture[str], output: str
) -> None:
    styled = replace(row("a", "down"), styles={"STATE": {"fg": "red"}})
    plain = printed(output, capsys, [styled])
    with click.Context(click.Command("c"), color=True):
        first, changed = printed(output, capsys, [styled], [replace(styled, record={})])
    assert f"\na      {click.style('down', fg='red')}" in first
    assert changed.startswith(f"a      {click.style('down', fg='red')}")
    assert [click.unstyle(first)] == plain
