"""The recipe's class, for nsys to find; only nsys's recipe framework can import this module."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nsys_recipe.lib import exceptions, recipe
from nsys_recipe.lib.args import Option
from nsys_recipe.log import logger

try:
    from tracekit.errors import TracekitError
    from tracekit.recipe import exports, options, outputs
except ImportError as error:
    message = (
        f"{error}: the Python that runs nsys recipes needs tracekit (Python 3.11 or newer);"
        f" run: {sys.executable} -m pip install tracekit-gpu"
    )
    raise ImportError(message) from None

if TYPE_CHECKING:
    from collections.abc import Sequence


class TracekitDiagnosis(recipe.Recipe):  # type: ignore[misc]
    """Diagnoses the reports that it is given as the ranks of one run."""

    _mapper_func = staticmethod(exports.exported)

    def mapper_func(self, context: Any) -> list[str]:
        """Return the export of every report, in order."""
        mapped: list[str] = context.wait(
            context.map(self._mapper_func, self._parsed_args.input, parsed_args=self._parsed_args)
        )
        return mapped

    def reducer_func(self, reports: Sequence[str], keywords: dict[str, Any]) -> None:
        """Diagnose all reports together and write the answer."""
        parsed = self._parsed_args
        answer = outputs.write(
            reports,
            keywords,
            self.add_output_file,
            redact=parsed.redact,
            keep_nvtx=parsed.keep_nvtx,
            top=parsed.top,
            csv=getattr(parsed, "csv", False),
        )
        for name, reason in answer.unreadable.items():
            logger.warning(f"{name} is left out: {reason}")
        for line in outputs.headlines(answer):
            logger.info(line)

    def save_analysis_file(self) -> None:
        """Write the file that the graphical nsys opens."""
        self.create_notebook("diagnosis.ipynb")
        self._analysis_dict.update(
            {
                "EndTime": str(datetime.now()),
                "InputFiles": [str(path) for path in self._parsed_args.input],
                "Outputs": self._output_files,
            }
        )
        self.create_analysis_file()

    def run(self, context: Any) -> None:
        """Map, reduce, save.

        Raises:
            exceptions.ValueError: No report can be used, or an option has a wrong value.
        """
        super().run(context)
        try:
            keywords = options.analyze_keywords(self._parsed_args)
            self.reducer_func(self.mapper_func(context), keywords)
        except TracekitError as error:
            raise exceptions.ValueError(error.one_line()) from None
        self.save_analysis_file()

    @classmethod
    def get_argument_parser(cls) -> Any:
        """Return nsys's parser with the options of this recipe."""
        complete = super().get_argument_parser()
        complete.add_context_arguments()
        return options.add_options(super().get_argument_parser(), Option, complete.format_usage())
