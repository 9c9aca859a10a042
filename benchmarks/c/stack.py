"""What an event costs on so many Python frames.

    python3 stack.py LIBBENCH STACKS FRAMES ROUNDS

STACKS is what gpurec records of them: none, python, native or both.

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
    stacks, frames, rounds = sys.argv[2].encode(), int(sys.argv[3]), int(sys.argv[4])
    who = b"gns" + (b"w" if stacks == b"python" and lib.burst_can_walk() else b"") + (b"b" if stacks in (b"native", b"both") else b"")
    name = b"HookEvent/stack=%s/version=%d.%d/frames=%d" % ((stacks,) + sys.version_info[:2] + (frames,))
    # The module, main and the lambda are frames too.
    deeper(frames - 3, lambda: lib.burst_rounds(name, who, rounds, 12, 20000))


main()
