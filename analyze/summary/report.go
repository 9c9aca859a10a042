package summary

import (
	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Traces       []*Trace              `json:"traces"`
}

// A Trace is one of them. Times are nanoseconds since its start. With a window
// every number is the window's; Meta is the recording's, and so is when a
// process began and ended.
type Trace struct {
	Path      string      `json:"path"`
	Meta      format.Meta `json:"meta"`
	Parts     int         `json:"parts"`
	Events    int64       `json:"events"` // in the window and past the filters; checkpoint rows are none
	First     *int64      `json:"first_ns,omitempty"`
	Last      *int64      `json:"last_ns,omitempty"`
	Lost      int64       `json:"lost"`
	Unknown   int64       `json:"unknown_frees"`
	Unseen    int64       `json:"lost_frees"`
	Unhooked  []Unhooked  `json:"unhooked,omitempty"`
	Kinds     []Count     `json:"kinds"`
	Layers    []Count     `json:"layers"`
	APIs      []Count     `json:"apis"`
	Devices   []*Device   `json:"devices"`
	Processes []*Process  `json:"processes"`
	Failures  []*Failure  `json:"failed_allocations"`
	Memory    OutOfMemory `json:"out_of_memory"`
	Scopes    int64       `json:"scopes"`
	Samples   int64       `json:"samples"`
	NoSamples string      `json:"no_samples,omitempty"` // why there are none
	Cost      *Cost       `json:"recorder,omitempty"`   // nil where the trace does not say

	window bool
}

// A Cost is what the recorder itself took, of the whole recording. 0 is unknown.
type Cost struct {
	Events  uint64 `json:"events"`         // that it wrote, those that are not retained included
	CPU     int64  `json:"cpu_ns"`         // on all cores, the time included in which NVML was read
	Written int64  `json:"written_bytes"`  // to the trace's files
	Waited  int64  `json:"waited_ns"`      // for which full lanes have held the programs' threads, with --on-full wait
	Memory  int64  `json:"peak_rss_bytes"` // resident at most, the lanes included
}

// A Count is a number of events.
type Count struct {
	Name   string `json:"name"`
	Events int64  `json:"events"`
}

// An Unhooked is a function that was looked up, may allocate and is not recorded.
type Unhooked struct {
	Symbol  string `json:"symbol"`
	Lookups int64  `json:"lookups"`
	Remedy  string `json:"remedy,omitempty"` // how it is recorded, where it can be
}

// A Peak is the highest value of a curve.
type Peak struct {
	Bytes int64 `json:"bytes"`
	At    int64 `json:"at_ns"`
}

// A Device is one device over all processes.
type Device struct {
	Device   format.Device `json:"device"`
	UUID     string        `json:"uuid,omitempty"`
	Name     string        `json:"name,omitempty"`
	Total    int64         `json:"total"` // -1 unknown
	Used     Peak          `json:"peak_used"`
	Acquired Peak          `json:"peak_acquired"`
	NVML     *Peak         `json:"peak_nvml,omitempty"` // sampled; nil without samples
}

// A Process is one process.
type Process struct {
	PID       int32    `json:"pid"`
	Parent    int32    `json:"parent"`
	Rank      *int32   `json:"rank,omitempty"`
	LocalRank *int32   `json:"local_rank,omitempty"`
	WorldSize *int32   `json:"world_size,omitempty"`
	Job       string   `json:"job,omitempty"`
	Command   string   `json:"command"`
	Begin     *int64   `json:"begin_ns,omitempty"`
	End       *int64   `json:"end_ns,omitempty"`
	Status    *int32   `json:"status,omitempty"` // exit status, or 128 + signal
	Python    string   `json:"python,omitempty"`
	Threads   []Thread `json:"threads"`
	Events    int64    `json:"events"`
	UsedLayer string   `json:"used_layer"` // which layer its used bytes are: pool or driver
	Used      Peak     `json:"peak_used"`
	Acquired  Peak     `json:"peak_acquired"`
	Failed    int64    `json:"failed_allocations"`
	LiveAtEnd int64    `json:"live_at_end"`               // bytes used just before it ended, or at the window's end
	Outlives  bool     `json:"outlives_window,omitempty"` // it is the window's end
	Sums      []*Sum   `json:"sums"`
}

// A Thread is one thread of a process that had events.
type Thread struct {
	TID    uint32 `json:"tid"`
	Name   string `json:"name,omitempty"`
	Events int64  `json:"events"`
	Lost   int64  `json:"lost,omitempty"` // in its lane, where that says how many
}

// A Sum is what a process took, in the window, of one class at one layer of one
// device.
type Sum struct {
	Device format.Device `json:"device"`
	Layer  string        `json:"layer"`
	Class  string        `json:"class"`
	Count  int64         `json:"count"`
	Total  int64         `json:"total"`
	Peak   int64         `json:"peak"`
	Live   int64         `json:"live"` // at the window's end
}

// An OutOfMemory is requests for device memory that failed, each once, however
// often the driver refused it and whoever reported it: those that the program was
// told of, and those that a retry then got.
type OutOfMemory struct {
	Told    int64 `json:"told"`
	Retried int64 `json:"retried"`
}

// A Failure is failed allocations of one kind. Largest and what follows it are
// those of the largest that failed, of the first where several are as large.
type Failure struct {
	PID           int32         `json:"pid"`
	API           string        `json:"api"`
	Status        int32         `json:"status"`
	Why           string        `json:"status_name,omitempty"` // out of memory; "" for other numbers
	Count         int64         `json:"count"`
	Retried       int64         `json:"retried"` // of them, before a retry that worked
	First         int64         `json:"first_ns"`
	Largest       int64         `json:"largest"` // bytes asked for
	LargestAt     int64         `json:"largest_ns"`
	Device        format.Device `json:"device"`                   // -1 unknown
	Line          string        `json:"line,omitempty"`           // file:line:function of the innermost frame, or [thread NAME]
	Scope         []string      `json:"scope,omitempty"`          // names of the open scopes, outermost first
	ScopeInferred bool          `json:"scope_inferred,omitempty"` // of a thread without scopes: see analyze.Inferred
	LiveThen      string        `json:"live_then"`                // the command that says what was live at LargestAt

	stack  format.StackID
	scopes []format.NameID
}
