"""What Prometheus' own parser reads while a job runs is what gpuanalyze says of
the trace afterwards, to the byte.

Run with a Python that has prometheus_client:

    python test_prometheus.py [PATH OF gpurec AND gpuanalyze]

The job is two processes on two simulated devices, one with a pool and one
without. They wait while they are scraped, and do nothing afterwards.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.path.join(HERE, "..", "..", "bin")

# Argument 1 is pool or driver; with a third, more such processes are started.
JOB = r"""
import ctypes, os, subprocess, sys
c = ctypes.CDLL("libcuda.so.1")
assert c.cuInit(0) == 0
def alloc(device, size, pool):
    ctx, p = ctypes.c_void_p(), ctypes.c_uint64()
    assert c.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), device) == 0 and c.cuCtxSetCurrent(ctx) == 0
    if pool:
        return c.cuMemAllocAsync(ctypes.byref(p), ctypes.c_size_t(size), None), p
    return c.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(size)), p
pool = sys.argv[1] == "pool"
for device in 0, 1:
    for i in range(100):
        status, p = alloc(device, 1001 + 10 * i + device, pool)
        assert status == 0
        if i % 3 == 0:
            assert (c.cuMemFreeAsync(p, None) if pool else c.cuMemFree_v2(p)) == 0
    assert alloc(device, 77 << 20, False)[0] == 0
    assert alloc(device, 1 << 50, False)[0] != 0
if len(sys.argv) > 2:
    other = subprocess.Popen([sys.executable, __file__, "driver"], env=dict(os.environ, RANK="1"), stdin=0)
    os.close(1)
    sys.stdin.read()
    sys.exit(other.wait())
print("ready", flush=True)
sys.stdin.read()
"""


def scrape(url: str) -> dict[tuple, float]:
    """Every series by name and labels."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    out: dict[tuple, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type in ("gauge", "counter") and family.documentation, family
        for s in family.samples:
            key = (s.name, *sorted((k, v) for k, v in s.labels.items() if v))
            assert key not in out, f"{key} stands twice"
            out[key] = s.value
    return out


