"""Tables of results state what they hold: units by name, words for every column."""

from __future__ import annotations

import pytest

from tracekit import analyses
from tracekit.wording.numbers import unit_of_column

TABLES = [(name, table) for name in analyses.names() for table in analyses.load(name).results]


@pytest.mark.parametrize(("name", "table"), TABLES, ids=[f"{n}.{t.name}" for n, t in TABLES])
def test_units_agree_with_names_and_columns_are_explained(name, table):
    assert table.doc
    assert [c.name for c in table.columns if not c.doc] == []
    named = {c.name: unit_of_column(c.name)[1] for c in table.columns}
    assert {c.name: c.unit for c in table.columns if named[c.name] not in ("", c.unit)} == {}


@pytest.mark.parametrize(("name", "table"), TABLES, ids=[f"{n}.{t.name}" for n, t in TABLES])
def test_only_shares_have_the_unit_of_shares(name, table):
    shares = [c.name for c in table.columns if c.unit == "1"]
    assert [c for c in shares if c != "frac" and not c.endswith("_frac")] == []


@pytest.mark.parametrize(("name", "table"), TABLES, ids=[f"{n}.{t.name}" for n, t in TABLES])
def test_a_table_names_a_column_once(name, table):
    names = [c.name for c in table.columns]
    assert len(names) == len(set(names))
