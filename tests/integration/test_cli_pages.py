"""Pages and figures from the command line."""

from __future__ import annotations

import pytest

from tests.support.builders import Export
from tracekit.cli.shell.app import call

SECRET = "tensor_of_my_customer"


@pytest.fixture
def report(tmp_path):
    export = Export().gpu()
    export.range(0, 2_000, SECRET)
    export.call(10, 20, "cudaLaunchKernel", correlation=1)
    export.kernel(100, 900, "nvjet_sm90_tst_128x8", correlation=1)
    return export.write(tmp_path / f"{SECRET}.sqlite")


def test_analyze_writes_a_page_with_its_timeline(report, tmp_path):
    assert call(["analyze", "-q", str(report), "-o", str(tmp_path / "x.html")]) == 0
    text = (tmp_path / "x.html").read_text()
    assert SECRET in text
    assert '"label":"compute · stream 7"' in text
    assert text.endswith("</html>\n")


def test_a_page_is_redacted_on_request(report, tmp_path):
    command = ["analyze", "-q", "--redact", str(report), "-o", str(tmp_path / "x.html")]
    assert call(command) == 0
    assert SECRET not in (tmp_path / "x.html").read_text()


def test_the_page_is_the_same_again(report, tmp_path):
    for name in ("a.html", "b.html"):
        call(["analyze", "-q", str(report), "-o", str(tmp_path / name)])
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_plot_writes_the_figure_of_an_analysis(form, fixture_path, tmp_path):
    out = tmp_path / f"figure.{form}"
    assert call(["plot", str(fixture_path("int4_dequant")), "dequant_stall", "-o", str(out)]) == 0
    first = out.read_bytes()
    assert first
    call(["plot", str(fixture_path("int4_dequant")), "dequant_stall", "-o", str(out)])
    assert out.read_bytes() == first


@pytest.mark.parametrize(
    ("name", "file", "code", "words"),
    [
        ("dequant_stall", "x.jpg", 2, "use one of .svg, .png, .pdf"),
        ("no_such", "x.svg", 2, "no analysis named no_such"),
        ("dequant_stall", "x.svg", 3, "has nothing to draw; no dequantisation kernel"),
        ("dequant_stall", "no/folder/x.svg", 2, "not a file in an existing folder"),
    ],
)
def test_plot_says_why_it_cannot(report, tmp_path, capsys, name, file, code, words):
    assert call(["plot", str(report), name, "-o", str(tmp_path / file)]) == code
    assert words in capsys.readouterr().err
    assert not (tmp_path / file).exists()