class Prometheus(unittest.TestCase):
    def test_job(self) -> None:
        with tempfile.TemporaryDirectory() as work:
            job, trace = os.path.join(work, "job.py"), os.path.join(work, "t.gpurec")
            with open(job, "w") as f:
                f.write(JOB)
            env = {k: v for k, v in os.environ.items() if not k.startswith("GPUREC_")}
            p = subprocess.Popen(
                [os.path.join(BIN, "gpurec"), "run", "-v", "--simulate-gpu", "--metrics", "0", "-o", trace, "--", sys.executable, job, "pool", "more"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(env, RANK="0"))
            try:
                self.assertEqual(p.stdout.readline(), "ready\n")
                url = ""
                while not (url := re.search(r"http://127\.0\.0\.1:\d+/metrics|$", p.stderr.readline())[0]):
                    pass
                got = scrape(url)
            finally:
                _, said = p.communicate()
            self.assertEqual(p.returncode, 0, said)
            with self.assertRaises(OSError):
                scrape(url)
            self.compare(got, json.loads(subprocess.check_output([os.path.join(BIN, "gpuanalyze"), "summary", "--json", "-q", trace]))["traces"][0])

    def compare(self, got: dict[tuple, float], trace: dict) -> None:
        want: dict[tuple, float] = {("gpurec_recording",): 1, ("gpurec_left_out_series",): 0, ("gpurec_processes",): 2, ("gpurec_closed_lanes_total",): 0,
                                    ("gpurec_lost_events_total",): 0, ("gpurec_out_of_memory_retried_total",): trace["out_of_memory"]["retried"]}
        # The latest one of each process becomes known with what it does next.
        self.assertEqual(trace["out_of_memory"]["told"], 4)
        want["gpurec_out_of_memory_total",] = want["gpurec_out_of_memory_undecided",] = 2
        want["gpurec_events_total",] = trace["events"] - 2  # the processes' ends
        uuids = {}
        for d in trace["devices"]:
            uuids[d["device"]] = d["uuid"]
            of = ("device", str(d["device"])), ("uuid", d["uuid"])
            want["gpurec_device_used_peak_bytes", *of] = d["peak_used"]["bytes"]
            want["gpurec_device_acquired_peak_bytes", *of] = d["peak_acquired"]["bytes"]
            want["gpurec_device_nvml_total_bytes", *of] = d["total"]
            want["gpurec_device_info", of[0], ("name", d["name"]), of[1]] = 1
            # Nothing is taken any more, so what NVML read last stays.
            nvml = {k: got["gpurec_device_nvml_%s_bytes" % k, *of] for k in ("total", "used", "free", "reserved", "used_peak")}
            self.assertEqual(nvml["used"] + nvml["free"] + nvml["reserved"], nvml["total"])
            self.assertLessEqual(nvml["used_peak"], d["peak_nvml"]["bytes"])
        self.assertEqual(len(trace["processes"]), 2)
        layers = set()
        for p in trace["processes"]:
            who = ("process", str(p["pid"])), ("rank", str(p["rank"]))
            layers.add(p["used_layer"])
            want["gpurec_process_failed_allocations_total", *who] = p["failed_allocations"]
            want["gpurec_process_lost_events_total", *who] = 0
            live = 0
            for s in p["sums"]:
                of = ("device", str(s["device"])), *who, ("uuid", uuids[s["device"]])
                by = ("device", str(s["device"])), ("layer", s["layer"]), *who, ("uuid", uuids[s["device"]])
                want["gpurec_allocations_total", *by] = s["count"]
                want["gpurec_allocated_bytes_total", *by] = s["total"]
                if s["layer"] == "driver":
                    want["gpurec_acquired_peak_bytes", *of] = s["peak"]
                if s["layer"] == p["used_layer"]:
                    want["gpurec_used_peak_bytes", *of] = s["peak"]
                    live += got["gpurec_used_bytes", *of]
            self.assertEqual(live, p["live_at_end"], "what is live while nothing happens, and just before the end")
        self.assertEqual(layers, {"pool", "driver"})
        self.assertEqual({k: got.get(k) for k in want}, want)
        for d, uuid in uuids.items():
            of = ("device", str(d)), ("uuid", uuid)
            for metric in ("used", "acquired"):
                self.assertEqual(got["gpurec_device_%s_bytes" % metric, *of],
                                 sum(v for k, v in got.items() if k[0] == "gpurec_%s_bytes" % metric and k[1] == ("device", str(d))))
        for cost in ("process_cpu_seconds_total", "process_resident_memory_bytes"):
            self.assertGreater(got[cost,], 0)

    def test_sample(self) -> None:
        with tempfile.TemporaryDirectory() as work:
            trace = os.path.join(work, "s.gpurec")
            terminal, end = pty.openpty()  # where there is one, it is said where the metrics are
            p = subprocess.Popen([os.path.join(BIN, "gpurec"), "sample", "--simulate-gpu=3", "--metrics", "0", "-o", trace], stderr=end)
            os.close(end)
            try:
                said = ""
                while not (url := re.search(r"http://127\.0\.0\.1:\d+/metrics|$", said)[0]):
                    said += os.read(terminal, 4096).decode()
                for _ in range(600):  # until every device has been read
                    free = {k: v for k, v in scrape(url).items() if k[0] == "gpurec_device_nvml_free_bytes"}
                    if len(free) == 3:
                        break
                    time.sleep(0.1)
            finally:
                p.terminate()
                self.assertEqual(p.wait(), 0)
                os.close(terminal)
            self.assertEqual(len(free), 3)
            devices = json.loads(subprocess.check_output([os.path.join(BIN, "gpuanalyze"), "devices", "--json", "-q", trace]))["traces"][0]["devices"]
            self.assertEqual(sorted(free.values()), sorted(d["free"]["max"] for d in devices))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = sys.argv.pop(1)
    unittest.main()
