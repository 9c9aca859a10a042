"""fastai's readers and GPUMemTrace: texts and states against a stand-in for the
hook, and what NVML alone knows."""

import os
import re
import unittest

from support import HOOK, Case, compile_library

LINE = "△Used Peaked MB: "


class TestTexts(Case):
    """GPUMemTrace over answers that the stand-in makes up (STUB_ANSWER)."""

    def trace(self, program, answer=None, **environment):
        given = {} if answer is None else {"STUB_ANSWER": answer}
        log, out, err = self.run_python("from gpurec import *\n" + program, PYTHONIOENCODING="utf-8", **given, **environment)
        return log, out, err

    def test_arithmetic(self):
        mb = 1 << 20
        rows = [  # begin, end, max in MB: what is printed
            (1000, 1010, 1025, "    10     15"),
            (1000, 1000, 1025, "     0     25"),
            (1010, 1000, 1010, "   -10      0"),
            (1000, 1020, 1020, "    20      0"),
            (500, 450, 900, "   -50    400"),
            (500, 600, 900, "   100    300"),
            (0, 2567, 4004, " 2,567  1,437"),
            (1000.9, 1001.1, 1001.1, "     1      0"),
            (1000, 999.9999, 1000, "    -1      0"),
            (1000.5, 1000.5, 1001.4, "     0      1"),
            (1000.6, 1002.4, 1003.5, "     2      1"),
            (0, 65536, 131072, "65,536 65,536"),
            (199700, 0, 199700, "-199,700      0"),
        ]
        answers = ["0 1 0 %d %d %d" % tuple(int(v * mb) for v in row[:3]) for row in rows]
        _, out, err = self.trace(
            "import os\nfor answer in %r: os.environ['STUB_ANSWER'] = answer; m = GPUMemTrace(); m.report(); print(m, *m.data())" % answers
        )
        lines = out.splitlines()
        self.assertEqual((len(lines), err), (2 * len(rows), ""))
        for i, row in enumerate(rows):
            with self.subTest(row):
                line = LINE + row[3]
                self.assertEqual(lines[2 * i : 2 * i + 2], [line, line + " " + " ".join(row[3].replace(",", "").split())])

    def test_contexts(self):
        rows = {
            "None, None": "",
            "'foobar', None": " (foobar)",
            "None, '1st try'": " (1st try)",
            "'foobar', '1st try'": " (foobar: 1st try)",
            "'', None": " ()",
            "'', ''": " (: )",
            "None, ''": " ()",
            "5, 6": " (5: 6)",
        }
        _, out, err = self.trace("for ctx, sub in ((%s)): GPUMemTrace(ctx=ctx).report(sub)" % "), (".join(rows))
        self.assertEqual((out.splitlines(), err), ([LINE + "     0      0" + want for want in rows.values()], ""))

    def test_block(self):
        rows = {
            "with GPUMemTrace(): pass": LINE + "     0      0 (exit)\n",
            "with GPUMemTrace(ctx='test'): pass": LINE + "     0      0 (test: exit)\n",
            "with GPUMemTrace(ctx='test', on_exit_report=False): pass": "",
            "with GPUMemTrace(silent=True): pass": "",
            "try:\n with GPUMemTrace(): raise KeyError\nexcept KeyError: print('passed')": LINE + "     0      0 (exit)\npassed\n",
        }
        for program, want in rows.items():
            with self.subTest(program):
                self.assertEqual(self.trace(program)[1:], (want, ""))

    def test_silent_can_be_called_and_assigned(self):
        log, out, _ = self.trace(
            """
            m = GPUMemTrace(ctx="x")
            m.silent(); m.report("a"); m.report_n_reset("b")
            print(bool(m.silent), m.silent)
            m.silent(False); m.report("c")
            m.silent = True; m.report("d")
            m.silent(silent=False); m.report()
            """.replace("            ", "")
        )
        self.assertEqual(out, "True True\n%s     0      0 (x: c)\n%s     0      0 (x)\n" % (LINE, LINE))
        # A silent report measures nothing, and begins anew all the same.
        self.assertEqual(log, ["scope_begin x - -> 1", "scope_reset 1", "scope_ask report 1 c", "scope_ask report 1 -", "scope_end 1"])

    def test_states(self):
        rows = {
            "started again it is one scope": (
                "m = GPUMemTrace(); m.start(); m.start(); m.stop()",
                ["scope_begin - - -> 1", "scope_reset 1", "scope_reset 1", "scope_ask end 1 -"],
            ),
            "entered it begins anew": (
                "with GPUMemTrace(on_exit_report=False): pass",
                ["scope_begin - - -> 1", "scope_reset 1", "scope_ask end 1 -"],
            ),
            "stopped twice, reset, reported": (
                "m = GPUMemTrace(); m.stop(); m.stop(); m.reset(); m.data(); m.report_n_reset('r')",
                ["scope_begin - - -> 1", "scope_ask end 1 -", "scope_report 1 r"],
            ),
            "started after a stop it is another": (
                "m = GPUMemTrace(); m.stop(); m.start(); m.stop()",
                ["scope_begin - - -> 1", "scope_ask end 1 -", "scope_begin - - -> 2", "scope_ask end 2 -"],
            ),
            "del ends it": ("m = GPUMemTrace(ctx='a'); del m; mark('after')", ["scope_begin a - -> 1", "scope_end 1", "mark after"]),
            "nested and overlapping": (
                "a = GPUMemTrace(); b = GPUMemTrace(); a.stop(); b.data_bytes(); b.stop()",
                ["scope_begin - - -> 1", "scope_begin - - -> 2", "scope_ask end 1 -", "scope_ask ask 2 -", "scope_ask end 2 -"],
            ),
            "a device": ("m = GPUMemTrace(curve='used', device=2); m.stop()", ["on 2: scope_begin - - -> 1", "scope_ask end 1 -"]),
        }
        for name, (program, want) in rows.items():
            with self.subTest(name):
                log, _, err = self.trace(program)
                self.assertEqual((log, err), (want, ""))

    def test_no_answer_is_said_and_not_zero(self):
        late, dead = "gpurec did not answer within 100 ms", "the recording has ended"
        for outcome, why in ((3, late), (2, dead)):
            with self.subTest(why):
                _, out, err = self.trace(
                    """
try:
    GPUMemTrace().data()
except NoAnswer as e:
    print("raised", e)
with GPUMemTrace(ctx="a") as m:
    m.report("b")
    print(m)
try:
    m.data_bytes()
except NoAnswer as e:
    print("raised", e)
""",
                    "%d 1 0 0 0 0" % outcome,
                )
                lines = ["raised " + why, LINE + "unknown (a: b) [%s]" % why, LINE + "unknown [%s]" % why, LINE + "unknown (a: exit) [%s]" % why]
                self.assertEqual((out.splitlines(), err), (lines + ["raised " + why], ""))

    def test_output_that_takes_no_more_or_not_all_letters(self):
        """The block ends as it would without a report, and where there is no △ the
        numbers are printed all the same."""
        _, out, err = self.trace(
            """
import io, os, sys
good, closed, narrow = sys.stdout, io.StringIO(), io.TextIOWrapper(io.BytesIO(), encoding="ascii")
full, m = open("/dev/full", "w", buffering=1), GPUMemTrace(ctx="a\\udc80")
closed.close()
for sys.stdout in (None, closed, full, narrow, good):
    m.report()
    try:
        with GPUMemTrace(): raise KeyError
    except KeyError: pass
narrow.flush(); os.write(1, narrow.buffer.getvalue())
try: full.close()
except OSError: pass
"""
        )
        lines = [LINE + "     0      0 (a?)", LINE + "     0      0 (exit)"]
        self.assertEqual((sorted(out.splitlines()), err), (sorted(lines + [line.replace("△", "?") for line in lines]), ""))

    def test_copies_end_nothing(self):
        log, out, _ = self.trace(
            "import copy, pickle\nm = GPUMemTrace(ctx='a')\n"
            "for c in (copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m))): print(c); del c\n"
            "mark('copied'); c = copy.copy(m); del m; c.stop(); c.start(); mark('again'); del c"
        )
        want = 3 * ["scope_ask ask 1 -"] + ["mark copied", "scope_end 1", "scope_ask end 1 -", "scope_begin a - -> 2", "mark again", "scope_end 2"]
        self.assertEqual((log, out), (["scope_begin a - -> 1"] + want, 3 * (LINE + "     0      0\n")))

    def test_lost_events_are_said(self):
        _, out, _ = self.trace("GPUMemTrace(ctx='a').report()", "0 1 12 0 0 0")
        self.assertEqual(out, LINE + "     0      0 (a) [partial: 12 events are missing]\n")

    def test_decorator(self):
        _, out, err = self.trace(
            """
import asyncio, functools
@gpu_mem_trace
def experiment1(a, *, b=2):
    "doc"
    return a + b
class NewTestExp:
    @staticmethod
    @gpu_mem_trace
    def experiment2(): return 5
    @gpu_mem_trace
    def method(self): raise ValueError
def outer():
    @gpu_mem_trace
    def inner(): pass
    inner()
@gpu_mem_trace
async def wait(): await asyncio.sleep(0); print("in"); return 7
print(experiment1(1, b=3), experiment1.__doc__, experiment1.__name__)
print(NewTestExp.experiment2())
try: NewTestExp().method()
except ValueError: print("passed")
outer()
print(asyncio.run(wait()))
gpu_mem_trace(functools.partial(print, "partial"))()
"""
        )
        zero = LINE + "     0      0 (%s: exit)"
        want = [zero % "experiment1", "4 doc experiment1", zero % "NewTestExp.experiment2", "5", zero % "NewTestExp.method", "passed"]
        want += [zero % "outer.<locals>.inner", "in", zero % "wait", "7", "partial", zero % "partial"]
        self.assertEqual((out.splitlines(), err), (want, ""))

    def test_curves(self):
        _, out, _ = self.trace("try: GPUMemTrace(curve='both')\nexcept ValueError as e: print(e)\ntry: GPUMemTrace(curve='nvml').data()\nexcept NoAnswer as e: print(e)")
        self.assertEqual(out.splitlines(), ["curve 'both' is none of used, acquired, nvml", "nothing is known of the nvml curve: there was no reading"])

    def test_max_memory(self):
        log, out, _ = self.trace(
            """
a = scope("a")
with a:
    with a: print(max_memory(a), measure(a).peaked, measure(a, "acquired").max)
    max_memory(a)
max_memory(a)
@a
def f(): pass
f(); max_memory(a)
""",
            "0 1 0 5 6 70",
        )
        self.assertEqual(out, "70 64 0\n")
        asked = [line for line in log if line.startswith("scope_ask")]
        self.assertEqual(asked, ["scope_ask ask %d -" % i for i in (2, 2, 2, 1, 1, 3)])

    def test_each_thread_ends_its_own_entry(self):
        log, _, _ = self.trace(
            """
import threading
a, go, done = scope("a"), threading.Event(), threading.Event()
def other():
    with a: go.set(); done.wait()
t = threading.Thread(target=other); t.start(); go.wait()
with a: pass
done.set(); t.join()
"""
        )
        self.assertEqual(log, ["scope_begin a - -> 1", "scope_begin a - -> 2", "scope_end 2", "scope_end 1"])


NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char *uuids[] = {"GPU-aaaa", "GPU-bbbb", "GPU-bccc"};
static long number(const char *name, long otherwise) { const char *s = getenv(name); return s ? atol(s) : otherwise; }
int nvmlInit_v2(void) { return (int)number("NVML_INIT", 0); }
int nvmlDeviceGetCount_v2(unsigned *n) { return *n = 3, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { return *h = (void *)(long)(i + 1), 0; }
int nvmlDeviceGetUUID(void *h, char *to, unsigned n) { return snprintf(to, n, "%s", uuids[(long)h - 1]), 0; }
int nvmlDeviceGetName(void *h, char *to, unsigned n) { return snprintf(to, n, "model %ld", getenv("NVML_MIXED") ? (long)h : 0), 0; }
struct v1 { unsigned long long total, free, used; };
struct v2 { unsigned version; unsigned long long total, reserved, free, used; };
static unsigned long long used(void *h) {
	FILE *f = getenv("NVML_USED") ? fopen(getenv("NVML_USED"), "r") : NULL;
	unsigned long long n = 100ull * (long)h;
	if (f) { if (fscanf(f, "%llu", &n) != 1) n = 0; fclose(f); }
	return n << 20;
}
int nvmlDeviceGetMemoryInfo(void *h, struct v1 *m) { m->total = 1000ull << 20; m->used = used(h) + (5ull << 20); m->free = m->total - m->used; return (int)number("NVML_FAILS", 0); }
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *h, struct v2 *m) {
	if (m->version != (sizeof *m | 2u << 24)) return 25;
	m->total = 1000ull << 20; m->reserved = 5ull << 20; m->used = used(h); m->free = m->total - m->used - m->reserved;
	return (int)number("NVML_FAILS", 0);
}
#endif
"""


class TestReaders(Case):
    def read(self, program, *flags, library=True, **environment):
        path = os.path.join(self.dir, "nvml%s" % "".join(flags), "libnvidia-ml.so.1")
        self.write(path, "not a library")
        if library:
            self.write("nvml.c", NVML)
            os.unlink(path)
            compile_library(path, [os.path.join(self.dir, "nvml.c")], *flags)
        set_up = dict(GPUREC_SOCKET=None, LD_PRELOAD=None, CUDA_VISIBLE_DEVICES=None, CUDA_DEVICE_ORDER=None, PYTHONIOENCODING="utf-8")
        set_up.update(environment)
        _, out, err = self.run_python("from gpurec import *\n" + program, LD_LIBRARY_PATH=os.path.dirname(path), **set_up)
        return out, err

    def test_rows(self):
        first = "GPUMemory(total=1000, free=895, used=100)"
        rows = {
            "the current device": ("print(gpu_mem_get())", {}, first),
            "by id": ("print(gpu_mem_get(0), gpu_mem_get(2).used)", {}, first + " 300"),
            "no such id": ("print(gpu_mem_get(99), gpu_mem_get(-1))", {}, 2 * "GPUMemory(total=0, free=0, used=0) "),
            "no number": ("print(gpu_mem_get('0'), gpu_mem_get(0.0))", {}, 2 * "GPUMemory(total=0, free=0, used=0) "),
            "all": ("print([m.used for m in gpu_mem_get_all()])", {}, "[100, 200, 300]"),
            "fields": ("print(gpu_mem_get_free(), gpu_mem_get_used())", {}, "895 100"),
            "without a cache to empty": ("print(gpu_mem_get_free_no_cache(), gpu_mem_get_used_no_cache())", {}, "895 100"),
            "by handle": ("print(gpu_mem_get_used_fast(gpu_handle(1)))", {}, "200"),
            "most free": ("print(gpu_with_max_free_mem())", {}, "(0, 895)"),
            "most free, equal": ("print(gpu_with_max_free_mem())", dict(NVML_USED="/dev/null"), "(0, 995)"),
            "in its own order": ("print([m.used for m in gpu_mem_get_all()], gpu_mem_get().used)", dict(CUDA_VISIBLE_DEVICES="2,0"), "[300, 100] 300"),
            "by UUID": ("print([m.used for m in gpu_mem_get_all()])", dict(CUDA_VISIBLE_DEVICES="GPU-bb,GPU-a"), "[200, 100]"),
            "by a UUID that two have": ("print(gpu_mem_get_all())", dict(CUDA_VISIBLE_DEVICES="GPU-b"), "[]"),
            "to the first that is none": ("print([m.used for m in gpu_mem_get_all()])", dict(CUDA_VISIBLE_DEVICES="1,-1,0"), "[200]"),
            "twice the same": ("print(gpu_mem_get_all())", dict(CUDA_VISIBLE_DEVICES="0,0"), "[]"),
            "hidden": ("print(gpu_mem_get_all(), gpu_with_max_free_mem(), gpu_mem_get())", dict(CUDA_VISIBLE_DEVICES=""), "[] (None, 0) GPUMemory(total=0, free=0, used=0)"),
            "several models, CUDA's order": ("print(gpu_mem_get_all())", dict(CUDA_VISIBLE_DEVICES="1", NVML_MIXED="1"), "[]"),
            "several models, the bus's order": ("print([m.used for m in gpu_mem_get_all()])", dict(CUDA_VISIBLE_DEVICES="1", NVML_MIXED="1", CUDA_DEVICE_ORDER="PCI_BUS_ID"), "[200]"),
            "NVML does not start": ("print(gpu_mem_get(), gpu_mem_get_all())", dict(NVML_INIT="9"), "GPUMemory(total=0, free=0, used=0) []"),
            "NVML does not answer": ("print(gpu_mem_get(), gpu_with_max_free_mem())", dict(NVML_FAILS="999"), "GPUMemory(total=0, free=0, used=0) (0, 0)"),
            "torch stays unloaded": ("import sys; gpu_mem_get_free_no_cache(); GPUMemTrace().measure(); print('torch' in sys.modules)", {}, "False"),
            "a child of fork": ("import os; gpu_mem_get(); pid = os.fork()\nif pid == 0: print(gpu_mem_get().used, flush=True); os._exit(0)\nos.waitpid(pid, 0)", {}, "100"),
        }
        # Each in a child of its own, as what NVML said first stays.
        out, err = self.read(
            "import os, sys\nfor program, environment in %r:\n    print('---', flush=True); pid = os.fork()\n    if pid == 0:\n"
            "        os.environ.update(environment); exec(program); sys.stdout.flush(); os._exit(0)\n    os.waitpid(pid, 0)"
            % [row[:2] for row in rows.values()]
        )
        found = out.split("---\n")[1:]
        self.assertEqual((len(found), err), (len(rows), ""))
        for (name, (_, _, want)), got in zip(rows.items(), found):
            with self.subTest(name):
                self.assertEqual(got.strip(), want.strip())

    def test_an_older_nvml(self):
        self.assertEqual(self.read("print(gpu_mem_get())", "-DOLD"), ("GPUMemory(total=1000, free=895, used=105)\n", ""))

    def test_no_library(self):
        out, err = self.read("print(gpu_mem_get(), gpu_mem_get_all(), gpu_with_max_free_mem(), GPUMemTrace().data_bytes())", library=False)
        self.assertEqual(out, "GPUMemory(total=0, free=0, used=0) [] (None, 0) MemData(used=0, peaked=0)\n")
        self.assertIn("not recorded", err)

    def test_no_ctypes(self):
        program = "import sys; sys.modules['_ctypes'] = None\nfrom gpurec import *\nwith scope('a') as a: pass\nmark('m')\n"
        program += "print(gpu_mem_get(), gpu_mem_get_all(), gpu_handle(), max_memory(a))\nwith GPUMemTrace(): pass\ntry: measure(a)\nexcept NoAnswer as e: print(e)"
        for environment in (dict(GPUREC_SOCKET=None, LD_PRELOAD=None), {}):
            log, out, _ = self.run_python(program, PYTHONIOENCODING="utf-8", **environment)
            lines = ["GPUMemory(total=0, free=0, used=0) [] None 0", LINE + "     0      0 (exit) [not recorded: NVML's readings of the device, peaked is a lower bound]"]
            self.assertEqual((log, out.splitlines()[:2]), ([], lines))
            self.assertIn("not recorded", out.splitlines()[2])

    def test_visible_devices_as_go_reads_them(self):
        """The rows of cuda/nvml/visible_test.go."""
        with open(os.path.join(os.path.dirname(HOOK), "nvml", "visible_test.go"), encoding="utf-8") as f:
            source = f.read()
        devices = {"nil": []}
        for name, rows in re.findall(r"^\t(\w+) += \[\]Device\{\n(.*?)\n\t\}", source, re.M | re.S):
            devices[name] = [dict(re.findall(r'(\w+): "?([^",}]*)', row)) for row in rows.splitlines()]
        rows = re.findall(r'\{"([^"]*)", (\w+), (unset|"[^"]*"), "([^"]*)"\},', source)
        program = """
