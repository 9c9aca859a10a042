"""pip install ./cuda/python, on each CPython here, and beside gpurec run's own copy.

Run after make build, with a Python that has pip and can reach a package index:

    python -m unittest discover -s cuda/python/tests/interop
"""

import functools
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support import PACKAGE, SCRATCH, analyze, bare_environment, record  # noqa: E402

WHERE = "import os, gpurec; print(gpurec.__version__, os.path.dirname(gpurec.__file__), gpurec.active())"


def pythons():
    """The CPythons here that the package is for, by version."""
    found = {}
    for minor in range(9, 15):
        name = "3.%d" % minor
        for p in ["python" + name] + sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/%s.*/bin/python3" % name))):
            p = shutil.which(p)
            if p and subprocess.run([p, "-c", "import venv"], stderr=subprocess.DEVNULL).returncode == 0:
                found.setdefault(name, p)
    return found


def run(*command, **environment):
    p = subprocess.run(
        command, env=bare_environment(**environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    )
    if p.returncode != 0:
        raise AssertionError("%s: exit %d\n%s" % (command, p.returncode, p.stdout))
    return p.stdout


def wheel(source):
    """A wheel of the package in source, made as pip install makes it."""
    directory = tempfile.mkdtemp(dir=SCRATCH)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", directory, source)
    (path,) = glob.glob(os.path.join(directory, "*.whl"))
    return path


@functools.lru_cache(maxsize=None)
def environment(python, *wheels):
    """A virtual environment of python with these wheels, its interpreter."""
    directory = tempfile.mkdtemp(dir=SCRATCH)
    run(python, "-m", "venv", "--without-pip", directory)
    inside = os.path.join(directory, "bin", "python")
    for w in wheels:
        run(sys.executable, "-m", "pip", "--python", inside, "install", "--quiet", "--no-deps", "--no-index", w)
    return inside


class TestInstall(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel = wheel(PACKAGE)
        cls.pythons = dict(pythons(), **{"%d.%d" % sys.version_info[:2]: sys.executable})
        newer = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "python")
        shutil.copytree(PACKAGE, newer, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        path = os.path.join(newer, "gpurec", "_version.py")
        with open(path) as f:
            text = f.read()
        cls.version = text.partition('__version__ = "')[2].partition('"')[0]
        with open(path, "w") as f:
            f.write(text.replace('__version__ = "%s"' % cls.version, '__version__ = "99.1"'))
        cls.newer = wheel(newer)

    def trace(self):
        return os.path.join(tempfile.mkdtemp(dir=SCRATCH), "t.gpurec")

    def test_the_wheel_is_the_package_and_nothing_else(self):
        with zipfile.ZipFile(self.wheel) as z:
            names = z.namelist()
        self.assertRegex(os.path.basename(self.wheel), r"^gpurec-%s-py3-none-any\.whl$" % self.version)
        package = {"gpurec/" + n for n in os.listdir(os.path.join(PACKAGE, "gpurec")) if n != "__pycache__"}
        self.assertEqual({n for n in names if ".dist-info/" not in n}, package)
        self.assertIn("gpurec/py.typed", package)
        self.assertEqual({os.path.splitext(n)[1] for n in package}, {".py", ".typed"})

    def test_installs_and_works_outside_a_recording(self):
        for version, python in self.pythons.items():
            with self.subTest(version):
                inside = environment(python, self.wheel)
                out = run(inside, "-c", WHERE).split()
                self.assertEqual((out[0], out[2]), (self.version, "False"))
                self.assertTrue(out[1].startswith(os.path.dirname(os.path.dirname(inside))), out)
                out = run(inside, "-c", "import gpurec\nwith gpurec.scope('a'): gpurec.mark('b')\nprint('on')")
                self.assertEqual(out, "on\n")
                out = run(inside, "-c", "import sys; print('gpurec' in sys.modules, 'sitecustomize' in sys.modules)")
                self.assertEqual(out, "False False\n", "an installed package changed the start of an interpreter")

    def test_which_one_a_recording_uses_and_that_it_says_so(self):
        # name: (gpurec's flags, python's flags, whether its own copy is used)
        rows = {
            "its own, first on the path": ((), (), True),
            "its own, without site": ((), ("-S",), True),
            "its own, without the user's site": ((), ("-s",), True),
            "the installed one, isolated": ((), ("-I",), False),
            "the installed one, no environment": ((), ("-E",), False),
            "the installed one, --no-python": (("--no-python",), (), False),
        }
        inside = environment(self.pythons[max(self.pythons, key=lambda v: int(v[2:]))], self.newer)
        prefix = os.path.dirname(os.path.dirname(inside))
        for name, (flags, options, own) in rows.items():
            with self.subTest(name):
                trace = self.trace()
                p = record(trace, [inside, *options, "-c", WHERE], flags=flags)
                version, where, active = p.stdout.split()
                self.assertEqual((version, active), (self.version if own else "99.1", "True"))
                self.assertEqual(where.startswith(prefix), not own, where)
                self.assertEqual(p.stderr, "")
                marks = [line for line in analyze("events", "-q", trace).splitlines() if "package gpurec" in line]
                said = "gpurec: package gpurec %s in %s is used, not %s in " % (
                    (self.version, where, "99.1") if own else ("99.1", where, self.version)
                )
                # -S keeps the environment's packages off the path; --no-python has one copy only.
                alone = "-S" in options or "--no-python" in flags
                self.assertEqual(len([m for m in marks if said in m]), 0 if alone else 1, marks)
                aloud = record(self.trace(), [inside, *options, "-c", WHERE], flags=("-v", *flags)).stderr
                self.assertEqual(said in aloud, not alone, aloud)

    def test_equal_versions_need_no_words(self):
        inside = environment(sys.executable, self.wheel)
        trace = self.trace()
        p = record(trace, [inside, "-c", WHERE])
        self.assertEqual(p.stdout.split()[0], self.version)
        self.assertNotIn("package gpurec", analyze("events", "-q", trace))

    def test_a_sitecustomize_of_the_environment_runs(self):
        inside = environment.__wrapped__(sys.executable, self.wheel)  # not one that others share
        (site,) = glob.glob(os.path.join(os.path.dirname(inside), "..", "lib", "python3*", "site-packages"))
        with open(os.path.join(site, "sitecustomize.py"), "w") as f:
            f.write("import sys; sys.theirs = __file__\n")
        program = "import sys, sitecustomize as s; print(sys.theirs == s.__file__, s.__file__)"
        bare = run(inside, "-c", program)
        self.assertTrue(bare.startswith("True "), bare)
        for flags in ((), ("--no-python",)):
            self.assertEqual(record(self.trace(), [inside, "-c", program], flags=flags).stdout, bare)


if __name__ == "__main__":
    unittest.main()
