from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import polars as pl
import pytest

from tests.support.builders import Export
from tracekit.errors import InputError
from tracekit.recipe import outputs
from tracekit.recipe.outputs import headlines, write

KEYWORDS = {"only": ("dequant_stall",), "params": {}}
PRIVATE = "bobby decode step=1"
FILES = {"diagnosis.json", "diagnosis.html", "diagnosis.md"}


@pytest.fixture
def report(tmp_path):
    export = Export().gpu()
    export.range(0, 900, PRIVATE)
    export.kernel(1_000, 41_000, "dequantize_int4_kernel", launch=100)
    export.kernel(42_000, 52_000, "sm90_xmma_gemm_bf16bf16_bf16f32", launch=200)
    return str(export.write(tmp_path / "rank0.sqlite"))


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def written(report, out, **options):
    return write([report], KEYWORDS, lambda name: str(out / name), **options)


def telling(out):
    return {name for name in FILES if "bobby" in (out / name).read_text()}


@pytest.mark.parametrize(
    ("options", "tell"),
    [
        ({}, FILES - {"diagnosis.md"}),
        ({"redact": False}, FILES),
        ({"redact": True}, set()),
        ({"redact": True, "keep_nvtx": True}, FILES),
    ],
)
def test_names_are_left_out_as_asked_for(report, out, options, tell):
    answer = written(report, out, **options)
    assert telling(out) == tell
    assert (
        answer.provenance["redact"]
        == json.loads((out / "diagnosis.json").read_text())["provenance"]["redact"]
    )


def test_frames_come_as_parquet_and_on_request_as_csv(report, out):
    answer = written(report, out, csv=True)
    summary = answer.frames["dequant_stall"]["summary"]
    stored = out / "frames" / "dequant_stall.summary.parquet"
    assert pl.read_parquet(stored).equals(summary)
    assert len(stored.with_suffix(".csv").read_text().splitlines()) == summary.height + 1
    assert pl.read_csv(out / "findings.csv")["id"].to_list() == [f.id for f in answer.findings]


def test_headlines_are_what_needs_attention(report, out):
    answer = written(report, out)
    bad = [f for f in answer.findings if f.level in ("critical", "warn")]
    assert bad
    assert headlines(answer) == [f"{f.level.value}: {f.title}" for f in bad]


def test_top_limits_the_documents_not_the_frames(report, out):
    answer = written(report, out, top=0)
    written_frames = json.loads((out / "diagnosis.json").read_text())["frames"]
    shown = written_frames["dequant_stall"]["summary"]
    assert (shown["rows"], shown["rows_shown"]) == (
        answer.frames["dequant_stall"]["summary"].height,
        0,
    )
    assert pl.read_parquet(out / "frames" / "dequant_stall.summary.parquet").height > 0


def test_nothing_is_placed_before_there_is_an_answer(tmp_path):
    def place(name):
        raise AssertionError(name)

    with pytest.raises(InputError, match="no such file"):
        write([str(tmp_path / "rank0.sqlite")], KEYWORDS, place)


def test_the_notebook_shows_what_the_recipe_wrote(report, out, monkeypatch):
    written(report, out)
    monkeypatch.chdir(out)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(Markdown=str))
    shown: list[object] = []
    notebook = json.loads((recipe_folder() / "diagnosis.ipynb").read_text())
    scope = {"display": shown.append}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    markdown, findings, metrics, files = shown
    assert markdown == (out / "diagnosis.md").read_text()
    assert findings["rank"].to_list() == list(range(1, len(findings) + 1))
    assert set(metrics["id"]) <= set(findings["id"])
    assert files["file"].to_list() == [Path(report).name]


def recipe_folder():
    return Path(outputs.__file__).parent / "tracekit_diagnosis"
