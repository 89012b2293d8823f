from __future__ import annotations

from dataclasses import replace

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.support.diagnoses import (
    COMMAND,
    CRITICAL,
    DEQUANT,
    FINE,
    NO_GPU,
    OPAQUE,
    OVERVIEW,
    REPORT,
    UNKNOWN,
)
from tracekit.model.diagnosis import GpuTime, Quality
from tracekit.model.finding import Evidence, Level, Missing
from tracekit.model.inputs import Alignment
from tracekit.report.text import fit, render


def line_with(text, part):
    return next(line.strip() for line in text.splitlines() if part in line)


def test_the_first_screen_says_what_was_recorded_and_the_first_finding():
    screen = render(DEQUANT).splitlines()[:24]
    text = "\n".join(screen)
    assert screen[0] == "Findings: 1 critical, 1 fine, 1 not judged."
    assert "busy 91.2% (6.77 ms) of 7.42 ms, idle 8.80% (653 us), no opaque graphs" in text
    assert "unclassified 0.50%" in text
    assert "1. CRITICAL  Dequantisation fills 47.6%" in text
    assert "At stake     2.56 ms, 34.4% of all steps' GPU span" in text
    assert "medium (0.60); limited by: kernels are recognised by name" in text


def test_numbers_carry_interval_and_n():
    text = render(DEQUANT)
    row = line_with(text, "share of the group's GPU span")
    assert row.endswith(" 47.6%  [46.9%, 48.3%]  n=10")
    assert line_with(text, "tensor pipe active").endswith("not measured")


def test_evidence_is_capped_and_counted():
    text = render(DEQUANT, top=2)
    assert "Dequantisation by step   (2 of 7 rows)" in text
    assert text.count("dequantize_int4_kernel") == 2
    assert "(of" not in render(DEQUANT, top=100)


def test_evidence_rows_can_be_selected():
    evidence = Evidence("steps", where={"step": [1, 2]}, columns=("step", "dequant_ns"))
    text = render(replace(DEQUANT, findings=(replace(CRITICAL, evidence=(evidence,)),)))
    assert [line.split() for line in text.splitlines() if line.startswith("       ")][-2:] == [
        ["1", "250"],
        ["2", "261"],
    ]


def test_what_could_not_be_judged_ends_with_the_command_on_one_line():
    text = render(DEQUANT, width=60)
    assert text.rstrip().endswith(COMMAND)
    assert "needs: the compute-triage counters" in text


def test_no_device_activity_is_said_first_and_no_gpu_number_follows():
    text = render(NO_GPU)
    assert text.startswith("No accelerator activity recorded")
    assert "busy" not in text
    assert "GPU 0" not in text


def test_partial_communication_has_two_bounds():
    text = " ".join(render(OPAQUE).split())
    assert "opaque graphs 95.2% of busy (200 ms)" in text
    assert "communication at least 0.48% of 210 ms busy; up to 95.7%" in text


def test_an_error_of_the_profiler_stands_before_the_findings():
    lost = Quality(Level.CRITICAL, "the profiler lost CUDA events", 3)
    lines = render(replace(DEQUANT, quality=(lost,))).splitlines()
    error = next(i for i, line in enumerate(lines) if "Data ERROR" in line)
    assert "the profiler lost CUDA events (3)" in lines[error]
    assert error < next(i for i, line in enumerate(lines) if "CRITICAL" in line)


def test_several_findings_are_listed_before_their_details():
    second = replace(CRITICAL, level=Level.WARN, title="Second", at_stake_ns=None)
    text = render(replace(DEQUANT, findings=(CRITICAL, second)))
    head = text.index("2. WARNING  Second")
    assert head < text.index("Do  ")
    assert "(at stake 2.56 ms, 34.4% of all steps' GPU span)" in " ".join(text[:head].split())


def test_harmless_findings_stay_one_line_until_asked():
    assert "OK  kv_fragmentation: KV relocation copies 1.07 MB" in render(DEQUANT)
    assert "2. OK  KV relocation" in render(DEQUANT, verbose=True)


def test_many_remarks_are_folded():
    remarks = tuple(Quality(Level.OK, f"remark {i}") for i in range(9))
    assert "and 5 more remarks" in render(replace(DEQUANT, quality=remarks))
    assert "remark 8" in render(replace(DEQUANT, quality=remarks), verbose=True)


