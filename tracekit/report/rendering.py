"""A diagnosis in each of its forms, by the name of the form."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Literal, get_args

from tracekit.errors import UsageError
from tracekit.model.diagnosis import Diagnosis

__all__ = ["Form", "render", "renderer"]

Form = Literal["html", "json", "markdown", "text"]
_HOMES = {"html": "page", "json": "document", "markdown": "markdown", "text": "text"}


def renderer(form: str) -> Callable[..., str]:
    """Return the function of `tracekit.report` that turns a diagnosis into a form.

    Raises:
        UsageError: There is no such form.
    """
    if form not in _HOMES:
        message = f"no form {form!r} of a diagnosis"
        raise UsageError(message, hint=f"use one of {', '.join(get_args(Form))}")
    found: Callable[..., str] = import_module(f"tracekit.report.{_HOMES[form]}").render
    return found


def render(diagnosis: Diagnosis, form: Form = "text", *, top: int | None = None) -> str:
    """Return a diagnosis as a document.

    What it shows is what the diagnosis holds: to leave private names out, analyse with
    ``OpenOptions(redact="yes")``. The page draws timelines if it was analysed ``with_pictures``.

    Args:
        diagnosis: From `tracekit.analyze`.
        form: "text" (100 columns, no colour), "markdown", "json" (see docs/json.md) or "html".
        top: Rows of each table, None for what is usual in that form.

    Raises:
        UsageError: There is no such form.
    """
    return renderer(form)(diagnosis, top=top)
