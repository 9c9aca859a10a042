"""Which package gpurec this is, and which others the interpreter could have taken.

``gpurec run`` puts its own package first on PYTHONPATH, so in a recording that
one is used, whatever else is installed. Where PYTHONPATH is not looked at (-E,
-I) or --no-python is given, the installed one is, and calls the hook of another
version if it is one: a function that is not there makes it a no-op.
"""

import os
import sys
from typing import Callable, Iterator, Tuple

__version__ = "0.1.0"  # the only place: pip reads it from here

HERE = os.path.dirname(os.path.abspath(__file__))


def others() -> Iterator[Tuple[str, str]]:
    """The packages gpurec of another version that lie where this interpreter
    looks, or would but for its flags: (version, directory)."""
    seen = {HERE}
    for entry in sys.path + os.environ.get("PYTHONPATH", "").split(os.pathsep):
        try:
            directory = os.path.join(os.path.abspath(entry), "gpurec")
            if directory in seen:
                continue
            seen.add(directory)
            with open(os.path.join(directory, "_version.py"), encoding="utf-8") as f:
                lines = f.read(4096).splitlines()
        except (OSError, TypeError, ValueError):
            continue  # nothing there, or an entry that is no path
        for line in lines:
            name, _, value = line.partition(" = ")
            version = value.partition("#")[0].strip().strip("\"'")
            if name == "__version__" and version != __version__:
                yield version, directory


def tell(mark: Callable[[str], None], aloud: bool) -> None:
    """Mark what others there are, and say it on stderr too where that is wanted."""
    for version, directory in others():
        text = "gpurec: package gpurec %s in %s is used, not %s in %s" % (__version__, HERE, version, directory)
        mark(text)
        if aloud and sys.stderr is not None:
            print(text, file=sys.stderr)