def test_unreadable_inputs_and_clocks_are_named():
    reports = (REPORT, replace(REPORT, index=1, name="rank1.sqlite"))
    alignment = (
        Alignment(0, 0, None, 0, "one session"),
        Alignment(1, 30, 90.0, 576, "collectives"),
    )
    text = render(
        replace(DEQUANT, reports=reports, alignment=alignment, unreadable={"x.sqlite": "empty"})
    )
    assert "x.sqlite left out: empty" in text
    assert "rank1.sqlite: aligned by collectives, spread 90 ns (MAD, n=576)" in text


def test_idle_time_of_the_profiler_is_told_apart():
    gpu = GpuTime(0, 100_000, 40_000, 0, 60_000, 50_000, 0, 1, 0)
    text = render(replace(DEQUANT, overview=replace(OVERVIEW, gpus=(gpu,))))
    assert "idle 60.0% (60.0 us) of which the profiler itself 50.0 us" in " ".join(text.split())


def test_a_lowered_level_says_so():
    finding = replace(CRITICAL, level=Level.WARN, downgraded_from=Level.CRITICAL)
    assert "would be critical if we were surer" in " ".join(
        render(replace(DEQUANT, findings=(finding,))).split()
    )


def test_colour_only_on_request():
    assert "\x1b[" not in render(DEQUANT)
    assert "\x1b[1;31m" in render(DEQUANT, color=True)


def test_the_surroundings_change_nothing(monkeypatch):
    plain = render(DEQUANT)
    for name, value in {"COLUMNS": "20", "FORCE_COLOR": "1", "TERM": "dumb"}.items():
        monkeypatch.setenv(name, value)
    assert render(DEQUANT) == plain


EVIL = "\x1b]0;owned\x07[bold red]x[/]\r\n\u202e"


def test_names_from_a_trace_reach_the_terminal_escaped():
    frame = pl.DataFrame({"kernel": [EVIL, "k" * 1_000_000]})
    finding = replace(CRITICAL, title=EVIL, scope=((EVIL, EVIL),), advice=EVIL, caveats=(EVIL,))
    diagnosis = replace(
        DEQUANT,
        reports=(replace(REPORT, name=EVIL),),
        findings=(finding,),
        frames={"dequant_stall": {"steps": frame}},
        quality=(Quality(Level.WARN, EVIL),),
    )
    text = render(diagnosis)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "[bold red]x[/]" in text
    assert len(text) < 10_000


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.text(max_size=80), min_size=1, max_size=4),
    st.integers(40, 160),
    st.sampled_from([DEQUANT, NO_GPU, OPAQUE]),
)
def test_every_line_fits_except_commands(names, width, diagnosis):
    frame = pl.DataFrame({f"column_{i}": [n] for i, n in enumerate(names)})
    diagnosis = replace(diagnosis, frames={"dequant_stall": {"steps": frame}})
    for line in render(diagnosis, width=width).splitlines():
        assert cell_len(line) <= width or line.strip() == COMMAND


def test_fit_shortens_text_before_it_drops_a_column_and_never_cuts_a_number():
    rows = [("k" * 40, "1234567", "7654321")]
    assert fit(("name", "a", "b"), rows, (False, True, True), 100).rows == (rows[0],)
    narrow = fit(("name", "a", "b"), rows, (False, True, True), 34)
    assert (narrow.widths, narrow.dropped) == ((16, 7, 7), 0)
    assert narrow.rows[0][1:] == ("1234567", "7654321")
    assert fit(("name", "a", "b"), rows, (False, True, True), 22).dropped == 1


def test_fine_is_not_called_critical():
    text = render(replace(DEQUANT, findings=(FINE,)))
    assert text.startswith("No problem found by the analyses that could judge: 1 fine.")


def test_perspective_comes_before_the_verdict():
    overview = replace(OVERVIEW, perspective=("GPU 0 is busy 7.0% of the span",))
    lines = render(replace(DEQUANT, overview=overview, findings=(FINE,))).splitlines()
    assert lines[0] == "GPU 0 is busy 7.0% of the span"
    assert lines[1].startswith("No problem found")


def test_the_same_reason_is_given_once_for_all_analyses_that_miss_it():
    other = replace(UNKNOWN, id="dequant_stall/missing")
    text = render(replace(DEQUANT, findings=(UNKNOWN, other)))
    assert text.count("L2 hit rate was not sampled") == 1
    assert "?  l2_miss, dequant_stall: L2 hit rate" in text


def test_a_command_that_another_one_covers_is_left_out():
    part = Missing("kernels", command="nsys profile -t cuda,nvtx -o report YOUR_COMMAND")
    other = replace(UNKNOWN, id="dequant_stall/missing", title="no kernels", missing=(part,))
    text = render(replace(DEQUANT, findings=(UNKNOWN, other)))
    assert text.count("nsys profile") == 1
    assert COMMAND in text
