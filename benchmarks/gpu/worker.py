"""What the workers share: they are told by their standard input what to do next.

A line is a command and its arguments; the answer is one line, a number or
"ok". The harness (gpu.go) keeps several workers alive, some of them recorded, and
gives each its turn while all others sleep in a read, so that contenders
alternate within a second although a process cannot change between recorded and not.
"""

import sys

PAUSE = 0.015  # seconds between bursts, in which the recorder empties the lane


def serve(commands):
    """Answers until the input ends. commands: name → function of texts."""
    print("ready", flush=True)
    for line in sys.stdin:
        name, *args = line.split()
        try:
            value = commands[name](*args)
        except Exception as e:  # the harness prints it and leaves this contender out
            value = "error %s: %s" % (type(e).__name__, " ".join(str(e).split()))
        print("ok" if value is None else value, flush=True)


# The frames that are there anyhow when a command calls deeper(n, call): the
# program, serve, the command, and call itself.
BESIDES = 4


def deeper(n, call):
    """Calls it with n frames of this function around it."""
    if n > 1:
        return deeper(n - 1, call)
    return call()


def median(values):
    values = sorted(values)
    return values[len(values) // 2]
