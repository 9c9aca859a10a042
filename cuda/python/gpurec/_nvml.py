"""NVML's readings of device memory, through ctypes.

Devices are counted as this process counts them: device 0 is its first one,
also under CUDA_VISIBLE_DEVICES, and joined with NVML's by UUID. Where CUDA's
driver is initialised in this process it is asked; where it is not,
CUDA_VISIBLE_DEVICES is read as the driver reads it (cuda/nvml/visible.go has the
rules). This never initialises CUDA, loads no framework, and a child made by fork
begins anew. Whatever fails is a device that is not there, as all are in a Python without ctypes.
"""

import operator
import os
import struct
import sys
from typing import Any, List, NamedTuple, Optional, Tuple

LIBRARY = "libnvidia-ml.so.1"
DRIVER = "libcuda.so.1"
MAX_DEVICES = 1024


class Memory(NamedTuple):
    """One reading of one device, in bytes, of all processes together."""

    total: int
    free: int
    used: int


try:
    import ctypes
except ImportError:  # built without it, or a sub-interpreter of 3.12
    ctypes = None  # type: ignore[assignment]

_MEMORY_V1 = "QQQ"  # nvml.h's nvmlMemory_t: total, free, used
_MEMORY_V2 = "IQQQQ"  # nvmlMemory_v2_t: version, total, reserved, free, used


class _Device(NamedTuple):
    handle: Any
    uuid: str
    name: str
    gpu: str  # of an instance, the UUID of the GPU that is split; else its own
    instance: Optional[Tuple[int, int]]  # of an instance: GPU instance, compute instance


class _Library:
    """The library, initialised in this process, and its devices in its own order."""

    def __init__(self) -> None:
        self.nvml = ctypes.CDLL(LIBRARY)
        if self.nvml.nvmlInit_v2() != 0:
            raise OSError("NVML cannot be initialised")
        count = ctypes.c_uint()
        self._check(self.nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        self.devices: List[_Device] = []
        for i in range(min(count.value, MAX_DEVICES)):
            handle = ctypes.c_void_p()
            if self.nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(i), ctypes.byref(handle)) == 0:
                self.devices += self._instances(handle) or [self._describe(handle, None, None)]

    def _check(self, status: int) -> None:
        if status != 0:
            raise OSError("NVML says %d" % status)

    def _describe(self, handle: Any, gpu: Optional[str], instance: Optional[Tuple[int, int]]) -> _Device:
        texts = []
        for get in (self.nvml.nvmlDeviceGetUUID, self.nvml.nvmlDeviceGetName):
            text = ctypes.create_string_buffer(96)
            texts.append(text.value.decode("utf-8", "replace") if get(handle, text, ctypes.c_uint(96)) == 0 else "")
        return _Device(handle, texts[0], texts[1], gpu or texts[0], instance)

    def _instances(self, gpu: Any) -> List[_Device]:
        most = ctypes.c_uint()
        try:
            if self.nvml.nvmlDeviceGetMaxMigDeviceCount(gpu, ctypes.byref(most)) != 0:
                return []
            found, own = [], self._describe(gpu, None, None).uuid
            for i in range(min(most.value, 64)):
                handle, gi, ci = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
                if self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, ctypes.c_uint(i), ctypes.byref(handle)) != 0:
                    continue
                self._check(self.nvml.nvmlDeviceGetGpuInstanceId(handle, ctypes.byref(gi)))
                self._check(self.nvml.nvmlDeviceGetComputeInstanceId(handle, ctypes.byref(ci)))
                found.append(self._describe(handle, own, (gi.value, ci.value)))
            return found
        except (AttributeError, OSError):  # a library without instances
            return []

    def memory(self, handle: Any) -> Memory:
        """The second form keeps what the driver reserves out of used; older
        libraries have only the first."""
        second = getattr(self.nvml, "nvmlDeviceGetMemoryInfo_v2", None)
        if second is not None:
            size = struct.calcsize(_MEMORY_V2)
            m = ctypes.create_string_buffer(struct.pack("I", size | 2 << 24), size)
            if second(handle, m) == 0:
                _, total, _, free, used = struct.unpack(_MEMORY_V2, m)
                return Memory(total, free, used)
        m = ctypes.create_string_buffer(struct.calcsize(_MEMORY_V1))
        self._check(self.nvml.nvmlDeviceGetMemoryInfo(handle, m))
        return Memory(*struct.unpack(_MEMORY_V1, m))


_library: Optional[_Library] = None
_failed = False
_pid = 0


def _open() -> Optional[_Library]:
    global _library, _failed, _pid
    if _pid != os.getpid():
        _library, _failed, _pid = None, False, os.getpid()
    if _library is None and not _failed:
        try:
            _library = _Library()
        except (OSError, AttributeError):
            _failed = True
    return _library


