package ranks

import (
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
)

// A Report is the answer.
type Report struct {
	Completeness *analyze.Completeness `json:"completeness"`
	Rules        Rules                 `json:"rules"`
	Ranks        []*Rank               `json:"ranks"` // by rank, then in the order of traces and processes
	Peaks        *Peaks                `json:"peaks,omitempty"`
	Died         *Death                `json:"first_death,omitempty"`
	OutOfMemory  *Death                `json:"first_out_of_memory,omitempty"`
}

// Rules are the thresholds of an outlier.
type Rules struct {
	Fewest     int     `json:"fewest_ranks"`
	Deviations float64 `json:"deviations"` // from the median, in median absolute deviations times 1.4826
	Percent    float64 `json:"percent"`    // and of the median at least
}

// A Rank is one process that took memory.
type Rank struct {
	Rank        *int32     `json:"rank,omitempty"`
	LocalRank   *int32     `json:"local_rank,omitempty"`
	WorldSize   *int32     `json:"world_size,omitempty"`
	Job         string     `json:"job,omitempty"`
	Trace       string     `json:"trace"`
	Host        string     `json:"host,omitempty"`
	PID         int32      `json:"pid"`
	Devices     []Device   `json:"devices"`
	Used        Peak       `json:"peak_used"`
	Acquired    Peak       `json:"peak_acquired"`
	Live        int64      `json:"live_at_end"`                         // used, just before it ended, or at the window's end
	Failed      int64      `json:"failed_requests"`                     // for device memory, of which the program was told
	Retried     int64      `json:"retried_requests"`                    // that the driver refused, and a retry of the pool's served
	OOM         *time.Time `json:"first_out_of_memory,omitempty"`       // the first of Failed
	OOMIn       []string   `json:"out_of_memory_in,omitempty"`          // scopes open then, outermost first, each with its number: step#3
	OOMInferred bool       `json:"out_of_memory_in_inferred,omitempty"` // of a thread without scopes: see analyze.Inferred
	End         *time.Time `json:"end,omitempty"`
	Status      *int32     `json:"status,omitempty"`  // exit status, or 128 + signal
	Doing       []string   `json:"doing,omitempty"`   // scopes open at its end
	Outlier     float64    `json:"outlier,omitempty"` // its peak used against the median: 0.31 is 31 % more
	Complete    bool       `json:"complete"`          // its trace

	process format.ProcessID
}

// A Device is one that a rank took memory of.
type Device struct {
	Device format.Device `json:"device"` // in its trace
	UUID   string        `json:"uuid,omitempty"`
}

// A Peak is the highest value of a curve, and when it was first reached.
type Peak struct {
	Bytes int64 `json:"bytes"`
	At    int64 `json:"at_ns"` // since the trace's start
}

// Peaks are the ranks' peaks of used bytes beside each other.
type Peaks struct {
	Least     int64   `json:"least"`
	Median    int64   `json:"median"`
	Mean      int64   `json:"mean"`
	Most      int64   `json:"most"`
	Imbalance float64 `json:"imbalance"` // the most against the mean: 0.2 is 20 % more
}

// A Death is when something first happened to a rank.
type Death struct {
	Index int       `json:"index"` // in Ranks
	Time  time.Time `json:"time"`
	Next  *int64    `json:"next_after_ns,omitempty"` // until it happened to the next
}
