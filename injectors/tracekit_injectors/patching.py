"""How hooks attach to other people's classes without changing what they do.

A hook looks; it never decides. The wrapped function runs exactly once with exactly its arguments,
its result and its exceptions pass through. What the looking itself stumbles over (another version
has other names) switches that one feature off, with one line on stderr.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .emitter import note

__all__ = ["SURPRISES", "after", "around", "guarded", "is_compiling", "wrap"]

SURPRISES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading foreign objects can raise when they are not what the hook was written for."""

_MARK = "__tracekit_original__"
_off: set[str] = set()

Function = Callable[..., Any]


def guarded(feature: str, look: Function) -> Function:
    """Return `look` such that it never raises one of `SURPRISES`.

    Args:
        feature: What is lost when it fails, for the user.
        look: The hook's own function.
    """

    def look_safely(*args: Any, **kwargs: Any) -> Any:
        if feature in _off:
            return None
        try:
            return look(*args, **kwargs)
        except SURPRISES as surprise:
            _off.add(feature)
            where = type(surprise).__name__
            note(f"{feature}: off, since this version is not known ({where} in {look.__name__})")
            return None

    return look_safely


def is_compiling() -> bool:
    """Return whether torch's compiler is tracing the caller, which must then see no hook."""
    torch = sys.modules.get("torch")
    compiler = getattr(torch, "compiler", None)
    ask = getattr(compiler, "is_compiling", None)
    return bool(ask()) if ask is not None else False


def wrap(owner: Any, name: str, make: Callable[[Function], Function]) -> bool:
    """Replace a function of a class or module once.

    Args:
        owner: The class or module.
        name: Name of the function.
        make: Makes the replacement from the original.

    Returns:
        Whether `owner` has the function; a second call changes nothing.
    """
    original = getattr(owner, name, None)
    if original is None:
        return False
    if name in vars(owner) and hasattr(original, _MARK):
        return True
    replacement = functools.wraps(original)(make(original))
    setattr(replacement, _MARK, original)
    setattr(owner, name, replacement)
    return True


def after(owner: Any, name: str, feature: str, look: Function) -> bool:
    """Have `look(result, args, kwargs)` called after each call that returns.

    Args:
        owner: The class or module.
        name: Name of the function.
        feature: What is lost when `look` fails, for the user.
        look: The hook.

    Returns:
        Whether `owner` has the function.
    """
    safe = guarded(feature, look)
    compiling = _compiling_function()

    def make(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
            safe(result, args, kwargs)
            return result

        return call

    return wrap(owner, name, make)


def around(owner: Any, name: str, feature: str, begin: Function, end: Function) -> bool:
    """Have `begin(args, kwargs)` called before each call and `end(token)` after it, on every path.

    Args:
        owner: The class or module.
        name: Name of the function.
        feature: What is lost when a hook fails, for the user.
        begin: Returns a token for `end`, or None when there is nothing to end.
        end: Ends what `begin` began.

    Returns:
        Whether `owner` has the function.
    """
    safe = guarded(feature, begin)
    compiling = _compiling_function()

    def make(original: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(*args, **kwargs)
            token = safe(args, kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                if token is not None:
                    end(token)

        return call

    return wrap(owner, name, make)


def _compiling_function() -> Callable[[], bool]:
    """Return torch's own function where there is one: its tracer folds that to a constant."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", is_compiling)
