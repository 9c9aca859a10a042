// Package peak answers what was live when memory use was highest: gpuanalyze
// peak.
//
//	peak.go      Answer: the highest moment of each device and process
//	scopes.go    which scopes were open then
//	physical.go  what the driver's allocations take of the device
//	readings.go  NVML's readings, and what of them the recording does not say
//	parts.go     Parts: what NVML's number was made of
//	report.go    Report
//	text.go      the Report as text
//
// The peak is that of used bytes, exact, and the first of several equal ones.
//
// The parts add up to NVML's number at the reading that fits the peak best. Used,
// pool slack and what was taken outside pools are sums of events. Rounding is
// inferred from addresses: the driver hands out granules of 2 MiB and puts small
// allocations into one. Contexts and modules are the steps by which NVML's number
// for a process grew beyond that; as long as it had taken nothing they are its
// context, later ones are modules up to a limit. Other processes are NVML's used
// bytes less those of the traced ones. What no rule explains is unexplained.
//
// A reading counts when no driver call was running near it: between a call and
// its event NVML and the recording disagree by the call's own bytes.
package peak
