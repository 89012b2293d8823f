"""The one classifier of kernel and API names.

Every place that asks "what kind of work is this kernel?" asks here, so that two tables can never
disagree. Names are classified one by one; a caller applies :func:`classify_parts` to its table of
distinct names, which is small, and joins the answer.

A name that no rule knows is ``unclassified``, never quietly "other": reports show that share.
"""

from __future__ import annotations

from tracekit.model.kernels.api import ApiKind, api_base_name, api_kind
from tracekit.model.kernels.classifier import Classifier, classify, classify_parts
from tracekit.model.kernels.keys import kernel_key
from tracekit.model.kernels.kinds import KernelKind, KernelName

__all__ = [
    "ApiKind",
    "Classifier",
    "KernelKind",
    "KernelName",
    "api_base_name",
    "api_kind",
    "classify",
    "classify_parts",
    "kernel_key",
]
