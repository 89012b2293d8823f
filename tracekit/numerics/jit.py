"""Numba, as late as possible: kernels that compile at their first call and are then kept on disk.

Numba costs 0.3 s to import and seconds to compile, so a module that declares kernels must not pay
for either. ``compiled`` only remembers the function; the first call imports Numba, loads the
machine code from the user's cache folder, or compiles it once and says so on stderr.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from numba.core.event import Listener

P = ParamSpec("P")
R = TypeVar("R")

# For kernels that take about a microsecond an element as plain Python: up to this many elements
# in a process, loading Numba would take longer than the work.
SMALL = 200_000

WORTH_COMPILING = 500_000
"""Array elements of a call from which on a compiled sweep beats NumPy and loading Numba."""

# One lock for all kernels: the folder of the cache is a global setting of Numba.
_build_lock = threading.RLock()


class Kernel(Generic[P, R]):
    """A function that becomes machine code at its first call.

    Attributes:
        python: The function as written, for a debugger or a comparison.
    """

    def __init__(
        self,
        function: Callable[P, R],
        signatures: tuple[str, ...],
        interpret_below: int,
        options: dict[str, Any],
    ) -> None:
        """Remember what to compile; nothing is imported or compiled here."""
        self.python = cast(FunctionType, function)
        self._signatures = signatures
        self._interpret_below = interpret_below
        self._interpreted = 0
        self._options = options
        self._dispatcher: Callable[P, R] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel; compile or load it first once that is worth its while."""
        if not self._signatures:
            # Compiled kernels are linked with its machine code: only interpreted ones call this.
            return cast("R", self.python(*args, **kwargs))
        dispatcher = self._dispatcher
        if dispatcher is None:
            self._interpreted += sum(getattr(arg, "size", 0) for arg in args)
            if self._interpreted < self._interpret_below:
                return cast("R", self.python(*args, **kwargs))
            dispatcher = self.build()
        return dispatcher(*args, **kwargs)

    def build(self) -> Callable[P, R]:
        """Compile or load every signature now.

        Returns:
            Numba's dispatcher (the plain function under ``NUMBA_DISABLE_JIT=1``).

        Raises:
            TypeError: A kernel that it calls lives in another folder; its cached code could
                become stale unnoticed.
        """
        with _build_lock:
            if self._dispatcher is None:
                self._dispatcher = cast("Callable[P, R]", self._compile_or_repair())
            return self._dispatcher

    def _compile_or_repair(self) -> Callable[..., Any]:
        """Compile; neither a damaged cache nor a full disk may stop an analysis."""
        folder = cache_folder() if self._signatures else None
        try:
            return self._compile(folder)
        except (EOFError, pickle.UnpicklingError):
            if folder is not None:
                shutil.rmtree(folder / _sources_digest(self._home()), ignore_errors=True)
        except OSError:
            folder = None
        return self._compile(folder)

    def _compile(self, folder: Path | None) -> Callable[..., Any]:
        import numba
        from numba.core import event

        function = self._linked()
        config: Any = numba.config
        before = config.CACHE_DIR
        if folder is not None:
            config.CACHE_DIR = str(folder / _sources_digest(self._home()))
        try:
            dispatcher = numba.njit(cache=folder is not None, **self._options)(function)
            if config.DISABLE_JIT:
                return function
            with event.install_listener("numba:compile", _notice(folder)):
                for signature in self._signatures:
                    dispatcher.compile(_parse(signature))
        finally:
            config.CACHE_DIR = before
        if self._signatures:
            dispatcher.disable_compile()
        return cast("Callable[..., Any]", dispatcher)

    def _linked(self) -> FunctionType:
        """The function with the kernels that it calls replaced by what Numba can call."""
        function = self.python
        scope = dict(function.__globals__)
        for name in function.__code__.co_names:
            other = scope.get(name)
            if isinstance(other, Kernel):
                if other._home() != self._home():
                    message = (
                        f"kernel {function.__qualname__} calls {name} of another folder "
                        f"({other._home()}): its cached code could become stale"
                    )
                    raise TypeError(message)
                scope[name] = other.build()
        linked = FunctionType(
            function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
        )
        functools.update_wrapper(linked, function)
        return linked

    def _home(self) -> Path:
        """Return the folder on whose sources the machine code depends."""
        source = Path(self.python.__code__.co_filename)
        own = Path(__file__).parent
        return own if own in source.parents else source.parent


