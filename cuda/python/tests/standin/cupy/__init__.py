"""A stand-in for CuPy: what its MemoryHook promises, over memory that isn't there."""

from cupy import cuda  # noqa: F401
