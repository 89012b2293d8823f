"""Every kernel name of real H200 traces, as the export spells it three times over."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tracekit.model.kernels import KernelKind, classify, classify_parts

_TABLE = Path(__file__).with_name("test_kernels_traced.tsv")


def _rows() -> list[tuple[str, ...]]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        assert next(rows) == ["kind", "demangled", "mangled", "short"]
        return [tuple(row) for row in rows]


ROWS = _rows()


@pytest.mark.parametrize(("kind", "demangled", "mangled", "short"), ROWS)
def test_traced_kernel(kind: str, demangled: str, mangled: str, short: str) -> None:
    assert classify_parts(demangled, mangled, short).kind == kind
    assert classify(demangled).kind == kind
    assert classify(mangled).kind == kind, "the mangled name tells as much as the demangled one"


def test_only_the_read_probes_are_unclassified() -> None:
    unknown = {short for kind, _, _, short in ROWS if kind == KernelKind.UNCLASSIFIED}
    assert unknown == {"kv_row_read", "paged_kv_read"}


def test_expected_classes_by_short_name() -> None:
    kinds = {short: kind for kind, _, _, short in ROWS}
    assert kinds["dequantize_int4_kernel"] == KernelKind.DEQUANT
    assert kinds["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"] == KernelKind.COMM
    assert kinds["splitKreduce_kernel"] == KernelKind.GEMM_HELPER
    assert kinds["reduce_kernel"] == KernelKind.REDUCTION
    assert kinds["CatArrayBatchedCopy"] == KernelKind.COPY
    assert kinds["Kernel2"] == KernelKind.GEMM
    assert {kind for short, kind in kinds.items() if "nvjet" in short} == {KernelKind.GEMM}
    assert {kind for short, kind in kinds.items() if "sdpa" in short} == {KernelKind.ATTENTION}
