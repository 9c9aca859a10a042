// Package oom answers why memory ran out: gpuanalyze oom.
//
//	report.go    Report, Failure: what is said
//	causes.go    thresholds, and the causes that they give
//	remedies.go  what the numbers support doing about them
//	oom.go       Answer: how it comes together
//	tries.go     what becomes of requests: failures, retries, other reasons
//	picture.go   what the device, the process and its pool held at that moment
//	readings.go  NVML's readings around it
//	growth.go    what grew until then, from step to step
//	text.go      the Report as text
//
// A request that the driver refuses, and its pool's report, are one failure; what
// a retry then gets is listed apart, because the program never knows: see
// live.Refusals. A pool that reports a failure without asking the driver has a
// limit of its own.
//
// Causes are named where thresholds are reached, each with the bytes that it
// stands for; what is inferred says so.
package oom
