from cupy.cuda import memory_hook  # noqa: F401
from cupy.cuda import memory  # noqa: F401
from cupy.cuda.memory import Pool as MemoryPool  # noqa: F401
