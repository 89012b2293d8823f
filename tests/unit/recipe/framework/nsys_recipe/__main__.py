from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from pathlib import Path

from nsys_recipe.lib import exceptions, recipe
from nsys_recipe.log import logger


def _class(name):
    for folder in ("", os.environ.get("NSYS_RECIPE_PATH", "")):
        file = Path(folder) / name / "metadata.json"
        if not file.exists():
            continue
        metadata = json.loads(file.read_text())
        sys.path.append(folder)
        try:
            module = importlib.import_module(f"{name}.{metadata['module_name']}")
        except ImportError as error:
            logger.error(f"Could not import {name}: {error}")
            sys.exit(1)
        return getattr(module, metadata["class_name"])
    logger.error("Unknown recipe.")
    sys.exit(1)


def main(name, words):
    logging.basicConfig(format="%(levelname)s: %(message)s", level="INFO")
    found = _class(name)
    parser = found.get_argument_parser()
    parser.add_context_arguments()
    parsed = parser.parse_args(words)
    try:
        with recipe.Context(parsed.mode) as context, found(parsed) as running:
            running.run(context)
    except exceptions.ValueError as error:
        logger.error(f"{error}")
        sys.exit(1)
    print(f"Generated:\n    {running.output_dir}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
