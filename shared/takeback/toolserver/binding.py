"""Calling an author's function with just the parameters that it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any


class Bound:
    """An author's coroutine function, called with those of the offered values that its parameters name.

    A function with ``**rest`` gets them all. Raises `TypeError` at decoration, not at the first call, when a parameter
    is one that nobody offers.
    """

    def __init__(self, function: Callable[..., Awaitable[Any]], offered: Collection[str]) -> None:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} must be an async function")
        self._function = function
        self._names: set[str] | None = set()
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                self._names = None
                return
            if name not in offered:
                raise TypeError(f"{function.__qualname__} asks for {name!r}; it can have {', '.join(sorted(offered))}")
            self._names.add(name)

    async def __call__(self, **values: Any) -> Any:
        if self._names is None:
            return await self._function(**values)
        return await self._function(**{name: value for name, value in values.items() if name in self._names})
