"""What the tests share: a stand-in for the hook, and programs run under it.

    python3 -m unittest discover -s cuda/python/tests

Each test runs a small program in an interpreter of its own, as gpurec run
would start it, and looks at what reached the hook's C API. CuPy is the one in
standin/, and in TestRealCuPy the real one where it can be imported.
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(HERE)
HOOK = os.path.join(os.path.dirname(PACKAGE), "hook")
STANDIN = os.path.join(HERE, "standin")
BIN = os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "bin")  # as make build leaves it

SCRATCH = tempfile.mkdtemp(prefix="gpurec-python-")
atexit.register(shutil.rmtree, SCRATCH)


def compile_library(path, sources, *flags):
    """Compiles sources to a shared library."""
    cc = os.environ.get("CC", "cc")
    subprocess.run(
        [cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared", *flags, "-o", path, *sources],
        check=True,
    )
    return path


@functools.lru_cache(maxsize=None)
def stub(*flags):
    """The stand-in for the hook, with the hook's own cupy.c in it."""
    sources = [os.path.join(HERE, "stub.c"), os.path.join(HOOK, "cupy.c")]
    return compile_library(os.path.join(SCRATCH, "stub%s.so" % "".join(flags)), sources, "-I", HOOK, *flags)


def bare_environment(**changes):
    """This process's environment without what tests, gpurec or a user put there
    for Python; None takes a name out."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GPUREC", "LD_PRELOAD"))}
    env.update(PYTHONDONTWRITEBYTECODE="1", **changes)
    return {k: v for k, v in env.items() if v is not None}


def record(trace, command, flags=(), check=True, **environment):
    """Runs command under the real gpurec run; the finished process, with its texts."""
    p = subprocess.run(
        [os.path.join(BIN, "gpurec"), "run", "-o", trace, *flags, "--", *command],
        env=bare_environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=120,
    )
    if check and p.returncode != 0:
        raise AssertionError("%s: exit %d\n%s%s" % (command, p.returncode, p.stdout, p.stderr))
    return p


def analyze(*arguments):
    """What gpuanalyze prints."""
    command = [os.path.join(BIN, "gpuanalyze"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout


def recording_missing():
    """Why the real gpurec cannot be run here; "" where it can."""
    return "" if os.access(os.path.join(BIN, "gpurec"), os.X_OK) else "there is no bin/gpurec: make build"


class Case(unittest.TestCase):
    stub_flags = ()

    def setUp(self):
        self.dir = tempfile.mkdtemp(dir=SCRATCH)

    def run_python(self, program, flags=(), path=(), **environment):
        """Runs program as gpurec run would; returns (what the hook was told, stdout, stderr)."""
        log = os.path.join(self.dir, "log")
        open(log, "w").close()
        set_up = dict(
            PYTHONPATH=os.pathsep.join([PACKAGE] + list(path)),
            STUB_LOG=log,
            LD_PRELOAD=stub(*self.stub_flags),
            GPUREC_SOCKET="/nowhere",
        )
        set_up.update(environment)
        env = bare_environment(**set_up)
        p = subprocess.run(
            [sys.executable, *flags, "-c", textwrap.dedent(program)],
            env=env,
            cwd=self.dir,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=60,
        )
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        with open(log) as f:
            return f.read().splitlines(), p.stdout, p.stderr

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(textwrap.dedent(text))
        return os.path.dirname(path)
