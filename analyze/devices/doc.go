// Package devices answers which device was freest when, and what each device
// held: gpuanalyze devices.
//
//	history.go  who had the most free memory, as runs; curves with time-weighted means
//	devices.go  Answer: samples and events in, Report out
//	text.go     the Report as text
//
// Free, used and reserved bytes are NVML's and device-wide: all processes,
// CUDA's own contexts, and what the driver keeps. NVML is asked at intervals, so
// those are sampled and are said to be; the acquired curve, the traced
// processes' own driver allocations, comes from every event and is exact.
// The four are never added up: used plus free is not total, since NVML's second
// memory call keeps reserved apart and its first hides it in used.
//
// A device's free bytes are a step function: a reading holds until the next.
// At each moment the device with the most of them is the freest, at a tie the
// one with the lowest index. fastai's gpu_with_max_free_mem compares whole
// MB truncated; here exact bytes are compared.
//
// Without any sample the answer falls back to the devices' totals less what the
// traced processes acquired, and says so: what others hold is then not seen.
// Without totals it says that there is nothing.
//
// It refuses to join devices of several traces: each trace has its own answer.
package devices
