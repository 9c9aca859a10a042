package tree

import (
	"fmt"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// By is what a flat table has a row for.
type By uint8

const (
	ByLine     By = iota // innermost line
	ByOwnLine            // innermost line of the program's own code; inferred from file names
	ByFunction           // innermost function, whatever its line
	ByScope              // path of scopes
	BySize               // size class
	ByProcess            // pid
	byCount
)

func (b By) String() string {
	return [...]string{"line", "own-line", "function", "scope", "size", "process"}[b]
}

// ParseBy reads the name of a grouping.
func ParseBy(s string) (By, error) {
	var names []string
	for b := range byCount {
		if b.String() == s {
			return b, nil
		}
		names = append(names, b.String())
	}
	return 0, fmt.Errorf("%q is none of %s", s, strings.Join(names, ", "))
}

// A Row is one line, function, scope, size class or process. Used, Acquired and Blocks of
// all rows add up to the total. By line and function OnStack is what was taken
// there or in what it called, so the same byte stands in several rows.
type Row struct {
	Name     string `json:"name"` // file:line:function, file:function, a path of scopes, a range of sizes, pid N rank M
	Used     int64  `json:"used"`
	Acquired int64  `json:"acquired"`
	Blocks   int64  `json:"blocks"`
	OnStack  int64  `json:"used_on_stack,omitempty"`
	Inferred bool   `json:"inferred,omitempty"` // by scope: that it was taken in it, on a thread without scopes

	size    SizeClass
	process format.ProcessID // by process: pids are used again
}

// NoLineName is the row of what no line is known for and no thread is named.
const NoLineName = "[no line]"

// Flat groups what each gives, the largest first; sizes stand by size. paths is
// needed by scope only.
func (each Each) Flat(by By, defs *format.Defs, paths *Paths) []*Row {
	f := flat{by: by, defs: defs, paths: paths, rows: map[rowKey]*Row{}, names: NewNames(by, defs)}
	each(f.add)
	out := make([]*Row, 0, len(f.rows)+len(f.named))
	for _, r := range f.rows {
		out = append(out, r)
	}
	for _, r := range f.named {
		if r != nil {
			out = append(out, r)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		switch {
		case by == BySize:
			return a.size > b.size
		case a.Used != b.Used:
			return a.Used > b.Used
		case a.Acquired != b.Acquired:
			return a.Acquired > b.Acquired
		case a.OnStack != b.OnStack:
			return a.OnStack > b.OnStack
		case a.Name != b.Name:
			return a.Name < b.Name
		}
		return a.process < b.process
	})
	return out
}

type flat struct {
	by    By
	defs  *format.Defs
	paths *Paths
	rows  map[rowKey]*Row
	names *Names
	named []*Row  // by name's number, where rows are lines or functions
	on    []int64 // by name's number: the last stack that was added to OnStack
	turn  int64
}

type rowKey struct {
	name     string
	process  format.ProcessID // by process
	inferred bool             // by scope
}

func (f *flat) row(k rowKey) *Row {
	r := f.rows[k]
	if r == nil {
		r = &Row{Name: k.name, Inferred: k.inferred, process: k.process}
		f.rows[k] = r
	}
	return r
}

// ProcessName is a process's pid, and its rank where it has one.
func ProcessName(id format.ProcessID, defs *format.Defs) string {
	p, known := defs.Process(id)
	if known && p.Rank >= 0 {
		return fmt.Sprintf("pid %d rank %d", p.PID, p.Rank)
	}
	return fmt.Sprintf("pid %d", p.PID)
}

func (f *flat) add(k Key, a Amount) {
	var row rowKey
	switch f.by {
	case ByScope:
		row = rowKey{name: f.paths.Label(k.Path), inferred: f.paths.Inferred(k.Path)}
	case BySize:
		row.name = k.Size.String()
	case ByProcess:
		row = rowKey{name: ProcessName(k.Process, f.defs), process: k.Process}
	default:
		f.line(k, a)
		return
	}
	r := f.row(row)
	r.size = k.Size
	r.Used += a.Used
	r.Acquired += a.Acquired
	r.Blocks += a.Blocks
}

// line adds to the row that a stack's bytes are counted for, and to each of those on
// it once.
func (f *flat) line(k Key, a Amount) {
	f.turn++
	own, _ := f.names.look(k.Stack, func(name int32) {
		if r := f.namedRow(name); f.on[name] != f.turn {
			f.on[name] = f.turn
			r.OnStack += a.Used
		}
	})
	r := f.namedRow(own)
	r.size = k.Size
	r.Used += a.Used
	r.Acquired += a.Acquired
	r.Blocks += a.Blocks
}

func (f *flat) namedRow(name int32) *Row {
	if n := len(f.names.texts) - len(f.named); n > 0 {
		f.named = append(f.named, make([]*Row, n)...)
		f.on = append(f.on, make([]int64, n)...)
	}
	r := f.named[name]
	if r == nil {
		r = &Row{Name: f.names.texts[name]}
		f.named[name] = r
	}
	return r
}
