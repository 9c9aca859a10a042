"""Build a library of pulse segments from vibration recordings, with CuPy.

Every recording is cut into overlapping windows, each window is tapered and
standardised, and the samples around the window's centre go into the library.
At the end one template per recording is computed from the library.
"""
import time

import cupy as cp
import numpy as np
from cupy.lib.stride_tricks import as_strided

RECORDINGS = 200
RATE = 16_000                 # samples per second
SAMPLES = 20 * 60 * RATE      # twenty minutes
WINDOW = 1024
HOP = 80
CENTRE = slice(480, 544)      # the 64 samples that the templates need


class Archive:
    """Stands in for the recordings on disk: one host array, read at offsets."""

    def __init__(self, seed=3):
        rng = np.random.default_rng(seed)
        self.data = rng.standard_normal(SAMPLES + RECORDINGS * 1000, dtype=np.float32)

    def read(self, number):
        start = number * 1000
        return self.data[start:start + SAMPLES]


def cut_windows(signal):
    """Overlapping windows of the signal, without copying it."""
    count = (signal.size - WINDOW) // HOP + 1
    step = signal.itemsize
    return as_strided(signal, shape=(count, WINDOW), strides=(HOP * step, step))


def standardise(windows, taper):
    out = windows * taper
    out -= out.mean(axis=1, keepdims=True)
    out /= out.std(axis=1, keepdims=True) + 1e-6
    return out


def pulse_segments(samples, taper):
    signal = cp.asarray(samples)
    windows = standardise(cut_windows(signal), taper)
    return windows[:, CENTRE]


def build_library(archive):
    n = cp.arange(WINDOW, dtype=cp.float32)
    taper = (0.5 - 0.5 * cp.cos(n * (2 * np.pi / WINDOW))).astype(cp.float32)
    library = {}
    started = time.time()
    for number in range(RECORDINGS):
        library[f"rec{number:04d}"] = pulse_segments(archive.read(number), taper)
        if number % 10 == 9:
            held = sum(a.nbytes for a in library.values()) / 2**30
            print(f"{number + 1:4d} recordings, {held:5.2f} GiB in the library, "
                  f"{time.time() - started:5.1f} s", flush=True)
    return library


def templates(library):
    return cp.stack([segments.mean(axis=0) for segments in library.values()])


def main():
    library = build_library(Archive())
    result = cp.asnumpy(templates(library))
    print("templates", result.shape)


if __name__ == "__main__":
    main()
