"""Options that say which model does what, shared by the verbs that need a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.cli.sizing._answer import PATH, check, text_of

if TYPE_CHECKING:
    from tracekit.report.text import Lines
    from tracekit.sizing.bounds.workload import Workload
    from tracekit.sizing.models import ModelShape

__all__ = [
    "check_inputs",
    "hardware_option",
    "load_options",
    "model_lines",
    "model_of",
    "workload_of",
]

_FORMATS = ("fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4")
_COMPUTED = ("bf16", "fp16", "fp8", "int8", "int4", "fp4")
_COUNT = click.IntRange(min=1)
_POSITIVE = click.FloatRange(min=0, min_open=True)
_OPTIONS = (
    click.option("--batch", type=_COUNT, default=1, show_default=True, help="Sequences a step."),
    click.option(
        "--context",
        type=_COUNT,
        default=2048,
        show_default=True,
        help="Tokens in the cache of each sequence.",
    ),
    click.option("--prompt", type=_COUNT, help="Tokens of one prompt; the context unless said."),
    click.option("--tp", type=_COUNT, default=1, show_default=True, help="Tensor-parallel GPUs."),
    click.option(
        "--dtype",
        type=click.Choice(_FORMATS),
        help="Format of the weights; what the configuration states, else bf16.",
    ),
    click.option(
        "--compute-dtype",
        type=click.Choice(_COMPUTED),
        help="Format that is multiplied; fp16 for int4 and int8 weights unless said.",
    ),
    click.option(
        "--kv-dtype", type=click.Choice(_FORMATS), help="Format of the cache; bf16 unless said."
    ),
    click.option(
        "--memory-frac",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.9,
        show_default=True,
        help="Share of the memory that weights and cache may take.",
    ),
    click.option(
        "--params", type=_POSITIVE, help="Number of weights, where the count of config.json errs."
    ),
)


def load_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a workload to a verb."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def hardware_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--hardware`` to a verb."""
    return click.option(
        "--hardware",
        metavar="FILE",
        type=PATH,
        help="Devices of your own, or figures in place of the table's (TOML).",
    )(function)


def check_inputs(model: str, options: Mapping[str, Any]) -> None:
    """Refuse outputs that cannot be written or would overwrite a file that is read.

    Raises:
        UsageError: There is one.
    """
    given = [Path(model), options["hardware"], *options.get("reports", ())]
    check(options["outputs"], [path for path in given if path is not None])


def model_of(given: str, options: Mapping[str, Any]) -> ModelShape:
    """Return the shape of a built-in model, a ``config.json`` or a folder that holds one.

    Raises:
        UsageError: No such name.
        InputError: The file cannot be used.
    """
    from dataclasses import replace

    from tracekit.errors import InputError, UsageError
    from tracekit.sizing.models import known_shape, parse_config

    path = Path(given)
    path = path / "config.json" if path.is_dir() else path
    if path.is_file() or path.suffix == ".json":
        try:
            shape = parse_config(text_of(path, "model configuration"))
        except InputError as error:
            raise InputError(error.message, path=path, hint=error.hint) from None
    else:
        shape = known_shape(given)
    if (params := options.get("params")) is not None:
        shape = replace(shape, n_params=int(params))
    if shape.active_params <= 0:
        message = f"--params {params:g} is less than the embedding and the idle experts hold"
        raise UsageError(message)
    return shape


def workload_of(shape: ModelShape, options: Mapping[str, Any]) -> Workload:
    """Return the workload that the options describe, with the model's own formats as defaults."""
    from tracekit.sizing.bounds.precision import default_compute
    from tracekit.sizing.bounds.workload import Workload

    dtype = options["dtype"] or shape.weight_dtype or "bf16"
    return Workload(
        batch=options["batch"],
        context_tokens=options["context"],
        prompt_tokens=options["prompt"] or options["context"],
        tp=options["tp"],
        dtype=dtype,
        compute_dtype=options["compute_dtype"] or default_compute(dtype),
        kv_dtype=options["kv_dtype"] or "bf16",
        memory_frac=options["memory_frac"],
    )


def model_lines(page: Lines, shape: ModelShape, load: Workload) -> None:
    """Write what is being sized."""
    from tracekit.wording.numbers import count, significant

    active = shape.active_params / 1e9
    page.fields(
        [
            (
                "Model",
                f"{shape.name}: {significant(shape.n_params / 1e9)} billion weights, a token is"
                f" multiplied with {significant(active)} billion; {load.dtype} weights,"
                f" {load.kv_dtype} cache, multiplied as {load.compute_dtype}",
            ),
            (
                "Load",
                f"{count(load.batch)} sequences with {count(load.context_tokens)} tokens each,"
                f" prompts of {count(load.prompt_tokens)}, {load.tp} GPU(s)",
            ),
            *(("Assumed", text) for text in shape.assumptions),
        ]
    )
