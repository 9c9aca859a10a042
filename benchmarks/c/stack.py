"""What an event costs with a Python stack of so many frames.

    python3 stack.py LIBBENCH FRAMES ROUNDS

The contenders are C functions (burst.c), called with the interpreter's lock
held, as PyTorch's allocator is, from the innermost of FRAMES frames.
"""

import ctypes
import sys


def deeper(frames, call):
    if frames > 1:
        return deeper(frames - 1, call)
    return call()


def main():
    lib = ctypes.PyDLL(sys.argv[1])
    frames, rounds = int(sys.argv[2]), int(sys.argv[3])
    who = b"gns" + (b"w" if lib.burst_can_walk() else b"")
    name = b"HookEvent/stack=python/version=%d.%d/frames=%d" % (sys.version_info[:2] + (frames,))
    # The module, main and the lambda are frames too.
    deeper(frames - 3, lambda: lib.burst_rounds(name, who, rounds, 12, 20000))


main()
