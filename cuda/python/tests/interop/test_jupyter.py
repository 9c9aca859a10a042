"""%%gpumem in a real kernel below gpurec run, and in plain IPython.

Run after make build, with ipykernel and nbclient:

    python -m unittest discover -s cuda/python/tests/interop
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support import BIN, PACKAGE, SCRATCH, analyze, bare_environment, record  # noqa: E402

JUPYTER = os.path.join(os.path.dirname(sys.executable), "jupyter")
MiB = 1 << 20

CELLS = (
    "%load_ext gpurec",
    "import asyncio\nfrom gpurec.demo import devices\nd = devices()[0]",
    "%%gpumem\na = d.alloc(100 << 20)\nb = d.alloc(50 << 20)\nd.free(b)",
    "%%gpumem its name\nawait asyncio.sleep(0)\nc = [d.alloc(n << 20) for n in (1, 2)]\n'value'",
    "%%gpumem fails\nd.free(a)\n\ndef f():\n    return 1 / 0\nf()",
    "%%gpumem\n%%time\ne = d.alloc(8 << 20)",
    "%%time\n%%gpumem\npass",
    "%gpumem d.free(e)",
)


def directories():
    """An environment in which Jupyter leaves nothing behind and finds nothing."""
    d = tempfile.mkdtemp(dir=SCRATCH)
    names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    return dict({n: os.path.join(d, n) for n in names}, JUPYTER_PLATFORM_DIRS="1", NO_COLOR="1")


def notebook(cells):
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "n.ipynb")
    made = [dict(cell_type="code", id="c%d" % i, execution_count=None, metadata={}, outputs=[], source=c) for i, c in enumerate(cells)]
    with open(path, "w") as f:
        json.dump(dict(cells=made, metadata={}, nbformat=4, nbformat_minor=5), f)
    return path


def outputs(path):
    """What each cell of a notebook that was run has put out: a dict of texts."""
    with open(path) as f:
        cells = json.load(f)["cells"]
    found = []
    for cell in cells:
        texts = {}
        for o in cell["outputs"]:
            if o["output_type"] == "stream":
                texts[o["name"]] = texts.get(o["name"], "") + "".join(o["text"])
            elif o["output_type"] == "execute_result":
                texts["value"] = "".join(o["data"]["text/plain"])
            elif o["output_type"] == "error":
                texts["error"] = "\n".join([o["ename"], o["evalue"], *o["traceback"]])
        found.append(texts)
    return found


class TestKernel(unittest.TestCase):
    def run_notebook(self, cells, *flags):
        """(what each cell put out, the trace)"""
        path, trace = notebook(cells), os.path.join(tempfile.mkdtemp(dir=SCRATCH), "t.gpurec")
        command = [JUPYTER, "execute", "--inplace", "--allow-errors", "--kernel_name=python3", path]
        record(trace, command, flags=("-q", "--simulate-gpu", *flags), **directories())
        return outputs(path), trace

    def test_cells(self):
        measured, trace = self.run_notebook(CELLS)
        said = [o.get("stdout", "") for o in measured]
        # The same without our line, of which a comment holds the place.
        plain, _ = self.run_notebook(["pass"] + [re.sub("^%%gpumem.*", "#", c) for c in CELLS[1:5]])
        for cell, with_us, without in zip(CELLS[1:], measured[1:], plain[1:]):
            with self.subTest(cell):
                out = re.sub(r"^gpumem .*\n", "", with_us.pop("stdout", ""), flags=re.M)
                self.assertEqual(dict(with_us, stdout=out), dict(without, stdout=""))
        self.assertIn("Wall time", said[5])
        self.assertEqual(measured[3]["value"], "'value'")
        self.assertIn("ZeroDivisionError", measured[4]["error"])
        self.assertNotIn("gpurec", measured[4]["error"])
        self.assertEqual(said[:2], ["", ""])
        known = 0
        for text, name, memory in (
            (said[2], "In[3]", "used 100.00 MiB (104857600), peaked 50.00 MiB (52428800)"),
            (said[3], "its name", "used 3.00 MiB (3145728), peaked 0 B"),
            (said[4], "fails", "used -100.00 MiB (-104857600), peaked 0 B"),
            (said[5], "In[6]", "used 8.00 MiB (8388608), peaked 0 B"),
            (said[7], "d.free(e)", "used -8.00 MiB (-8388608), peaked 0 B"),
        ):
            # On a starved machine the recorder may be late; then nothing else may be said.
            late = r"used and peaked unknown \(gpurec did not answer within 100 ms, asked \d+ times\)"
            self.assertRegex(text, r"(?m)^gpumem %s: (?:%s|%s), \d+\.\d\d\d s$" % (re.escape(name), re.escape(memory), late))
            known += "unknown" not in text
        self.assertGreater(known, 0, said)
        self.assertIn("goes on the first line of its cell", measured[6]["stderr"])

        rows = json.loads(analyze("contexts", "-q", "--json", trace))["scopes"]
        found = {s["name"]: (s["bytes"]["used"], s["bytes"]["peaked"]) for s in rows}
        want = {
            "In[3]": (100 * MiB, 50 * MiB),
            "its name": (3 * MiB, 0),
            "fails": (-100 * MiB, 0),
            "In[6]": (8 * MiB, 0),
            "d.free(e)": (-8 * MiB, 0),
        }
        self.assertEqual({n: found.get(n) for n in want}, want)


class TestIPython(unittest.TestCase):
    """No kernel, no recording: a shell in a process of its own."""

    def run_shell(self, cells, around=()):
        """What each cell printed, in a shell that a command is put around."""
        program = """
            import json, sys
            from IPython.core.interactiveshell import InteractiveShell
            shell = InteractiveShell.instance()
            for cell in json.load(sys.stdin):
                shell.run_cell(cell, store_history=True)
                print("---", flush=True)
            """
        p = subprocess.run(
            [*around, sys.executable, "-c", textwrap.dedent(program)],
            input=json.dumps(cells),
            env=bare_environment(PYTHONPATH=PACKAGE, **directories()),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        self.assertEqual(p.returncode, 0, p.stdout)
        parts = p.stdout.split("---\n")
        self.assertEqual(len(parts), len(cells) + 1, p.stdout)
        return [re.sub("\x1b[^m]*m", "", part) for part in parts[:-1]]

    def test_rows(self):
        time = r"gpumem %s: NVML knows of no device, \d+\.\d\d\d s\n"
        refused = "UsageError: %%gpumem goes on the first line of its cell.*\n"
        rows = (
            ("%load_ext gpurec", "gpurec: not recorded, .*\n"),
            ("%%gpumem\nx = 1\nx + 1", r"Out\[2\]: 2\n+" + time % r"In\[2\]"),
            ("\n%%gpumem  a name  \nx", r"Out\[3\]: 1\n+" + time % "a name"),
            ("%%gpumem\nfrom __future__ import annotations", time % r"In\[4\]"),
            ("%%gpumem\nimport asyncio\nawait asyncio.sleep(0)", time % r"In\[5\]"),
            ("%%gpumem\n\n%%time\ny = 1", "CPU times.*\nWall time.*\n" + time % r"In\[6\]"),
            ("%%gpumem\n\n1 / 0", r"(?s).*line 3.*-> 3 1 / 0.*division by zero\n+" + time % r"In\[7\]"),
            ("\n\n%%gpumem x\nif", "(?s).*SyntaxError.*" + time % "x"),
            ("%%gpumem", time % r"In\[9\]"),
            ("%%gpumemory", "UsageError: Cell magic `%%gpumemory` not found.*\n"),
            ("get_ipython().run_cell('%%gpumem\\n1')\n''", refused + r"Out\[11\]: ''\n+"),
            ("%%time\n%%gpumem\npass", "(?s)" + refused + ".*"),
            ("x = %gpumem 3 + 4\nx", time % r"3 \+ 4" + r"Out\[13\]: 7\n+"),
            ("%gpumem y = x", time % "y = x"),
            ("y", r"Out\[15\]: 7\n+"),
            ("%gpumem 1 / 0", "(?s)" + time % "1 / 0" + ".*division by zero\n+"),
            ("%gpumem", "UsageError: %gpumem STATEMENT, or .*\n"),
            ("print(get_ipython().check_complete('%%gpumem')[0], get_ipython().check_complete('%%gpumem\\n1\\n\\n')[0])", "incomplete complete\n"),
            ("", ""),
            ("%reload_ext gpurec", "gpurec: not recorded, .*\n"),
            ("%%gpumem\n1", r"Out\[\d+\]: 1\n+" + time % r"In\[\d+\]"),
            ("%unload_ext gpurec", ""),
            ("%%gpumem\n1", "UsageError: Cell magic `%%gpumem` not found.*\n"),
        )
        for (cell, want), said in zip(rows, self.run_shell([cell for cell, _ in rows])):
            with self.subTest(cell):
                self.assertRegex(said, "^(?:%s)$" % want if not want.startswith("(?s)") else "(?s)^(?:%s)$" % want[4:])

    def test_outside_a_recording_nvml_says_what_it_knows(self):
        # Below gpurec for the simulated NVML alone: without the socket nothing is recorded.
        trace = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "t.gpurec")
        around = [os.path.join(BIN, "gpurec"), "run", "-q", "--simulate-gpu", "-o", trace, "--", "env", "-u", "GPUREC_SOCKET"]
        said = self.run_shell([*CELLS[:3], "%gpumem d.free(a)"], around)
        self.assertRegex(said[0], "^gpurec: not recorded")
        self.assertRegex(said[2], r"(?m)^gpumem In\[3\]: used 100\.00 MiB \(104857600\) by NVML, of all processes, \d+\.\d\d\d s$")
        self.assertRegex(said[3], r"(?m)^gpumem d\.free\(a\): used -100\.00 MiB \(-104857600\) by NVML")


if __name__ == "__main__":
    unittest.main()
