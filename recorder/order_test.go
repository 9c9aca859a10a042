package recorder

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/gpurec/gpurec/format"
)

// A bench is a fold without goroutines around it: rounds go in by hand, rows
// are looked at when they come out.
type bench struct {
	t     testing.TB
	f     *fold
	lanes []*lane
	rows  []format.Event
}

func newBench(t testing.TB, lanes int) *bench {
	s := &Session{opt: Options{Say: func(string) {}, forgetAfter: forgetAfter}, pages: make(chan *page, 64), write: &write{}}
	b := &bench{t: t, f: newFold(s)}
	p := &process{key: processKey{pid: 4711}}
	var born []*lane
	for i := range lanes {
		l := &lane{id: int32(i), process: p}
		l.fold.tid = uint32(100 + i)
		l.fold.first = i == 0
		born = append(born, l)
	}
	b.lanes = born
	b.round(&round{born: born, until: 1})
	return b
}

func (b *bench) round(r *round) {
	b.f.round(r)
	for len(b.f.s.pages) > 0 {
		p := <-b.f.s.pages
		b.rows = append(b.rows, p.events...)
		p.reset()
		b.f.spare.put(p)
	}
}

// rec is one record as a lane holds it.
func rec(kind format.Kind, at, seq uint64) []byte {
	w := format.WireEvent{WireHead: format.WireHead{Time: at, Seq: uint32(seq), Slots: 1, Kind: kind, Layer: format.LayerDriver}, Class: format.ClassDevice, API: format.APIMemAlloc, Device: -1, Size: 1, Address: at}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&w)), unsafe.Sizeof(w))...)
}

func chunkOf(l *lane, dropped uint64, records ...[]byte) chunk {
	var all []byte
	for _, r := range records {
		all = append(all, r...)
	}
	// Aligned as drain's buffers are.
	words := make([]uint64, (len(all)+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(all))
	copy(b, all)
	buf := &buffer{}
	buf.refs.Store(100)
	return chunk{l, b, buf, dropped, true}
}

// parse reads "A10 F10 A12": kinds and times of one lane's events.
func parse(l *lane, seq *uint64, text string) chunk {
	var records [][]byte
	for _, w := range strings.Fields(text) {
		var at uint64
		fmt.Sscan(w[1:], &at)
		kind := format.Alloc
		if w[0] == 'F' {
			kind = format.Free
		}
		records = append(records, rec(kind, at, *seq))
		*seq++
	}
	return chunkOf(l, 0, records...)
}

// TestMerge draws rounds: what each lane brings, the watermark, and what must
// have come out after it. A is an alloc, F a free, the number its time; the
// thread is the digit before.
func TestMerge(t *testing.T) {
	type turn struct {
		lanes []string
		until format.Time
		want  string // all rows so far
	}
	for _, row := range []struct {
		name  string
		turns []turn
		late  uint64
	}{
		{"by time", []turn{{[]string{"A10 A30", "A20 A40"}, 100, "0A10 1A20 0A30 1A40"}}, 0},
		{"held back at the watermark", []turn{{[]string{"A10", "A20"}, 20, "0A10"}, {nil, 21, "0A10 1A20"}}, 0},
		{"free before alloc at one time", []turn{{[]string{"A10", "F10"}, 100, "1F10 0A10"}}, 0},
		{"lower lane at one time", []turn{{[]string{"A10", "A10", "A10"}, 100, "0A10 1A10 2A10"}}, 0},
		{"frees by lane at one time", []turn{{[]string{"A10 F10", "F10", "F10"}, 100, "1F10 2F10 0A10 0F10"}}, 0},
		{"a run up to a free at one time", []turn{{[]string{"A10 A20 A30 A40", "F30"}, 100, "0A10 0A20 1F30 0A30 0A40"}}, 0},
		{"a run up to the third lane's head", []turn{{[]string{"A10 A20 A30 A40", "A90", "A25"}, 100, "0A10 0A20 2A25 0A30 0A40 1A90"}}, 0},
		{"a run up to the watermark", []turn{{[]string{"A10 A20 A30 A40", "A90"}, 30, "0A10 0A20"}, {nil, 100, "0A10 0A20 0A30 0A40 1A90"}}, 0},
		{"free that arrives later (A1)", []turn{{[]string{"", "A12"}, 10, ""}, {[]string{"F11", ""}, 100, "0F11 1A12"}}, 0},
		{"alloc, free, alloc at one address (A2)", []turn{{[]string{"A10 F20 A30"}, 100, "0A10 0F20 0A30"}}, 0},
		{"a lane is never reordered (A7)", []turn{{[]string{"A20 F10 A30", "A25"}, 100, "0A20 0F10 1A25 0A30"}}, 1},
		{"equal times keep their lane's order (A7)", []turn{{[]string{"A10 A10 F10 A10"}, 100, "0A10 0A10 0F10 0A10"}}, 0},
		{"a late lane is passed on when it comes", []turn{{[]string{"A50"}, 60, "0A50"}, {[]string{"", "A20"}, 70, "0A50 1A20"}}, 1},
		{"the watermark never goes back", []turn{{[]string{"A10"}, 50, "0A10"}, {[]string{"A40"}, 20, "0A10 0A40"}}, 0},
		{"many rounds, one lane behind", []turn{{[]string{"A10 A20", "A30"}, 15, "0A10"}, {[]string{"A35", "A40"}, 36, "0A10 0A20 1A30 0A35"}, {nil, 99, "0A10 0A20 1A30 0A35 1A40"}}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, 3)
			seqs := make([]uint64, 3)
			for i, turn := range row.turns {
				r := &round{until: turn.until}
				for l, text := range turn.lanes {
					if text != "" {
						r.chunks = append(r.chunks, parse(b.lanes[l], &seqs[l], text))
					}
				}
				b.round(r)
				var got []string
				for _, e := range b.rows {
					switch e.Kind {
					case format.Alloc:
						got = append(got, fmt.Sprintf("%dA%d", e.Thread-100, e.Time))
					case format.Free:
						got = append(got, fmt.Sprintf("%dF%d", e.Thread-100, e.Time))
					}
				}
				if s := strings.Join(got, " "); s != turn.want {
					t.Errorf("round %d: %q, want %q", i, s, turn.want)
				}
			}
			if b.f.stats.Late != row.late {
				t.Errorf("%d late, want %d", b.f.stats.Late, row.late)
			}
		})
	}
}

