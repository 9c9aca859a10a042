from cupy.cuda import memory_hook  # noqa: F401
from cupy.cuda import memory  # noqa: F401
from cupy.cuda.memory import MemoryPool  # noqa: F401
