"""Apply the table of patterns to a name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracekit.errors import UsageError
from tracekit.model.kernels.collectives import Collective, parse_custom, parse_nccl
from tracekit.model.kernels.kinds import KernelKind, KernelName
from tracekit.model.kernels.parts import NameParts, split_name
from tracekit.model.kernels.rules import load_rules

__all__ = ["Classifier", "classify", "classify_parts"]


class Classifier:
    """Classifies kernel names; a user's patterns come before the built-in table.

    Args:
        overrides: Pairs of a class (a :class:`KernelKind` or its value) and a regular expression,
            in order of precedence. Expressions are searched in the whole name as recorded,
            ignoring case.

    Raises:
        UsageError: If a class does not exist or an expression does not compile.
    """

    def __init__(self, overrides: Iterable[tuple[KernelKind | str, str]] = ()) -> None:
        self._overrides = tuple(_override(kind, pattern) for kind, pattern in overrides)

    def classify(self, name: str) -> KernelName:
        """Classify one name.

        Args:
            name: Demangled, mangled or short name.

        Returns:
            What the name says; ``kind`` is ``unclassified`` if no pattern knows it.
        """
        parts = split_name(name)
        lower, rules = parts.lower(), load_rules()
        kind = next((k for k, p in self._overrides if p.search(name)), None) or _kind(lower)
        collective = _collective(kind, parts)
        head = lower.head
        is_fused = kind is KernelKind.CUSTOM_COMM and rules.fused_comm.search(lower.function)
        return KernelName(
            name=name,
            kind=kind,
            op=collective.op,
            named_op=collective.named_op,
            reduction=collective.reduction,
            dtype=collective.dtype,
            algorithm=collective.algorithm,
            fused=bool(is_fused),
            multicast=kind.is_comm and rules.multicast.search(head) is not None,
            family=_family(lower.whole),
        )

    def classify_parts(
        self, demangled: str | None, mangled: str | None = None, short: str | None = None
    ) -> KernelName:
        """Classify a kernel from the spellings that an export holds, most telling first.

        Args:
            demangled: ``demangledName``; ``None`` if absent.
            mangled: ``mangledName``; ``None`` if absent.
            short: ``shortName``; ``None`` if absent. It is ``device_kernel`` for half of CUTLASS,
                so it is asked last.

        Returns:
            The answer of the first spelling that is known; if none is, an ``unclassified`` one
            under the first spelling there is (the empty string if there is none).
        """
        spellings = [name for name in (demangled, mangled, short) if name]
        unknown = KernelName(spellings[0] if spellings else "", KernelKind.UNCLASSIFIED)
        for spelling in spellings:
            answer = self.classify(spelling)
            if answer.kind is not KernelKind.UNCLASSIFIED:
                return answer
            if spelling is spellings[0]:
                unknown = answer
        return unknown


def _override(kind: KernelKind | str, pattern: str) -> tuple[KernelKind, re.Pattern[str]]:
    """Check one override and compile it."""
    try:
        known = KernelKind(kind)
    except ValueError as error:
        kinds = ", ".join(sorted(KernelKind))
        msg = f"kernel class {kind!r} does not exist"
        raise UsageError(msg, hint=f"one of: {kinds}") from error
    try:
        return known, re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        msg = f"kernel pattern {pattern!r} is no regular expression: {error}"
        raise UsageError(msg) from error


def _kind(parts: NameParts) -> KernelKind:
    """Class by the function's own name, else by its namespaces, else by its templates too."""
    rules = load_rules()
    texts = dict.fromkeys((parts.function, parts.head, parts.whole))
    for number, text in enumerate(texts):
        for rule in rules.anywhere if number else rules.rules:
            if rule.matches(text, parts):
                return rule.kind
    return KernelKind.UNCLASSIFIED


def _collective(kind: KernelKind, parts: NameParts) -> Collective:
    """Parse a communication kernel's name; nothing for other classes."""
    if kind is KernelKind.COMM:
        return parse_nccl(parts.head)
    if kind is KernelKind.CUSTOM_COMM:
        return parse_custom(parts.function, parts.scope)
    return Collective()


def _family(whole: str) -> str | None:
    """Library or generator the name points at."""
    return next((f for f, pattern in load_rules().families if pattern.search(whole)), None)


_DEFAULT = Classifier()


def classify(name: str) -> KernelName:
    """Classify one name with the built-in table; see :meth:`Classifier.classify`."""
    return _DEFAULT.classify(name)


def classify_parts(
    demangled: str | None, mangled: str | None = None, short: str | None = None
) -> KernelName:
    """Classify from an export's spellings; see :meth:`Classifier.classify_parts`."""
    return _DEFAULT.classify_parts(demangled, mangled, short)
