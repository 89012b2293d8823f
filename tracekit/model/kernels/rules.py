"""The table of name patterns in ``rules.toml``, read when the first name is classified."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from tracekit.model.kernels.kinds import KernelKind
from tracekit.model.kernels.parts import NameParts

__all__ = ["Rule", "Rules", "load_rules", "split_words"]

Search: TypeAlias = Callable[[str], re.Match[str] | None]
_FILE = Path(__file__).with_name("rules.toml")
_WORDS = re.compile(r"(?:[a-z0-9_:]|_\?)+")
_PIECES = re.compile(r"_\?|[a-z0-9:]+|_").findall


class Rule:
    """One row of the table.

    Expressions are for names in lower case; each is compiled when it is first searched, as few
    traces need all of them. What is a plain word needs no expression.

    Args:
        row: The row as written in the file.

    Attributes:
        kind: Class that the rule gives.
        names: Expressions of which the name must match one; empty if the conditions decide alone.
        scope: Expression that namespaces and classes must match as well; None for any.
        template: Expression that the text of the template arguments must match as well.
        is_own: Whether only the function's own name counts.
        source: Project and place that the names come from.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.kind = KernelKind(row["class"])
        self.names: tuple[str, ...] = tuple(row.get("name", ()))
        self.scope: str | None = row.get("scope")
        self.template: str | None = row.get("template")
        self.is_own: bool = row.get("function", False)
        self.source: str = row["source"]
        words, expressions = split_words(self.names)
        self._words = words
        self._text = "|".join(expressions)

    @cached_property
    def _expression(self) -> Search | None:
        return re.compile(self._text).search if self._text else None

    @cached_property
    def _conditions(self) -> tuple[Search | None, Search | None]:
        texts = (self.scope, self.template)
        scope, template = (None if text is None else re.compile(text).search for text in texts)
        return scope, template

    def matches(self, text: str, parts: NameParts) -> bool:
        """Whether the rule decides.

        Args:
            text: The part of the name that is searched, in lower case.
            parts: The whole name, in lower case.
        """
        for word in self._words:
            if word in text:
                break
        else:
            expression = self._expression
            if expression is None:
                if self.names:
                    return False
            elif expression(text) is None:
                return False
        if self.scope is None and self.template is None:
            return True
        scope, template = self._conditions
        if scope is not None and scope(parts.scope) is None:
            return False
        return template is None or template(parts.inner) is not None


def split_words(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the plain words among expressions, which are found much faster, and the others.

    Args:
        names: Expressions. ``all_?reduce`` stands for two words.
    """
    words: list[str] = []
    others: list[str] = []
    for name in names:
        if _WORDS.fullmatch(name):
            words += map(
                "".join, product(*(("", "_") if p == "_?" else (p,) for p in _PIECES(name)))
            )
        else:
            others.append(name)
    return tuple(words), tuple(others)


@dataclass(frozen=True)
class Rules:
    """The whole table.

    Attributes:
        rules: Rules in matching order.
        families: Library or generator and its expression, in matching order.
        multicast: Expression for names that show NVLink multicast.
        fused_comm: Expression for communication kernels that also do other work.
    """

    rules: tuple[Rule, ...]
    families: tuple[tuple[str, re.Pattern[str]], ...]
    multicast: re.Pattern[str]
    fused_comm: re.Pattern[str]

    @cached_property
    def anywhere(self) -> tuple[Rule, ...]:
        """The rules that namespaces and template arguments may decide."""
        return tuple(rule for rule in self.rules if not rule.is_own)


@cache
def load_rules() -> Rules:
    """Return the table, read from the package once."""
    import tomllib  # a report without kernels needs no table

    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return Rules(
        tuple(Rule(row) for row in table["rule"]),
        tuple((family, re.compile(pattern)) for family, pattern in table["families"].items()),
        re.compile(table["multicast"]),
        re.compile(table["fused_comm"]),
    )
