"""Parser and common options. New releases add the output options themselves, at the very end."""

from __future__ import annotations

import argparse
from enum import Enum
from pathlib import Path

from nsys_recipe import OLD

_OLD = "OUTPUT FORCE_OVERWRITE ROWS START END NVTX BASE MANGLED BINS CSV INPUT"
_NEW = f"{_OLD} FILTER_NVTX FILTER_TIME FILTER_PROJECTED_NVTX"
Option = Enum("Option", _OLD if OLD else _NEW)


def _report(text):
    path = Path(text)
    if path.is_dir():
        return [str(p) for p in sorted(path.glob("*.nsys-rep"))]
    if not path.exists() or path.suffix != ".nsys-rep":
        message = f"{text} is not a report"
        raise argparse.ArgumentTypeError(message)
    return text


def _span(text):
    start, end = text.split("/")
    return int(start), int(end)


class _Flat(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        flat = [p for v in values for p in (v if isinstance(v, list) else [v])]
        setattr(namespace, self.dest, flat)


_ARGUMENTS = {
    "OUTPUT": {"type": str},
    "FORCE_OVERWRITE": {"action": "store_true"},
    "START": {"type": int},
    "END": {"type": int},
    "CSV": {"action": "store_true"},
    "INPUT": {"type": _report, "nargs": "+", "action": _Flat},
    "FILTER_TIME": {"type": _span},
}


class ArgumentParser(argparse.ArgumentParser):
    def add_recipe_argument(self, option, *args, **kwargs):
        if not isinstance(option, Option):
            self.add_argument(option, *args, **kwargs)
            return
        flag = "--" + option.name.lower().replace("_", "-")
        self.add_argument(flag, **_ARGUMENTS[option.name], **kwargs)

    def add_context_arguments(self):
        modes = ["none", "concurrent"]
        self.add_argument("--mode", choices=modes, default="concurrent")
        if not OLD:
            self.add_recipe_argument(Option.OUTPUT)
            self.add_recipe_argument(Option.FORCE_OVERWRITE)
            self.add_argument("--export-dir")
