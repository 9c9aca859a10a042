package torch

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

// unpickle reads the words that are written here. That Python and torch read
// them too is tested in ../interop/test_viewers.py.
func unpickle(t *testing.T, b []byte) any {
	t.Helper()
	if !bytes.HasPrefix(b, []byte(opProto)) {
		t.Fatalf("it begins with % x", b[:min(len(b), 8)])
	}
	b = b[len(opProto):]
	var stack []any
	var marks []int
	memo := map[uint32]any{}
	four := func() uint32 {
		n := binary.LittleEndian.Uint32(b)
		b = b[4:]
		return n
	}
	since := func() []any {
		m := marks[len(marks)-1]
		marks = marks[:len(marks)-1]
		items := stack[m:]
		stack = stack[:m]
		return items
	}
	for {
		op := b[0]
		b = b[1:]
		switch op {
		case opStop:
			return stack[0]
		case opMark:
			marks = append(marks, len(stack))
		case opDict:
			stack = append(stack, map[string]any{})
		case opList:
			stack = append(stack, &[]any{})
		case opSetItems:
			items := since()
			d := stack[len(stack)-1].(map[string]any)
			for i := 0; i < len(items); i += 2 {
				d[items[i].(string)] = items[i+1]
			}
		case opAppends:
			items := since()
			if len(items) > batchLength {
				t.Errorf("a batch of %d", len(items))
			}
			l := stack[len(stack)-1].(*[]any)
			*l = append(*l, items...)
		case opTuple2:
			stack = append(stack[:len(stack)-2], "pair")
		case opTrue, opFalse:
			stack = append(stack, op == opTrue)
		case opInt:
			stack = append(stack, int64(int32(four())))
		case opLong:
			stack = append(stack, int64(binary.LittleEndian.Uint64(b[1:])))
			b = b[9:]
		case opText:
			n := four()
			stack = append(stack, string(b[:n]))
			b = b[n:]
		case opPut:
			memo[four()] = stack[len(stack)-1]
		case opGet:
			v, ok := memo[four()]
			if !ok {
				t.Fatal("a number that nothing has")
			}
			stack = append(stack, v)
		default:
			t.Fatalf("the word %q is unknown", op)
		}
	}
}

// Segments of the caching allocator on device 1; a block outside all of them; a
// library's own memory, which is no part; a request that was refused.
const text = `
meta start=2026-11-30T10:00:00Z start_monotonic=0
device 0 uuid="GPU-a"
device 1 uuid="GPU-b"
process 1 pid=11
process 2 pid=22
frame 1 python "/app/main.py" 42 "<module>"
frame 2 python "/app/net.py" 7 "forward"
stack 10 0 1
stack 11 10 2
1000 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=1 address=0xf000000000001000 size=2097152 stack=10 flags=inpool
2000 Alloc process=1 thread=5 api=torch device=1 address=0xf000000000001000 size=512 stack=11
3000 Alloc process=1 thread=5 api=torch device=1 address=0xf000000000001400 size=512 stack=10
4000 Free process=1 thread=5 api=torch address=0xf000000000001000
5000 Alloc process=1 thread=5 api=cuMemAllocAsync device=0 address=0x700 size=100 requested=90 stack=11
5500 Alloc process=1 thread=5 api=cuMemAllocAsync device=0 address=0x900 size=50 requested=50
5600 Free process=1 thread=5 api=cuMemFreeAsync address=0x900
6000 Alloc process=1 thread=5 api=cuMemAlloc_v2 device=1 address=0x9000000 size=4096 stack=10
7000 AllocFailed process=1 thread=5 api=torch.oom device=1 requested=99999 size=99999 stack=10
8000 Alloc process=2 thread=6 api=cuMemAlloc_v2 device=1 address=0x1000 size=4096
9000 ProcessEnd process=1 status=0
`

func snapshot(t *testing.T, text string, q analyze.Query) map[string]any {
	t.Helper()
	a := New()
	defer a.Close()
	if _, err := analyze.Run(context.Background(), []string{formattest.Text(t, text).Path()}, &q, a, nil); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := a.Write(&b); err != nil {
		t.Fatal(err)
	}
	return unpickle(t, b.Bytes()).(map[string]any)
}

