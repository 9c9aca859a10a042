"""The built-in example: what ``gpurec demo`` records.

A small program in the shape of a training run. It asks the CUDA driver for
memory directly, so it needs no framework and runs on a real GPU as on the
simulated one: at most about 600 MiB a device, about two seconds. Each epoch
trains on one device and the next on the other, so the device with most free
memory changes with every epoch; a loader thread fetches the next batch while a
step runs; the warm-up ends in the middle of an epoch, as scopes may overlap;
and a little memory is kept after every step, which is what a leak looks like.
"""

import ctypes
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional

try:
    import gpurec
except ImportError:  # started by its path, outside a recording
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import gpurec

MiB = 1 << 20
EPOCHS = 5
STEPS = 2
LAYERS = 4
PAUSE = 0.04  # seconds that a piece of work takes; NVML is read every 0.01


class DriverError(Exception):
    """A call that the driver refused."""


def _driver() -> ctypes.CDLL:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise DriverError("no CUDA driver here (%s); try gpurec demo --simulate-gpu" % e) from None
    _check(driver.cuInit(0), driver.cuInit, ())
    return driver


def _check(status: int, function: Any, arguments: Any) -> Any:
    if status != 0:
        raise DriverError("%s failed with status %d" % (function.__name__, status))
    return arguments


class Device:
    """One device with its primary context.

    alloc(size) -> address and free(address) are the driver's functions
    themselves, not wrapped, so that the innermost line of a stack is the one
    that wanted the memory. They work on the device that the thread last used.
    """

    def __init__(self, driver: ctypes.CDLL, ordinal: int) -> None:
        handle = ctypes.c_int()
        _check(driver.cuDeviceGet(ctypes.byref(handle), ordinal), driver.cuDeviceGet, ())
        self.context = ctypes.c_void_p()
        retain = driver.cuDevicePrimaryCtxRetain
        _check(retain(ctypes.byref(self.context), handle), retain, ())
        self.driver = driver
        status, address, size = ctypes.c_int, ctypes.c_uint64, ctypes.c_size_t
        alloc: Any = ctypes.CFUNCTYPE(status, ctypes.POINTER(address), size)(("cuMemAlloc_v2", driver), ((2, "address"), (1, "size")))
        free: Any = ctypes.CFUNCTYPE(status, address)(("cuMemFree_v2", driver), ((1, "address"),))
        alloc.__name__, free.__name__ = "cuMemAlloc_v2", "cuMemFree_v2"
        alloc.errcheck = free.errcheck = _check
        self.alloc: Callable[[int], int] = alloc
        self.free: Callable[[int], Any] = free
        self.use()

    def use(self) -> None:
        """Make it this thread's device."""
        _check(self.driver.cuCtxSetCurrent(self.context), self.driver.cuCtxSetCurrent, ())


def devices() -> List[Device]:
    """The first two devices, or the only one."""
    driver = _driver()
    count = ctypes.c_int()
    _check(driver.cuDeviceGetCount(ctypes.byref(count)), driver.cuDeviceGetCount, ())
    if count.value == 0:
        raise DriverError("the CUDA driver sees no device")
    return [Device(driver, i) for i in range(min(count.value, 2))]


class Loader:
    """Fetches a batch to a device in a thread of its own, while a step runs."""

    def __init__(self) -> None:
        self.batch = 0
        self.thread: Optional[threading.Thread] = None

    def start(self, device: Device) -> None:
        self.thread = threading.Thread(target=self._fetch, args=(device,), name="loader")
        self.thread.start()

    def _fetch(self, device: Device) -> None:
        device.use()
        with gpurec.scope("prefetch"):
            staging = device.alloc(8 * MiB)
            time.sleep(PAUSE / 2)
            self.batch = device.alloc(24 * MiB)
            device.free(staging)

    def take(self) -> int:
        assert self.thread is not None
        self.thread.join()
        return self.batch


class Model:
    """Weights, the optimizer's state, and what a step needs for a while."""

    def __init__(self, device: Device) -> None:
        device.use()
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
        self.device.use()
        for address in [*self.weights, *self.moments.values()]:
            self.device.free(address)


def train_epoch(model: Model, loader: Loader) -> None:
    """One epoch: the batches stay on the device until it ends."""
    batches: List[int] = []
    model.device.use()
    loader.start(model.device)
    for step in range(STEPS):
        with gpurec.scope("step"):
            batches.append(loader.take())
            if step + 1 < STEPS:
                loader.start(model.device)
            gradients = model.backward(model.forward(batches[-1]))
            model.optimizer_step(gradients)
            model.remember()
    while batches:
        model.device.free(batches.pop())


@gpurec.scope("evaluation")
def evaluate(device: Device) -> None:
    """A large buffer for a short while: the peak of its device."""
    logits = device.alloc(200 * MiB)
    time.sleep(PAUSE)
    device.free(logits)


def main() -> int:
    try:
        models = [Model(device) for device in devices()]
        gpurec.mark("models loaded")
        print("demo: %d epochs of %d steps on %d device(s)" % (EPOCHS, STEPS, len(models)), flush=True)
        loader = Loader()
        with gpurec.scope("training"):
            warm_up = gpurec.scope("warm-up").__enter__()
            for epoch in range(EPOCHS):
                model = models[epoch % len(models)]
                with gpurec.scope("epoch"):
                    train_epoch(model, loader)
                    if epoch + 1 == len(models):
                        warm_up.__exit__()  # inside the epoch: scopes may overlap
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
