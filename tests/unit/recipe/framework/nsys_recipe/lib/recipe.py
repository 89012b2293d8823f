from __future__ import annotations

import inspect
import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path

from nsys_recipe.lib import args


class Context:
    def __init__(self, mode):
        self.mode = mode
        self._pool = ProcessPoolExecutor(2) if mode == "concurrent" else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, function, *iterables, **kwargs):
        apply = map if self._pool is None else self._pool.map
        return list(apply(partial(function, **kwargs), *iterables))

    def wait(self, waitable):
        return waitable


class Recipe:
    def __init__(self, parsed_args):
        self._parsed_args = parsed_args
        self._analysis_dict = {}
        self._output_files = {}
        self.output_dir = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None and self.output_dir is not None:
            shutil.rmtree(self.output_dir)

    @classmethod
    def folder(cls):
        return Path(inspect.getmodule(cls).__file__).parent

    def get_output_dir(self):
        if self.output_dir is None:
            name = self._parsed_args.output or f"{self.folder().name}-1"
            self.output_dir = name
            Path(name).mkdir()
        return self.output_dir

    def add_output_file(self, filename, filetype=None):
        if filetype:
            self._output_files[filename] = filetype
        return str(Path(self.get_output_dir()) / filename)

    def create_notebook(self, name):
        shutil.copy(self.folder() / name, self.add_output_file(name, "Notebook"))

    def create_analysis_file(self):
        name = f"{Path(self.get_output_dir()).name}.nsys-analysis"
        Path(self.add_output_file(name)).write_text(json.dumps(self._analysis_dict))

    def run(self, context):
        self._analysis_dict = {
            "RecipeName": self.folder().name,
            "Mode": context.mode,
            "StartTime": str(datetime.now()),
        }

    @classmethod
    def get_argument_parser(cls):
        return args.ArgumentParser(prog=cls.folder().name)
