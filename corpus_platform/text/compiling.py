"""Compiles kernels, once for each machine: what was compiled is kept in a folder.

The only module that imports numba. Its folder is the one beside the program, else one in the user's
cache, or the one that NUMBA_CACHE_DIR names.
"""

from collections.abc import Callable
from typing import Any, TypeVar  # Any: a kernel takes whatever arrays it is written for

import numba

from corpus_platform.errors import StageFailed

__all__ = ["inner", "kernel"]

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function that is called from Python; the result is kept on disk.

    Raises StageFailed where there is no folder to keep it in: each process would compile for half a
    minute.
    """
    try:
        compiled: Any = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError as error:
        raise StageFailed(
            f"{function.__module__}: there is no folder that can be written for compiled code"
            f" ({error}); let NUMBA_CACHE_DIR name one"
        ) from error
    return compiled


def inner(function: Function) -> Function:
    """Compile a function that kernels of the same module call."""
    compiled: Any = numba.njit(nogil=True)(function)
    return compiled
