"""Kernel names gathered from public code, each with the class that its reader gave it.

``split`` in ``tests/data/kernel_names.tsv`` says how a name was used: ``train`` while rules were
written, ``held-out`` by the hash of the name and not looked at from then on, ``unseen`` first read
when the rules were finished.
"""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from tracekit.model.kernels import KernelKind, classify
from tracekit.model.kernels.rules import Rule, load_rules, split_words

_TABLE = Path(__file__).parents[2] / "data" / "kernel_names.tsv"


class Row(NamedTuple):
    name: str
    kind: str
    source: str
    split: str


def _rows() -> list[Row]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        assert next(rows) == ["name", "class", "source", "split"]
        return [Row(*row) for row in rows]


ROWS = _rows()


def _rate(rows: list[Row]) -> float:
    wrong = [(row.kind, str(classify(row.name).kind), row.name[:90]) for row in rows]
    wrong = [row for row in wrong if row[0] != row[1]]
    rate = 1 - len(wrong) / len(rows)
    print(f"{rate:.1%} of {len(rows)} names right; wrong: {wrong}")
    return rate


def test_the_names_are_many_distinct_and_sourced() -> None:
    assert len(ROWS) == 1227
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.kind for row in ROWS} == set(KernelKind)
    assert all(row.source for row in ROWS)


def test_a_tenth_is_held_out_by_the_hash_of_the_name() -> None:
    for row in ROWS:
        digest = int(hashlib.sha256(row.name.encode()).hexdigest(), 16)
        assert (row.split == "held-out") == (digest % 10 == 0), row.name
    assert Counter(row.split for row in ROWS) == {"train": 1072, "held-out": 108, "unseen": 47}


def test_nearly_all_names_get_the_right_class() -> None:
    assert _rate(ROWS) >= 0.99


def test_held_out_names_get_the_right_class() -> None:
    assert _rate([row for row in ROWS if row.split == "held-out"]) >= 0.97


def test_most_names_that_no_rule_was_written_for_get_the_right_class() -> None:
    """The rate to expect of a library that the table does not know yet."""
    unseen = [row for row in ROWS if row.split == "unseen"]
    assert _rate(unseen) >= 0.78
    guessed = [row for row in unseen if classify(row.name).kind not in (row.kind, "unclassified")]
    assert len(guessed) <= 4, "what is not known is unclassified rather than wrong"


@pytest.mark.parametrize("rule", load_rules().rules, ids=lambda rule: f"{rule.kind}:{rule.source}")
def test_every_rule_names_its_source_and_decides_something(rule: Rule) -> None:
    assert rule.source.strip()
    assert rule.names or rule.scope
    words, expressions = split_words(rule.names)
    assert rule.names == () or words or expressions


def test_plain_words_stand_for_their_expressions() -> None:
    words, others = split_words(["all_?reduce", "s_?p_?q", "nvjet", r"mul_mat_(?:vec_)?q"])
    assert words == ("allreduce", "all_reduce", "spq", "sp_q", "s_pq", "s_p_q", "nvjet")
    assert others == (r"mul_mat_(?:vec_)?q",)


def test_the_class_is_that_of_the_first_rule_that_matches() -> None:
    """Words and compiled expressions answer as a plain search of every expression does."""
    import re

    from tracekit.model.kernels.parts import split_name

    def slow(name: str) -> str:
        parts = split_name(name).lower()
        for number, text in enumerate((parts.function, parts.head, parts.whole)):
            for rule in load_rules().rules:
                if (
                    not (number and rule.is_own)
                    and (not rule.names or any(re.search(p, text) for p in rule.names))
                    and (rule.scope is None or re.search(rule.scope, parts.scope))
                    and (rule.template is None or re.search(rule.template, parts.inner))
                ):
                    return rule.kind
        return KernelKind.UNCLASSIFIED

    for row in ROWS:
        if len(row.name) < 500:
            assert classify(row.name).kind == slow(row.name), row.name
