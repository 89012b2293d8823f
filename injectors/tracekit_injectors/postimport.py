"""Calls back when the program imports a module, without importing it itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["when_imported"]

Callback = Callable[[ModuleType], None]


class _Finder(MetaPathFinder):
    """Lets the other finders find a watched module, then watches its execution."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callback]] = {}
        self._asking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.callbacks or fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                if finder is self or find is None:
                    continue
                spec: ModuleSpec | None = find(fullname, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Watched(spec.loader, self.callbacks)
                    return spec
            return None
        finally:
            self._asking.discard(fullname)


class _Watched(Loader):
    """A loader that runs callbacks after the real one has executed the module."""

    def __init__(self, loader: Loader, callbacks: dict[str, list[Callback]]) -> None:
        self._loader = loader
        self._callbacks = callbacks

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module sees its own loader, as without this one.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        # Looking a module up is not importing it, so the callbacks wait until here.
        for callback in self._callbacks.pop(module.__name__, []):
            callback(module)


_finder = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback` with the module once it has been imported.

    Args:
        name: Full name of the module.
        callback: Called at once when the module is there already.
    """
    module = sys.modules.get(name)
    if module is not None and getattr(module.__spec__, "_initializing", False) is False:
        callback(module)
        return
    _finder.callbacks.setdefault(name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
