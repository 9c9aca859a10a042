"""The built-in example: what ``gpurec demo`` records.

A small program in the shape of a training run. It asks the CUDA driver for
memory directly, so it needs no framework and runs on a real GPU as on the
simulated one: at most about 600 MiB a device, about two seconds. Each epoch
trains on one device and the next on the other, so the device with most free
memory changes with every epoch; a loader thread fetches the next batch while a
step runs, so scopes overlap; and it keeps a little more memory after every
step, which is what a leak looks like.
"""

import ctypes
import os
import sys
import threading
import time
from typing import Dict, List, Optional

try:
    import gpurec
except ImportError:  # started by its path, outside a recording
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import gpurec

MiB = 1 << 20
EPOCHS = 6
STEPS = 3
LAYERS = 4
PAUSE = 0.03  # seconds that a piece of work takes; NVML is read every 0.01


class DriverError(Exception):
    """A call that the driver refused."""


class Driver:
    """The few functions of libcuda.so.1 that the example needs."""

    def __init__(self) -> None:
        try:
            self.lib = ctypes.CDLL("libcuda.so.1")
        except OSError as e:
            raise DriverError("no CUDA driver here (%s); try gpurec demo --simulate-gpu" % e) from None
        self("cuInit", 0)

    def __call__(self, name: str, *args: object) -> None:
        status = getattr(self.lib, name)(*args)
        if status != 0:
            raise DriverError("%s failed with status %d" % (name, status))

    def devices(self) -> "List[Device]":
        count = ctypes.c_int()
        self("cuDeviceGetCount", ctypes.byref(count))
        return [Device(self, i) for i in range(min(count.value, 2))]


class Device:
    """One device with its primary context. alloc and free work on it from any thread."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver, self.ordinal = driver, ordinal
        handle = ctypes.c_int()
        driver("cuDeviceGet", ctypes.byref(handle), ordinal)
        self.context = ctypes.c_void_p()
        driver("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), handle)

    def alloc(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.driver("cuCtxSetCurrent", self.context)
        self.driver("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, *addresses: int) -> None:
        self.driver("cuCtxSetCurrent", self.context)
        for address in addresses:
            self.driver("cuMemFree_v2", ctypes.c_uint64(address))


class Loader:
    """Fetches a batch to a device in a thread of its own, while a step runs."""

    def __init__(self) -> None:
        self.batch = 0
        self.thread: Optional[threading.Thread] = None

    def start(self, device: Device) -> None:
        self.scope = gpurec.scope("prefetch")
        self.scope.__enter__()  # ends in take, inside another step: scopes may overlap
        self.thread = threading.Thread(target=self._fetch, args=(device,), name="loader")
        self.thread.start()

    def _fetch(self, device: Device) -> None:
        staging = device.alloc(8 * MiB)
        time.sleep(PAUSE / 2)
        self.batch = device.alloc(24 * MiB)
        device.free(staging)

    def take(self) -> int:
        assert self.thread is not None
        self.thread.join()
        self.scope.__exit__()
        return self.batch


class Model:
    """Weights, the optimizer's state, and what a step needs for a while."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.weights = [device.alloc(16 * MiB) for _ in range(LAYERS)]
        self.moments: Dict[int, int] = {}
        self.history: List[int] = []

    def forward(self, batch: int) -> List[int]:
        with gpurec.scope("forward"):
            return [self.layer(i) for i in range(LAYERS)]

    def layer(self, index: int) -> int:
        attention = self.device.alloc(64 * MiB)
        time.sleep(PAUSE / LAYERS)
        output = self.device.alloc(48 * MiB)
        self.device.free(attention)
        return output

    def backward(self, activations: List[int]) -> List[int]:
        with gpurec.scope("backward"):
            gradients = []
            while activations:
                gradients.append(self.device.alloc(16 * MiB))
                time.sleep(PAUSE / LAYERS)
                self.device.free(activations.pop())
            return gradients

    def optimizer_step(self, gradients: List[int]) -> None:
        with gpurec.scope("optimizer"):
            for index, gradient in enumerate(gradients):
                if index not in self.moments:
                    self.moments[index] = self.device.alloc(32 * MiB)
                self.device.free(gradient)

    def remember(self) -> None:
        self.history.append(self.device.alloc(1 * MiB))  # never given back: the leak

    def close(self) -> None:
        self.device.free(*self.weights, *self.moments.values())


def train_epoch(model: Model, loader: Loader) -> None:
    """One epoch: the batches stay on the device until it ends."""
    batches = []
    loader.start(model.device)
    for step in range(STEPS):
        with gpurec.scope("step"):
            batches.append(loader.take())
            if step + 1 < STEPS:
                loader.start(model.device)
            gradients = model.backward(model.forward(batches[-1]))
            model.optimizer_step(gradients)
            model.remember()
    model.device.free(*batches)


@gpurec.scope("evaluation")
def evaluate(device: Device) -> None:
    """A large buffer for a short while: the peak of its device."""
    logits = device.alloc(200 * MiB)
    time.sleep(PAUSE)
    device.free(logits)


def main() -> int:
    try:
        devices = Driver().devices()
        if not devices:
            raise DriverError("the CUDA driver sees no device")
        print("demo: %d epochs of %d steps on %d device(s)" % (EPOCHS, STEPS, len(devices)), flush=True)
        models = [Model(d) for d in devices]
        gpurec.mark("models loaded")
        loader = Loader()
        with gpurec.scope("training"):
            for epoch in range(EPOCHS):
                model = models[epoch % len(models)]
                with gpurec.scope("epoch"):
                    train_epoch(model, loader)
                evaluate(model.device)
                time.sleep(PAUSE)
        for model in models:
            model.close()
        kept = sum(len(m.history) for m in models)
        print("demo: done; %d blocks of 1 MiB were kept, one a step" % kept, flush=True)
        return 0
    except DriverError as e:
        print("demo: %s" % e, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