// TestGaps reads seq with records missing: Lost says how many, before what, and
// never more than the writer counted.
func TestGaps(t *testing.T) {
	for _, row := range []struct {
		name    string
		next    uint64 // of the lane before
		seqs    []uint64
		dropped uint64 // the lane's counter
		want    string
		lost    uint64
		closed  uint64
	}{
		{"none", 0, []uint64{0, 1, 2}, 0, "1 2 3", 0, 0},
		{"one", 0, []uint64{0, 2}, 1, "1 Lost1 3", 1, 0},
		{"before the first", 0, []uint64{5, 6}, 5, "Lost5 6 7", 5, 0},
		{"several", 0, []uint64{1, 4}, 3, "Lost1 2 Lost2 5", 3, 0},
		{"over the wrap at 2^32", 1<<32 - 1, []uint64{1<<32 - 1, 0}, 0, "4294967296 4294967297", 0, 0},
		{"a gap over the wrap", 1<<32 - 1, []uint64{1}, 2, "Lost2 4294967298", 2, 0},
		{"a gap that was not counted", 0, []uint64{0, 1 << 30}, 3, "1 1073741825", 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, 1)
			b.lanes[0].fold.next = row.next
			var records [][]byte
			for i, s := range row.seqs {
				records = append(records, rec(format.Alloc, uint64(10+i), s))
			}
			b.round(&round{chunks: []chunk{chunkOf(b.lanes[0], row.dropped, records...)}, until: 100})
			var got []string
			for _, e := range b.rows {
				switch e.Kind {
				case format.Alloc:
					got = append(got, fmt.Sprint(e.Seq))
				case format.Lost:
					got = append(got, fmt.Sprintf("Lost%d", e.Size))
				}
			}
			if s := strings.Join(got, " "); s != row.want {
				t.Errorf("%q, want %q", s, row.want)
			}
			if b.f.stats.Lost != row.lost || b.f.stats.ClosedLanes != row.closed {
				t.Errorf("lost %d, closed %d, want %d and %d", b.f.stats.Lost, b.f.stats.ClosedLanes, row.lost, row.closed)
			}
		})
	}
}

