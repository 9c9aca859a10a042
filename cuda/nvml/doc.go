// Package nvml reads what NVIDIA's management library says about the memory of
// every device of this machine, and samples it while something is recorded.
//
//	nvml.go      Open, and the readers: memory, processes, the device with most free memory
//	visible.go   which devices a value of CUDA_VISIBLE_DEVICES leaves, as CUDA reads it
//	sampler.go   one reading per device and interval, passed on where it says something new
//	library.go   go-nvml, the only cgo of the project; library_nocgo.go says that it is missing
//	errors.go    why there is no library, and why a device stopped answering
//
// It promises that a machine without a driver, without the library, with a
// library that does not match its driver, or whose GPU is lost half way, costs
// a sentence and never a recording: Open returns a *LibraryError, a reader a
// *DeviceError, and the program starts everywhere because the library is
// loaded by name and each function is looked up before it is called.
// It refuses to join readings with a trace's devices and processes (the
// recorder does, by UUID and pid), and to change anything on a device.
//
// NVML's numbers are a device's, all processes together. used + free need not
// be total: what the driver keeps for itself is Reserved, which version 2 of
// the memory call tells apart and version 1 counts into Used.
package nvml
