package recorder

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// What fold and write know of definitions is bounded, so that a program that
// makes code for ever (exec, compiled graphs) does not make the recorder grow for
// ever. When new definitions have taken so many bytes, or an eighth of what was kept
// the last time, fold forgets:
//
//  1. every lane is told to send its definitions anew (its epoch goes up). What
//     its process sent is old; what an event still uses becomes young again;
//  2. what was old already, and so not used since the last forgetting, goes, and
//     with it all frames, stacks and names of the trace but those that are used
//     by what is old now, by what is live, and by open scopes;
//  3. write lets go of the same, once it has written what came before.
//
// An id is never given out twice. What a lane published before it saw its epoch
// refers to what is old: so nothing is forgotten again until all of that has been
// passed on, unless definitions come so fast that memory would not be bounded.
// An event whose stack is forgotten is kept and counted as unresolved.
const (
	forgetAfter  = 32 << 20
	forgetAnyway = 4 // times as many
	forgetPause  = format.Time(1e9)
)

// What a definition takes in the tables of fold and write, about.
const (
	nodeBytes  = 64
	tableBytes = 160 // and its content
)

func frameBytes(f *format.Frame) int64 {
	return int64(400 + len(f.File) + len(f.Function) + len(f.Module) + len(f.BuildID))
}
func nameBytes(s string) int64 { return int64(100 + len(s)) }
func (c *code) bytes() int64 {
	return int64(tableBytes + len(c.file) + len(c.name) + len(c.lines.table) + 16*len(c.frames))
}
func (s *stack) bytes() int64 { return int64(100 + 16*len(s.frames) + 16*len(s.under)) }

// forgetting reports whether it is time.
func (f *fold) forgetting() bool {
	most := max(f.s.opt.forgetAfter, f.remembered/8)
	return f.in.grown > most && (f.until > f.forgot+forgetPause || f.in.grown > forgetAnyway*most)
}

// forget forgets, and returns what write is to keep. It is called when a page is
// complete: all that the page refers to is written first.
func (f *fold) forget() *format.Keep {
	f.forgot = ring.Now()
	stacks, frames, names := map[format.StackID]bool{}, map[format.FrameID]bool{}, map[format.NameID]bool{}
	stacks[format.StackBeforeRecording] = true
	f.remembered = 0
	for p := range f.everyProcess() {
		t := &p.tables
		t.codes.turn()
		t.stacks.turn()
		t.names.turn()
		t.epoch++
		for _, c := range t.codes.old {
			f.remembered += c.bytes()
			for _, id := range c.frames {
				frames[id] = true
			}
		}
		for _, s := range t.stacks.old {
			f.remembered += s.bytes()
			stacks[s.id] = true
			for _, id := range s.under {
				stacks[id] = true
			}
		}
		for _, id := range t.names.old {
			names[id] = true
		}
	}
	for _, l := range f.lanes {
		l.epoch.Store(l.process.tables.epoch)
		stacks[l.fold.thread] = true
	}
	for i := range f.top {
		stacks[f.top[i].stack] = true
	}
	f.state.References(func(id format.StackID) { stacks[id] = true }, func(id format.NameID) { names[id] = true })
	f.in.keep(stacks, frames, names)
	f.remembered += f.in.bytes()
	f.in.grown = 0
	return f.in.kept()
}

// everyProcess is those that have lanes or a row.
func (f *fold) everyProcess() map[*process]bool {
	ps := map[*process]bool{}
	for _, l := range f.lanes {
		ps[l.process] = true
	}
	for _, p := range f.rows {
		ps[p] = true
	}
	return ps
}

// keep lets go of everything but these, their stacks' callers and frames.
func (in *interner) keep(stacks map[format.StackID]bool, frames map[format.FrameID]bool, names map[format.NameID]bool) {
	type node struct {
		id  format.StackID
		key uint64
	}
	nodes := make([]node, 0, len(in.nodes))
	for key, id := range in.nodes {
		nodes = append(nodes, node{id, key})
	}
	slices.SortFunc(nodes, func(a, b node) int { return cmp.Compare(b.id, a.id) })
	in.nodes = map[uint64]format.StackID{} // a map does not shrink
	for _, n := range nodes {              // a caller was given its id before what it called
		if stacks[n.id] {
			in.nodes[n.key] = n.id
			stacks[format.StackID(n.key>>32)] = true
			frames[format.FrameID(uint32(n.key))] = true
		}
	}
	in.frames = only(in.frames, frames)
	in.names = only(in.names, names)
}

// only is m without what is not kept.
func only[K, V comparable](m map[K]V, kept map[V]bool) map[K]V {
	out := map[K]V{}
	for k, v := range m {
		if kept[v] {
			out[k] = v
		}
	}
	return out
}

// kept is everything that there is, for write.
func (in *interner) kept() *format.Keep {
	k := &format.Keep{NextFrame: in.frame + 1, NextStack: in.stack + 1, NextName: in.name + 1}
	for _, id := range in.frames {
		k.Frames = append(k.Frames, id)
	}
	for _, id := range in.nodes {
		k.Stacks = append(k.Stacks, id)
	}
	for _, id := range in.names {
		k.Names = append(k.Names, id)
	}
	return k
}

func (in *interner) bytes() (n int64) {
	n = nodeBytes * int64(len(in.nodes))
	for fr := range in.frames {
		n += frameBytes(&fr)
	}
	for s := range in.names {
		n += nameBytes(s)
	}
	return n
}
