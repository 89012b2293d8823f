"""How frameworks spell the NVTX ranges of their steps, and which group a step belongs to."""

from __future__ import annotations

import polars as pl

__all__ = ["MARKER", "NAMED", "PROVENANCE", "SOURCE", "step_group", "step_source", "step_tier"]

SOURCE = pl.Enum(["marker", "text", "framework", "function", "graph replay"])
"""Where the knowledge that something is a step comes from, most certain first."""
PROVENANCE = {"marker": 1.0, "text": 1.0, "framework": 1.0, "function": 0.8, "graph replay": 0.6}
"""How sure a step of each source is, 0..1."""
MARKER, NAMED, FUNCTION = 3, 2, 1
"""Tiers: of the ranges of a process only those of the highest tier present are steps."""

_MARKED = r"^(STEP\b|tk\.step$)"
_NUMBERED = r"(?i)(^|[^a-z0-9_])(step|iter|iteration)([ =:#_\[]*)\d+"
_VLLM = r"^execute_(?:\d+_)?context_(\d+)\(.*\)_generation_(\d+)\("
_TRT_LLM = r"_forward_step \d+: (\d+) ctx reqs,(?: \d+ ctx tokens,)? (\d+) gen reqs"
_SGLANG = r"^step\[([A-Z_]+)"
_XLA = r"XlaModule:#(?:prefix=[^,#]*,)?hlo_module=([^,# ]+)"
_TORCH = r"^ProfilerStep#\d+"
_MEGATRON = r"(?:^|\.)train_step$"
_FUNCTION = (
    r"^(?:scheduler\.run_batch|(?:v2_)?gpu_model_runner: forward|forward_step|backward_step)$"
)
_FRAMEWORK = (_VLLM, _TRT_LLM, _SGLANG, _XLA, _TORCH, _MEGATRON)


def step_tier(text: pl.Expr) -> pl.Expr:
    """Return the tier of range texts, Int8; 0 for no step.

    Args:
        text: String column.
    """
    named = _any(text, (_NUMBERED, *_FRAMEWORK))
    return (
        pl.when(text.str.contains(_MARKED))
        .then(MARKER)
        .when(named)
        .then(NAMED)
        .when(text.str.contains(_FUNCTION))
        .then(FUNCTION)
        .otherwise(0)
        .cast(pl.Int8)
        .fill_null(0)
    )


def step_source(text: pl.Expr) -> pl.Expr:
    """Return where it is known from that ranges are steps, Enum `SOURCE`.

    Args:
        text: String column of the texts of steps.
    """
    return (
        pl.when(text.str.contains(_MARKED))
        .then(pl.lit("marker"))
        .when(_any(text, _FRAMEWORK))
        .then(pl.lit("framework"))
        .when(text.str.contains(_FUNCTION))
        .then(pl.lit("function"))
        .otherwise(pl.lit("text"))
        .cast(SOURCE)
    )


def step_group(text: pl.Expr) -> pl.Expr:
    """Return the group of steps, String: the text without what differs from step to step.

    Serving frameworks put the numbers of requests into it, which separates prefill, decode and
    mixed steps.

    Args:
        text: String column of the texts of steps.
    """
    phase = text.str.extract(r"\bphase=(\w+)")
    marker = pl.concat_str(pl.lit("step=N"), pl.format(" phase={}", phase), ignore_nulls=True)
    sglang = text.str.extract(_SGLANG).str.to_lowercase().str.replace("^extend$", "prefill")
    return (
        pl.when(text.str.contains(_MARKED))
        .then(marker)
        .when(text.str.contains(_VLLM))
        .then(_mixture("vLLM", text, _VLLM))
        .when(text.str.contains(_TRT_LLM))
        .then(_mixture("TensorRT-LLM", text, _TRT_LLM))
        .when(text.str.contains(_SGLANG))
        .then(pl.format("SGLang {}", sglang))
        .when(text.str.contains(_XLA))
        .then(pl.format("XLA {}", text.str.extract(_XLA)))
        .when(text.str.contains(_TORCH))
        .then(text.str.replace(r"#\d+", "#N"))
        .otherwise(text.str.replace(_NUMBERED, "${1}${2}${3}N"))
    )


def _any(text: pl.Expr, patterns: tuple[str, ...]) -> pl.Expr:
    return text.str.contains("|".join(f"(?:{p})" for p in patterns))


def _mixture(framework: str, text: pl.Expr, pattern: str) -> pl.Expr:
    """Whether a step prefills, decodes or does both, by its numbers of requests."""
    prefill, decode = (
        text.str.extract(pattern, i).cast(pl.Int64, strict=False) > 0 for i in (1, 2)
    )
    what = (
        pl.when(prefill & decode)
        .then(pl.lit("mixed"))
        .when(prefill)
        .then(pl.lit("prefill"))
        .when(decode)
        .then(pl.lit("decode"))
        .otherwise(pl.lit("empty"))
    )
    return pl.format("{} {}", pl.lit(framework), what)
