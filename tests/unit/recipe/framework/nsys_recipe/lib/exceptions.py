from __future__ import annotations


class RecipeException(Exception):  # noqa: N818 - the framework's name
    pass


class NoDataError(RecipeException):
    pass


class ValueError(RecipeException):  # noqa: A001 - the framework's name
    pass
