"""The demo, over a driver that only counts."""

import os
import re
import unittest

from support import HERE, Case, compile_library


class TestDemo(Case):
    def demo(self, driver=True, **environment):
        """Runs the demo over driver.c, or over a file that is no library; returns
        what it printed, and the bytes left live and the largest."""
        library = os.path.join(self.dir, "lib", "libcuda.so.1")
        self.write("lib/libcuda.so.1", "")
        if driver:
            compile_library(library, [os.path.join(HERE, "driver.c")])
        log = os.path.join(self.dir, "driver")
        lines, out, err = self.run_python(
            "import gpurec.demo as d; d.PAUSE = 0.0004; print(d.main())",
            LD_LIBRARY_PATH=os.path.dirname(library),
            DRIVER_LOG=log,
            **environment
        )
        live, peak = 0, 0
        if driver:
            with open(log) as f:
                live, peak = map(int, f.read().split())
        return lines, out.splitlines(), err, live, peak

    def test_keeps_what_it_says_and_stays_small(self):
        for devices in (1, 2, 3):
            with self.subTest(devices):
                lines, out, err, live, peak = self.demo(DRIVER_DEVICES=str(devices))
                self.assertEqual(out[-1], "0", err)
                self.assertIn("10 blocks of 1 MiB were kept", out[-2])
                self.assertEqual(live, 10 << 20)
                self.assertLess(peak, min(devices, 2) * (600 << 20))
                begun = [line.split()[1] for line in lines if line.startswith("scope_begin")]
                self.assertEqual(
                    {name: begun.count(name) for name in begun},
                    {
                        **dict(training=1, epoch=5, step=10, prefetch=10, forward=10, backward=10, optimizer=10),
                        **{"evaluation": 5, "warm-up": 1},
                    },
                )
                ended = [line for line in lines if line.startswith("scope_end")]
                self.assertEqual(len(ended), len(begun))

    def test_says_what_failed(self):
        _, out, err, _, _ = self.demo(DRIVER_LIMIT=str(300 << 20))
        self.assertEqual((out[-1], err), ("1", "demo: cuMemAlloc_v2 failed with status 2\n"))

    def test_says_what_is_missing_where_there_is_no_driver(self):
        # A file that is no library: dlopen refuses it, also where there is a real driver.
        _, out, err, _, _ = self.demo(driver=False)
        self.assertEqual(out, ["1"])
        self.assertTrue(re.search(r"^demo: no CUDA driver here \(.*\); try gpurec demo --simulate-gpu$", err), err)


if __name__ == "__main__":
    unittest.main()