// TestScopes begins and ends scopes with records of some of them missing. "+d1"
// is a push at depth 1 of domain d, "-d1" its pop; "[7" and "]7" a scope with a
// number, "(7" and ")7" a range. Every "." is an alloc, whose scope is drawn as
// the begin's place in the row, counted from 1; 0 is none.
func TestScopes(t *testing.T) {
	for _, row := range []struct {
		name, text, want string
		open             int
	}{
		{"none", ".", "0", 0},
		{"push and pop", "+d0 . -d0 .", "1 0", 0},
		{"nested", "+d0 . +d1 . -d1 . -d0 .", "1 2 1 0", 0},
		{"two domains nest in each other", "+d0 +e0 . -e0 . -d0 .", "2 1 0", 0},
		{"two domains overlap", "+d0 +e0 -d0 . -e0 .", "2 0", 0},
		{"a pop was lost", "+d0 +d1 . +d0 . -d0 .", "2 3 0", 0},
		{"a push was lost", "+d0 +d2 . -d2 -d1 . -d0 .", "2 1 0", 0},
		{"a pop of nothing", "-d0 . +d0 . -d0", "0 1", 0},
		{"pops of inner ones were lost", "+d0 +d1 +d2 -d0 .", "0", 0},
		{"depths unknown", "+d? . +d? . -d? . -d? . -d? .", "1 2 1 0 0", 0},
		{"an unmatched pop of unknown depth", "+d0 . -d? . -d0 .", "1 1 0", 0},
		{"scopes overlap", "[7 . [8 . ]7 . ]8 .", "1 2 2 0", 0},
		{"a scope in a push", "+d0 [7 . -d0 . ]7 .", "2 2 0", 0},
		{"a range is no thread's", "(7 . )7 .", "0 0", 0},
		{"a range in a push", "+d0 (7 . -d0 . )7", "1 0", 0},
		{"a number twice", "[7 [7 . ]7 .", "2 0", 0},
		{"an end of nothing", "]9 . )9 .", "0 0", 0},
		{"left open", "+d0 [7 (8 .", "2", 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, 1)
			var records [][]byte
			for i, w := range strings.Fields(row.text) {
				s := format.WireScope{WireHead: format.WireHead{Time: uint64(10 + i), Seq: uint32(i), Slots: 1}, API: format.APINVTX, Device: -1}
				switch w[0] {
				case '.':
					records = append(records, rec(format.Alloc, uint64(10+i), uint64(i)))
					continue
				case '+', '-':
					s.Kind = format.ScopeBegin
					if w[0] == '-' {
						s.Kind = format.ScopeEnd
					}
					s.Domain, s.Depth = uint64(w[1]), int64(w[2])-'0'
					if w[2] == '?' {
						s.Depth = -1
					}
				default:
					s.Kind = format.ScopeBegin
					if w[0] == ']' || w[0] == ')' {
						s.Kind = format.ScopeEnd
					}
					if w[0] == '(' || w[0] == ')' {
						s.Flags = format.FlagRange
					}
					s.Range = uint64(w[1])
				}
				records = append(records, append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&s)), 64)...))
			}
			b.round(&round{chunks: []chunk{chunkOf(b.lanes[0], 0, records...)}, until: 1000})
			var got []string
			begun, ended := map[format.ScopeID]bool{}, map[format.ScopeID]bool{}
			for _, e := range b.rows {
				switch e.Kind {
				case format.Alloc:
					got = append(got, fmt.Sprint(e.Scope))
				case format.ScopeBegin:
					begun[e.Scope] = true
				case format.ScopeEnd:
					if e.Scope != 0 && (!begun[e.Scope] || ended[e.Scope]) {
						t.Errorf("scope %d ends twice or before its begin", e.Scope)
					}
					ended[e.Scope] = true
				}
			}
			if s := strings.Join(got, " "); s != row.want {
				t.Errorf("scopes of the allocs: %s, want %s", s, row.want)
			}
			if n := len(b.f.state.Scopes()); n != row.open || b.lanes[0].process.tables.open != row.open {
				t.Errorf("%d open in the fold, %d in the table, want %d", n, b.lanes[0].process.tables.open, row.open)
			}
		})
	}
}

// TestThreadEnds lets a lane pass to another thread: the scopes that the first
// one left open are not the second one's, and end.
func TestThreadEnds(t *testing.T) {
	b := newBench(t, 1)
	s := format.WireScope{WireHead: format.WireHead{Time: 10, Slots: 1, Kind: format.ScopeBegin}, Device: -1}
	th := format.WireThread{WireHead: format.WireHead{Time: 11, Seq: 1, Slots: 1, Kind: format.ThreadBegin}, TID: 777, Device: -1}
	b.round(&round{chunks: []chunk{chunkOf(b.lanes[0], 0, unsafe.Slice((*byte)(unsafe.Pointer(&s)), 64), unsafe.Slice((*byte)(unsafe.Pointer(&th)), 64), rec(format.Alloc, 12, 2))}, until: 100})
	e := b.rows[len(b.rows)-1]
	if e.Thread != 777 || e.Scope != 0 || len(b.f.state.Scopes()) != 0 {
		t.Errorf("thread %d, scope %d, %d open", e.Thread, e.Scope, len(b.f.state.Scopes()))
	}
}
