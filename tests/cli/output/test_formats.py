"""The formats of ``-o``, and what a watch prints after its first answer."""

import json

import pytest
import yaml

from topomend.cli.output.formats import Printer, Row

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
    assert [*yaml.safe_load_all(text)] == [{"items": [{"name": "a", "state": "up"}]}, *records]


def test_names_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = row("a", "up"), Row(("x",), ("a", "up"), {}, "thing/a")
    assert printed("name", capsys, [one, other]) == ["thing/a\n"]
