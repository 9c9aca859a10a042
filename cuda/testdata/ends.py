"""Ends while a daemon is in C: usage ends.py LIBRARY. Memory of 1 byte is taken by
the daemon, of 777 by the thread that ends the interpreter, after its modules."""

import ctypes
import sys
import threading

library = ctypes.CDLL(sys.argv[1])
library.take.argtypes = [ctypes.c_size_t]
inside = threading.Event()


def daemon(depth):
    if depth:
        return daemon(depth - 1)
    library.take(800)
    inside.set()
    library.wait()


class Last:
    def __init__(self):
        self.wake, self.take = library.wake, library.take

    def __del__(self):
        self.wake()
        self.take(777)


sys.modules["last"] = type(sys)("last")  # the daemon's frames keep this one's
sys.modules["last"].last = Last()
threading.Thread(target=daemon, args=(30,), daemon=True).start()
inside.wait()
