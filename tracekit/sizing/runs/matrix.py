"""One row a run and kind of step: what a device reached, each number with its confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.sizing.runs.stability import confidence
from tracekit.sizing.unknown import Missing

__all__ = ["COLUMNS", "About", "Cell", "Row", "Seen", "as_table", "row"]

COLUMNS = {
    "effective_tflops": "1e12 FLOP/s",
    "dram_frac": "1",
    "p50_s": "s",
    "p99_s": "s",
    "tokens_per_s": "1/s",
    "mean_w": "W",
    "tokens_per_j": "1/J",
}
"""Columns of the matrix and their units."""
_N_HIGH = 20
_N_P99 = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number.

    Attributes:
        value: The number; None if unknown.
        n: What it rests on: steps, or samples.
        confidence: 0..1; 0 if unknown.
        needs: What would make it known; "" if it is.
    """

    value: float | None
    n: int
    confidence: float
    needs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a trace says of the steps of one kind on one GPU.

    Attributes:
        n_steps: Steps.
        p50_s: Median time of a step.
        p99_s: 99th percentile of it.
        dram_frac: DRAM activity; None if it was not sampled.
        coverage_frac: Sampled share of the steps.
    """

    n_steps: int
    p50_s: float
    p99_s: float
    dram_frac: float | None
    coverage_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What is known of a run next to its trace; None where it is not.

    Attributes:
        model: Name of the model.
        dtype: Format of its weights.
        batch: Sequences a step.
        context: Tokens in the cache of each.
        flops_per_step: FLOPs of one step on one GPU.
        tokens_per_step: Tokens that a step produces.
        gpus: GPUs that share the step.
        mean_w: Measured mean power of one GPU over the run, watts.
        power_samples: Samples of it.
    """

    model: str | None = None
    dtype: str | None = None
    batch: int | None = None
    context: int | None = None
    flops_per_step: float | None = None
    tokens_per_step: float | None = None
    gpus: int = 1
    mean_w: float | None = None
    power_samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the matrix.

    Attributes:
        run: Name of the run.
        device: Name of the GPU.
        gpu: Its index.
        group: Kind of the steps.
        about: What is known next to the trace.
        cells: One a column of :data:`COLUMNS`.
    """

    run: str
    device: str
    gpu: int
    group: str
    about: About
    cells: dict[str, Cell]

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Every unknown cell."""
        return tuple(Missing(name, cell.needs) for name, cell in self.cells.items() if cell.needs)


def row(run: str, device: str, gpu: int, group: str, seen: Seen, about: About) -> Row:
    """Return the row of one kind of step.

    Args:
        run: Name of the run.
        device: Name of the GPU.
        gpu: Its index.
        group: Kind of the steps.
        seen: From the trace.
        about: Known next to it.
    """
    n = seen.n_steps
    sure = confidence(n, _N_HIGH, 1.0, 1.0)
    flops, tokens = about.flops_per_step, about.tokens_per_step
    speed = None if tokens is None else tokens / seen.p50_s
    cells = {
        # The FLOPs are those of the shape that was stated, not counted: at most medium.
        "effective_tflops": _cell(
            None if flops is None else flops / seen.p50_s / 1e12,
            n,
            min(sure, 0.6),
            "needs the model, batch and context of the run: --about",
        ),
        "dram_frac": _cell(
            seen.dram_frac,
            n,
            confidence(n, _N_HIGH, seen.coverage_frac, 1.0),
            "needs DRAM counters: record with --gpu-metrics-devices",
        ),
        "p50_s": _cell(seen.p50_s, n, sure, ""),
        "p99_s": _cell(seen.p99_s, n, confidence(n, _N_P99, 1.0, 1.0), ""),
        "tokens_per_s": _cell(speed, n, sure, "needs the batch of the run: --about"),
        "mean_w": _cell(
            about.mean_w, about.power_samples, sure, "needs power samples of the run: --about"
        ),
        "tokens_per_j": _cell(
            None if speed is None or about.mean_w is None else speed / about.mean_w / about.gpus,
            min(n, about.power_samples),
            sure,
            "needs the batch and power samples of the run: --about",
        ),
    }
    return Row(run=run, device=device, gpu=gpu, group=group, about=about, cells=cells)


def _cell(value: float | None, n: int, conf: float, needs: str) -> Cell:
    if value is None:
        return Cell(value=None, n=0, confidence=0.0, needs=needs)
    return Cell(value=value, n=n, confidence=conf)


def as_table(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return rows with a column a value, its n and its confidence, for CSV."""
    found = []
    for one in rows:
        cells: dict[str, object] = {
            "run": one.run,
            "device": one.device,
            "gpu": one.gpu,
            "steps": one.group,
            "model": one.about.model,
            "dtype": one.about.dtype,
            "batch": one.about.batch,
            "context": one.about.context,
        }
        for name, cell in one.cells.items():
            cells |= {name: cell.value, f"{name}_n": cell.n, f"{name}_conf": cell.confidence}
        found.append(cells)
    return found