from gpurec._nvml import _Device, visible
def device(d): return _Device(None, d["UUID"], d["Name"], d["GPU"], (int(d["GI"]), int(d["CI"])) if "MIG" in d else None)
devices, rows = %r, %r
for _, of, value, _ in rows:
    print(*[d.uuid.split("-")[1] for d in visible(list(map(device, devices[of])), None if value == "unset" else value.strip('"'), None)])
""" % (devices, rows)
        out, err = self.read(program, library=False)
        self.assertEqual((len(out.splitlines()), err), (len(rows), ""))
        self.assertGreater(len(rows), 38)
        for (name, _, value, want), got in zip(rows, out.splitlines()):
            with self.subTest(name, value=value):
                self.assertEqual(got, want)

    def test_b2mb(self):
        rows = {0: 0, 1048575: 0, 1048576: 1, 2097151: 1, -1: 0, -1048577: -1, 1 << 60: 1 << 40}
        out, _ = self.read("print([b2mb(n) for n in %r])" % list(rows))
        self.assertEqual(out, "%r\n" % list(rows.values()))

    def test_traced_by_readings(self):
        used = os.path.join(self.dir, "used")
        program = """
def to(n): open(%r, "w").write(str(n))
to(1000); m = GPUMemTrace(ctx="foobar")
to(1250); m.report(); to(1100); m.report("a")
to(900); m.stop(); to(5); m.report("frozen")
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always"); print(m.data(), m.data_bytes(), len(said))
""" % used
        out, err = self.read(program, NVML_USED=used)
        note = " [not recorded: NVML's readings of the device, peaked is a lower bound]"
        want = ["   250      0 (foobar)", "   100    150 (foobar: a)", "  -100    250 (foobar: frozen)"]
        lines = [LINE + w + note for w in want] + ["MemData(used=-100, peaked=250) MemData(used=%d, peaked=%d) 2" % (-100 << 20, 250 << 20)]
        self.assertEqual((out.splitlines(), err), (lines, ""))

    def test_max_memory_says_that_it_is_none(self):
        out, err = self.read("with scope('a') as a: print(max_memory(a) >> 20)\ntry: measure(a)\nexcept NoAnswer as e: print(e)")
        self.assertEqual(out, "100\nthis process is not recorded: start it with gpurec run\n")
        self.assertIn("no peak", err)

    def test_preload_pytorch(self):
        torch = """
            class cuda:
                available = False
                is_available = staticmethod(lambda: cuda.available)
                is_initialized = staticmethod(lambda: cuda.available)
                current_device = staticmethod(lambda: 1)
                empty_cache = staticmethod(lambda: print("emptied"))
            class ones:
                def __init__(self, shape): print("ones", shape)
                def cuda(self): print("cuda")
            """
        path = self.write("torch.py", torch)
        out, _ = self.read(
            "import torch\npreload_pytorch(); gpu_mem_get_used_no_cache()\ntorch.cuda.available = True\npreload_pytorch()\n"
            "print(gpu_mem_get_used_no_cache(), gpu_mem_get_used(), GPUMemTrace().data_bytes())",
            path=[path],
        )
        # Only what is named so empties a cache.
        self.assertEqual(out.splitlines(), ["ones (1, 1)", "cuda", "emptied", "200 200 MemData(used=0, peaked=0)"])


if __name__ == "__main__":
    unittest.main()
