"""A number is printed with the same digits wherever an answer prints it."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from tracekit.engine import analyze
from tracekit.wording.numbers import duration, quantity, share

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
RUNS = [
    *((str(p.relative_to(FIXTURES)),) for p in sorted(FIXTURES.rglob("*.sqlite.xz"))),
    ("tp_decode_rank0.sqlite.xz", "tp_decode_rank1.sqlite.xz"),
    ("int4_dequant.sqlite.xz", "ncu_int4_dequant_full.csv.xz"),
    ("kv_stride_l2.sqlite.xz", "ncu_kv_stride.csv.xz"),
]
UNITS = {
    "ns": ("ns", 1),
    "us": ("ns", 10**3),
    "ms": ("ns", 10**6),
    "s": ("ns", 10**9),
    "B": ("bytes", 1),
    "kB": ("bytes", 10**3),
    "MB": ("bytes", 10**6),
    "GB": ("bytes", 10**9),
    "TB": ("bytes", 10**12),
    "GB/s": ("GB/s", 1),
    "%": ("1", Decimal("0.01")),
    "x": ("x", 1),
    "pp": ("pp", 1),
}
NUMBER = re.compile(r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?) ?(GB/s|[kMGT]?B|[num]?s|%|x|pp)(?![\w/])")


def numbers_in(text):
    """Every number with a unit: what is printed, the unit's kind, value, half its last digit."""
    for found in NUMBER.finditer(text):
        digits, (kind, factor) = Decimal(found[1].replace(",", "")), UNITS[found[2]]
        exponent = digits.as_tuple().exponent
        assert isinstance(exponent, int)
        half = Decimal(1).scaleb(exponent) / 2
        yield found[0], kind, digits * factor, half * factor


def otherwise_printed(text, kind, value, wanted):
    """Numbers of `text` that round `value`, but not to `wanted`."""
    exact = Decimal(value)
    return [
        printed
        for printed, of, number, half in numbers_in(text)
        if of == kind and abs(number - exact) <= half and printed != wanted
    ]


def test_a_number_of_other_digits_is_found():
    assert otherwise_printed("DRAM 88% busy", "1", 0.8794, "87.9%") == ["88%"]
    assert otherwise_printed("lost 1.8% of the 124 ms", "1", 0.0184, "1.84%") == ["1.8%"]
    assert otherwise_printed("takes 2.290 ms", "ns", 2_290_000, "2.29 ms") == ["2.290 ms"]
    assert otherwise_printed("1.84% of the 124 ms", "1", 0.0184, "1.84%") == []


@pytest.mark.parametrize("names", RUNS, ids="+".join)
def test_headlines_and_advice_print_numbers_as_the_table_below_does(names):
    diagnosis = analyze([FIXTURES / name for name in names])
    assert diagnosis.findings
    wrong = []
    for finding in diagnosis.findings:
        text = " ".join((finding.title, finding.advice, finding.at_stake_of, *finding.caveats))
        known = [(m.unit, m.value, quantity(m.value, m.unit)) for m in finding.metrics]
        known += [("ns", finding.at_stake_ns, duration(finding.at_stake_ns))]
        known += [("1", finding.at_stake_frac, share(finding.at_stake_frac))]
        wrong += [
            (finding.id, printed, wanted)
            for unit, value, wanted in known
            if isinstance(value, int | float) and unit in {"ns", "bytes", "1", "x", "GB/s", "pp"}
            for printed in otherwise_printed(text, unit, value, wanted)
        ]
    assert wrong == []