func TestSnapshot(t *testing.T) {
	s := snapshot(t, text, analyze.Query{})
	var got []string
	for i, d := range *s["device_traces"].(*[]any) {
		for _, e := range *d.(*[]any) {
			e := e.(map[string]any)
			at, _ := e["addr"].(int64) // an oom has none
			line := fmt.Sprintf("%d: %v %v at %x", i, e["action"], e["size"], uint64(at))
			for _, f := range *e["frames"].(*[]any) {
				line += fmt.Sprint(" ", f.(map[string]any)["name"])
			}
			got = append(got, line)
			if at := e["time_us"].(int64); at < 1796032800_000_001 || at > 1796032800_000_009 {
				t.Errorf("%s: at %d", line, at)
			}
		}
	}
	for _, s := range *s["segments"].(*[]any) {
		s := s.(map[string]any)
		got = append(got, fmt.Sprintf("segment %x on %v: %v, %v, %v", uint64(s["address"].(int64)), s["device"], s["total_size"], s["allocated_size"], s["segment_type"]))
		for _, b := range *s["blocks"].(*[]any) {
			b := b.(map[string]any)
			got = append(got, fmt.Sprintf("  %x: %v of %v, %v", uint64(b["address"].(int64)), b["requested_size"], b["size"], b["state"]))
		}
	}
	want := `0: segment_alloc 100 at 700 forward <module>
0: alloc 100 at 700 forward <module>
0: segment_alloc 50 at 900
0: alloc 50 at 900
0: free_requested 50 at 900
0: free_completed 50 at 900
0: segment_free 50 at 900
1: segment_alloc 2097152 at f000000000001000 <module>
1: alloc 512 at f000000000001000 forward <module>
1: alloc 512 at f000000000001400 <module>
1: free_requested 512 at f000000000001000
1: free_completed 512 at f000000000001000
1: oom 99999 at 0 <module>
segment 700 on 0: 100, 100, large
  700: 90 of 100, active_allocated
segment f000000000001000 on 1: 2097152, 512, small
  f000000000001000: 0 of 1024, inactive
  f000000000001400: 512 of 512, active_allocated
  f000000000001600: 0 of 2095616, inactive`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// What was there before the window is a block of the end and no entry.
func TestWindow(t *testing.T) {
	from, _ := analyze.ParseMoment("2500ns")
	to, _ := analyze.ParseMoment("3500ns")
	s := snapshot(t, text, analyze.Query{From: from, To: to})
	entries := *(*s["device_traces"].(*[]any))[1].(*[]any)
	blocks := *(*s["segments"].(*[]any))[0].(map[string]any)["blocks"].(*[]any)
	if len(entries) != 1 || len(blocks) != 4 {
		t.Errorf("%d entries, want the one alloc; %d blocks, want two and two holes", len(entries), len(blocks))
	}
}

func TestManyEntries(t *testing.T) {
	var b strings.Builder
	b.WriteString("process 1 pid=11\n")
	const n = 2*batchLength + 1
	for i := range n {
		fmt.Fprintf(&b, "%d Alloc thread=5 api=cuMemAlloc_v2 device=0 address=%#x size=16\n", 1000+i, 0x1000+i*16)
	}
	s := snapshot(t, b.String(), analyze.Query{})
	if got := len(*(*s["device_traces"].(*[]any))[0].(*[]any)); got != 2*n {
		t.Errorf("%d entries, want a segment and a block for each of %d", got, n)
	}
	if got := len(*s["segments"].(*[]any)); got != n {
		t.Errorf("%d segments, want %d", got, n)
	}
}

func TestRefuses(t *testing.T) {
	one, other := formattest.Text(t, text), formattest.Text(t, text)
	two := formattest.Text(t, text+"9100 Alloc process=2 thread=6 api=cupy device=0 address=0x9000 object=4 size=16\n")
	for _, row := range []struct {
		name   string
		traces []string
		want   string
	}{
		{"two traces", []string{one.Path(), other.Path()}, "a snapshot is of one trace"},
		{"two processes with a pool", []string{two.Path()}, "these have a pool: pids 11 22; --process says which"},
	} {
		a := New()
		_, err := analyze.Run(context.Background(), row.traces, &analyze.Query{}, a, nil)
		a.Close()
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// Temporary files go, whatever happens.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	a := New()
	if _, err := analyze.Run(context.Background(), []string{formattest.Text(t, text).Path()}, &analyze.Query{}, a, nil); err != nil {
		t.Fatal(err)
	}
	a.Close()
	left, err := os.ReadDir(dir)
	for _, l := range left {
		if strings.Contains(l.Name(), "pickle") {
			t.Errorf("%s is left", l.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
}
