"""What a scope has measured so far, from the recorder.

The answer is the recorder's own fold of everything that this process published
before the question, so an analysis of the trace finds the same number.
"""

import struct
import sys
from typing import Any, NamedTuple, Optional

from gpurec import _hook, _wire

CURVES = ("used", "acquired", "nvml")  # in the wire's order
ONLY, REPORT, END = 0, 1, 2  # gpurec.h: GPUREC_ASK_…

MB = 1 << 20


class NoAnswer(Exception):
    """The recorder could not be asked, or did not answer in time. Its text says why;
    late is whether it may answer another time."""

    late = False


class Measure(NamedTuple):
    """What a scope measured on one curve, in bytes."""

    begin: int  # when it began, or was last reset
    end: int  # now, or when it ended
    max: int  # the largest in between, both ends included
    lost: int = 0  # events that are missing in these numbers
    layer: str = ""  # of used: pool, or driver where the process has had no pool event so far

    @property
    def used(self) -> int:
        """What it left behind; negative where it gave memory back."""
        return self.end - self.begin

    @property
    def peaked(self) -> int:
        """What it needed beyond both of its ends; never negative."""
        return self.max - max(self.begin, self.end)

    def mb(self) -> "Measure":
        """In whole MB as fastai counts: each cut toward zero, before anything is
        subtracted."""
        return Measure(b2mb(self.begin), b2mb(self.end), b2mb(self.max), self.lost, self.layer)


def b2mb(n: int) -> int:
    """Bytes as whole MB (2^20 bytes), cut toward zero."""
    return int(n) // MB if n >= 0 else -(-int(n) // MB)


_MEASURES = "=IIQ3q3q3q"  # gpurec.h's gpurec_measures: known, state, lost, begin, end, max

TOO_LATE = 3  # of gpurec.h's outcomes, the one that asking again may change
WHY = (  # by gpurec.h's outcomes
    "",
    "this process is not recorded: start it with gpurec run",
    "the recording has ended",
    "gpurec did not answer within 100 ms",
    "the question found no room in this thread's buffer",
    "gpurec does not know the scope: its begin was lost, it was begun in another process or before an exec, or over 1,000 ended since",
)


def ask(scope: int, curve: str, how: int = ONLY, subcontext: Optional[str] = None) -> Measure:
    """What the scope of a number has measured on a curve; raises NoAnswer."""
    if scope == 0 and _hook.active():
        raise NoAnswer("the scope has not begun")
    if _hook.library is None:
        raise NoAnswer(WHY[1])
    import ctypes  # the hook is called through it

    i = CURVES.index(curve)
    found = ctypes.create_string_buffer(struct.calcsize(_MEASURES))
    text = None if subcontext is None else _hook.text(subcontext)
    outcome = _hook.scope_ask(scope, how, text, found)
    if outcome != 0:
        why = NoAnswer(WHY[outcome] if 0 < outcome < len(WHY) else "the hook says %d" % outcome)
        why.late = outcome == TOO_LATE
        raise why
    known, state, lost, *curves = struct.unpack(_MEASURES, found)
    if not known >> i & 1:
        raise NoAnswer("nothing is known of the %s curve: there was no reading" % curve)
    layer = ("pool" if state == _wire.ANSWER_POOL else "driver", "driver", "")[i]
    return Measure(curves[i], curves[3 + i], curves[6 + i], lost, layer)


def say(text: str, file: Any = None, flush: bool = False) -> None:
    """Write to a file, or to standard output as it is at the moment. What the
    encoding there cannot hold is replaced. Standard output that is closed or takes no
    more ends no program: it may have said all that it had to."""
    try:
        try:
            print(text, end="", file=file, flush=flush)
        except UnicodeEncodeError:
            coding = getattr(sys.stdout if file is None else file, "encoding", None) or "ascii"
            print(text.encode(coding, "replace").decode(coding), end="", file=file, flush=flush)
    except (OSError, ValueError):
        if file is not None:
            raise
