"""scopes.sh over the simulated GPU, with a torch whose tensors are the driver's
blocks and whose counters are plain sums: the tables come out, and a number that
is changed shows."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

TORCH = '''
import ctypes, itertools, os, sys
sys.path.insert(0, %r)
from gpurec import _hook, _wire
uint8, objects, now, most = None, itertools.count(1), 0, 0
recorded = _hook.library is not None
if recorded:
    from gpurec.demo import devices
    device = devices()[0]
    device.use()
    take, give = _hook.library.gpurec_pool_alloc, _hook.library.gpurec_pool_free
    take.argtypes = [ctypes.c_uint32, ctypes.c_int32] + 2 * [ctypes.c_uint64] + 3 * [ctypes.c_int64] + [ctypes.c_int32, ctypes.c_uint32, ctypes.c_int32]
    give.argtypes = [ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32]
class empty:
    def __init__(self, n, dtype=None, device=None):
        global now, most
        self.size, self.id = (n + 511) // 512 * 512, next(objects)
        if recorded:
            globals()["device"].use()
            take(_wire.API_CUPY, 0, self.id << 12, self.id, n, self.size, -1, 0, 0, 0)
        now += self.size
        most = max(most, now)
    def __del__(self):
        global now
        if recorded:
            give(_wire.API_CUPY, 0, self.id << 12, self.id, 0)
        now -= self.size
class cuda:
    is_initialized = staticmethod(lambda: False)
    memory_allocated = staticmethod(lambda: now)
    max_memory_allocated = staticmethod(lambda: most)
    @staticmethod
    def reset_peak_memory_stats():
        global most
        most = now
'''


@unittest.skipUnless(os.access(os.path.join(ROOT, "bin", "gpurec"), os.X_OK), "there is no bin/gpurec: make build")
class TestScopes(unittest.TestCase):
    def test_tables(self):
        with tempfile.TemporaryDirectory(prefix="gpurec-scopes-") as out:
            with open(os.path.join(out, "torch.py"), "w") as f:
                f.write(TORCH % os.path.join(ROOT, "cuda", "python"))
            env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "GPUREC"))}
            bin = os.path.dirname(sys.executable)
            env.update(OUT=out, GPUREC_FLAGS="--simulate-gpu", PYTHONPATH=out, TURNS="3", PATH=bin + os.pathsep + env["PATH"], PYTHONDONTWRITEBYTECODE="1")
            p = subprocess.run([os.path.join(HERE, "scopes.sh")], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
            self.assertEqual(p.returncode, 0, p.stdout)
            self.assertEqual(p.stdout.count(" ok"), 16, p.stdout)
            self.assertIn("0 row(s) differ", p.stdout)
            self.assertRegex(p.stdout, r"with 8 open scopes +\d+ ns")
            for file, change in (("record", lambda d: d["scopes"]["late"].update(max=1)), ("reference", lambda d: d["scopes"]["brief"].update(end=1)), ("contexts", lambda d: d["scopes"][0]["bytes"].update(begin=1))):
                path = os.path.join(out, file + ".json")
                with open(path) as f:
                    text = f.read()
                found = json.loads(text)
                change(found)
                with open(path, "w") as f:
                    json.dump(found, f)
                p = subprocess.run([sys.executable, os.path.join(HERE, "scopes.py"), "compare", out], stdout=subprocess.PIPE, universal_newlines=True)
                self.assertEqual(p.returncode, 1, file)
                self.assertIn("differs", p.stdout)
                with open(path, "w") as f:
                    f.write(text)


if __name__ == "__main__":
    unittest.main()