def memory(device: Optional[int] = None) -> Optional[Memory]:
    """A reading of one device of this process, of the current one without a
    number; None where there is no such device or it does not answer."""
    found = handle(device)
    return None if found is None else read(found)


def read(found: Any) -> Optional[Memory]:
    """A reading by NVML's own handle."""
    library = _open()
    try:
        return None if library is None else library.memory(found)
    except (OSError, AttributeError):  # its word for no, or a library without the word
        return None


def handle(device: Optional[int] = None) -> Any:
    """NVML's handle of a device of this process, None where there is none."""
    all = handles()
    try:
        number = current() if device is None else operator.index(device)
    except TypeError:
        return None  # no number at all, say a name
    return all[number] if 0 <= number < len(all) else None


def handles() -> List[Any]:
    """NVML's handle of each device of this process, in its order."""
    library = _open()
    if library is None:
        return []
    uuids = _uuids()
    if uuids is not None:
        by = {d.uuid: d.handle for d in library.devices}
        return [by.get(u) for u in uuids]
    set = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [d.handle for d in visible(library.devices, set, os.environ.get("CUDA_DEVICE_ORDER"))]


def current() -> int:
    """The number of this thread's device: the framework's, else the driver's, else 0."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and torch.cuda.is_initialized():
            return int(torch.cuda.current_device())
    except Exception:  # being imported, or built without CUDA
        pass
    driver = _driver()
    if driver is not None:
        device = ctypes.c_int()
        if driver.cuCtxGetDevice(ctypes.byref(device)) == 0:
            return device.value
    return 0


def _driver() -> Any:
    """CUDA's driver, where this process has loaded it."""
    try:
        return ctypes.CDLL(DRIVER, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):
        return None


def _uuids() -> Optional[List[str]]:
    """The UUIDs of this process's devices, where the driver is initialised."""
    driver = _driver()
    if driver is None:
        return None
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return None
    get = getattr(driver, "cuDeviceGetUuid_v2", None) or getattr(driver, "cuDeviceGetUuid", None)
    found = []
    for i in range(min(count.value, MAX_DEVICES)):
        uuid = (ctypes.c_ubyte * 16)()
        if get is None or get(ctypes.byref(uuid), ctypes.c_int(i)) != 0:
            return None
        h = bytes(uuid).hex()
        found.append("-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:])))
    prefixes = {d.uuid.partition("-")[2]: d.uuid for d in (_library.devices if _library else ())}
    return [prefixes.get(u, u) for u in found]  # with NVML's GPU- or MIG- before it


def visible(devices: List[_Device], value: Optional[str], order: Optional[str]) -> List[_Device]:
    """What a program with this value of CUDA_VISIBLE_DEVICES sees, None: it is
    not set. Integers count in CUDA's order, which is NVML's where all devices are
    of one model or CUDA_DEVICE_ORDER is PCI_BUS_ID; elsewhere only CUDA knows,
    and a guess would read one GPU for another: then there is none."""
    if value is None:
        return _one_instance(devices)
    found: List[_Device] = []
    first = ""
    for entry in value.split(","):
        entry = entry.strip()
        sort = entry[:4] if entry[:4] in ("GPU-", "MIG-") else "number"
        first = first or sort
        device = None
        if sort == first == "number":
            gpus = [d for i, d in enumerate(devices) if i == 0 or devices[i - 1].gpu != d.gpu]
            n = _leading_int(entry)
            if 0 <= n < len(gpus):
                if len({d.name for d in devices if d.instance is None}) > 1 and order != "PCI_BUS_ID":
                    return []
                device = gpus[n]
        elif sort == first:
            device = _by_uuid(devices, entry)
        if device is None:
            break  # the list ends at the first entry that names none
        if device in found:
            return []
        found.append(device)
    return _one_instance(found)


def _leading_int(s: str) -> int:
    end = 0
    while end < len(s) and (s[end] in "0123456789" or end == 0 and s[end] in "+-"):
        end += 1
    try:
        return int(s[:end])
    except ValueError:
        return -1


def _by_uuid(devices: List[_Device], entry: str) -> Optional[_Device]:
    if entry.startswith("MIG-GPU-"):  # the older way to name an instance
        part = entry[4:].split("/")
        named = [d for d in devices if d.instance and [d.gpu, *map(str, d.instance)] == part]
        return named[0] if named else None
    found: List[_Device] = []
    for d in devices:
        if d.uuid.startswith(entry):
            found.append(d)
        if d.instance and d.gpu.startswith(entry) and not (found and found[-1].gpu == d.gpu):
            found.append(d)
    return found[0] if len(found) == 1 else None


def _one_instance(devices: List[_Device]) -> List[_Device]:
    """CUDA lets a process use one instance only."""
    for i, d in enumerate(devices):
        if d.instance:
            return devices[: max(i, 1)]
    return devices