def compiled(
    *signatures: str, nogil: bool = True, interpret_below: int = 0, **options: object
) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Compile a function with Numba, lazily and with a cache on disk.

    Args:
        signatures: Numba signatures, for example ``"int64[::1](ro(int64[::1]), int64)"``. Write
            ``ro(...)`` around an array that the kernel only reads: columns of a data frame are
            often read-only arrays, and a plain signature refuses those. Without a signature the
            function is compiled for whatever it is called with and is not cached: the form for a
            small function that only other kernels **of the same folder** call.
        nogil: Release the GIL inside, so that groups can run on threads.
        interpret_below: Run as plain Python until the calls have been given this many array
            elements in all: Numba takes most of a second to load even from its cache.
        options: Further options of ``numba.njit``.

    Returns:
        A decorator that yields a `Kernel`. Once compiled, calling it with arrays of other dtypes
        or layouts than the signatures raises TypeError.
    """

    def decorate(function: Callable[P, R]) -> Kernel[P, R]:
        return Kernel(function, signatures, interpret_below, {"nogil": nogil, **options})

    return decorate


def accelerated(
    fast: Callable[P, R], *, gain: float = 1.0
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run a compiled form instead of a plain one where the arrays of a call are large.

    Args:
        fast: Takes the same arguments and returns the same as the function decorated, in fewer
            passes; usually a `Kernel`.
        gain: How much an element gains, compared with a usual sweep: what NumPy does nearly as
            well has to be larger before Numba is loaded for it.

    Returns:
        A decorator. What it yields has both forms as attributes ``plain`` and ``fast``.
    """

    def decorate(plain: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(plain)
        def chosen(*args: P.args, **kwargs: P.kwargs) -> R:
            form = fast if gain * _elements(args) >= WORTH_COMPILING else plain
            return form(*args, **kwargs)

        vars(chosen).update(plain=plain, fast=fast)
        return chosen

    return decorate


def _elements(args: tuple[object, ...]) -> int:
    """Return how many elements the arrays among some arguments have, those in tuples included."""
    return sum(
        _elements(arg) if isinstance(arg, tuple) else getattr(arg, "size", 0) for arg in args
    )


def cache_folder() -> Path | None:
    """The first writable folder for machine code, created if need be.

    Returns:
        ``NUMBA_CACHE_DIR`` if the user set it, else ``tracekit/numba`` in the user's cache folder;
        None if it cannot be written (then kernels are compiled in every process).
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(chosen) if chosen else _user_cache() / "tracekit" / "numba"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder


@functools.cache
def _sources_digest(folder: Path) -> str:
    """Name for the machine code made from a folder: constants live in the modules of the kernels.

    Numba checks the file of a kernel only, so a changed constant or function of another file
    would go unnoticed.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return f"{folder.name}-{digest.hexdigest()[:16]}"


def _user_cache() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "darwin":
        return Path("~/Library/Caches").expanduser()
    return Path("~/.cache").expanduser()


def _parse(signature: str) -> object:
    """Evaluate a signature among Numba's type names plus ``ro``."""
    from numba import types

    return eval(signature, {"ro": lambda array: array.copy(readonly=True)}, vars(types))


_noticed = False


def _notice(folder: Path | None) -> Listener:
    """A listener that says once per process that compiling takes a while."""
    from numba.core.event import Event, Listener

    class Notice(Listener):
        def on_start(self, event: Event) -> None:
            del event
            global _noticed
            if not _noticed:
                _noticed = True
                where = f"once, cached in {folder}" if folder else "(no writable cache folder)"
                print(f"tracekit: compiling numeric kernels {where}", file=sys.stderr, flush=True)

        def on_end(self, event: Event) -> None:
            del event

    return Notice()
