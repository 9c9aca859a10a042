package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
)

// budget is the most that reading a small damaged table may allocate, all in
// all: a decompressor, one small batch and the error.
const budget = 4 << 20

// readDamaged reads events that were damaged somewhere and holds what must be
// true whatever was done: no panic, a typed error, whole batches of what was
// written, bounded memory.
func readDamaged(t *testing.T, p *Part, want []Event, what string) (events int, err error) {
	t.Helper()
	before := allocated()
	got, _, err := readEvents(p)
	if n := allocated() - before; n > budget {
		t.Errorf("%s: reading allocated %d bytes", what, n)
	}
	var c *CorruptError
	if err != nil && !errors.Is(err, ErrTruncated) && !errors.As(err, &c) {
		t.Errorf("%s: an error of no type of ours: %v", what, err)
	}
	if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
		t.Errorf("%s: %d events, and not those that were written (%v)", what, len(got), err)
	}
	if err == nil && len(got) != len(want) {
		t.Errorf("%s: %d of %d events and no error", what, len(got), len(want))
	}
	return len(got), err
}

// allocated is what the process has ever allocated, without stopping it as
// runtime.ReadMemStats does.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// rows is how many events a batch of these tests has: few, because they are
// read thousands of times.
const rows = 6

// damaged writes a table of four batches, closed or not, and
// returns its part, its bytes, and where its batches begin and end.
func damaged(t *testing.T, closed bool) (p *Part, path string, content []byte, want []Event, at []int) {
	t.Helper()
	want = randomEvents(4*rows, 5)
	dir := record(t, want, rows, WriterOptions{})
	p = open(t, dir).Parts()[0]
	path = filepath.Join(p.Path(), "events.arrow")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openTable(path, eventsTable)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for err == nil {
		at = append(at, int(r.off))
		_, err = r.next()
	}
	if at[0] = len(eventsTable.shape().head); err != io.EOF || len(at) != 5 {
		t.Fatalf("%d batches, %v", len(at)-1, err)
	}
	if !closed {
		content = content[:at[4]]
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p, path, content, want, at
}

func TestCutAtEveryByte(t *testing.T) {
	p, path, content, want, at := damaged(t, true)
	cuts := 0
	check := func(n int) {
		if err := os.Truncate(path, int64(n)); err != nil {
			t.Fatal(err)
		}
		whole := 0
		for whole < 4 && at[whole+1] <= n {
			whole++
		}
		what := fmt.Sprintf("cut at byte %d", n)
		events, err := readDamaged(t, p, want, what)
		if n == len(content) {
			if err != nil {
				t.Errorf("%s, which is whole: %v", what, err)
			}
			return
		}
		var e *TruncatedError
		if !errors.As(err, &e) || e.Batch != whole || events != rows*whole || e.Left != int64(n)-e.Offset || e.Path != path {
			t.Errorf("%s: %d events, %v; want truncated at batch %d", what, events, err, whole)
		} else if want := int64(at[whole]); n >= at[0] && e.Offset != want {
			t.Errorf("%s: said to be at byte %d, is at %d", what, e.Offset, want)
		}
		cuts++
	}
	step := 1
	if raceDetector {
		step = 29
		t.Logf("under the race detector only every %dth byte", step)
	}
	for n := len(content); n > at[4]; n -= 7 * step { // the footer
		check(n)
	}
	for n := at[4]; n >= at[3]; n -= step { // the last batch
		check(n)
	}
	for n := at[3]; n >= 0; n -= 37 * step {
		check(n)
	}
	check(0)
	if cuts < (at[4]-at[3])/step {
		t.Errorf("only %d cuts", cuts)
	}
}

func TestFlipBytes(t *testing.T) {
	flips := 5000 // closed and not: 10,000
	if raceDetector {
		flips = 200
		t.Logf("under the race detector only %d flips", flips)
	}
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed=%v", closed), func(t *testing.T) {
			p, path, content, want, _ := damaged(t, closed)
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r := rand.New(rand.NewPCG(1, 2))
			unseen := 0
			for i := range flips {
				n, x := r.IntN(len(content)), byte(1+r.IntN(255))
				f.WriteAt([]byte{content[n] ^ x}, int64(n))
				_, err := readDamaged(t, p, want, fmt.Sprintf("flip %d: byte %d by %#x", i, n, x))
				if err == nil || !closed && errors.Is(err, ErrTruncated) && err.(*TruncatedError).Batch == 4 {
					unseen++ // a bit of a zstd frame that changes nothing: the values are right
				}
				f.WriteAt(content[n:n+1], int64(n))
			}
			t.Logf("%d of %d flips changed nothing that a reader could see", unseen, flips)
			if unseen > flips/20 {
				t.Errorf("%d of %d flips went unseen", unseen, flips)
			}
		})
	}
}

func TestFlipDefinitions(t *testing.T) {
	dir := record(t, randomEvents(10, 1), 0, WriterOptions{})
	p := open(t, dir).Parts()[0]
	want := NewDefs()
	if err := p.LoadDefs(want); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	errs, flips := 0, 1000
	if raceDetector {
		flips = 100
	}
	for i := range flips {
		path := filepath.Join(p.Path(), tableOrder[i%5].file())
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := r.IntN(len(content))
		bad := bytes.Clone(content)
		bad[n] ^= byte(1 + r.IntN(255))
		os.WriteFile(path, bad, 0o600)
		got := NewDefs()
		if err := p.LoadDefs(got); err != nil {
			var c *CorruptError
			if !errors.Is(err, ErrTruncated) && !errors.As(err, &c) {
				t.Errorf("%s: an error of no type of ours: %v", path, err)
			}
			errs++
		} else if !bytes.Equal(appendDefsText(nil, got), appendDefsText(nil, want)) {
			t.Errorf("%s: byte %d flipped, other definitions and no error", path, n)
		}
		os.WriteFile(path, content, 0o600)
	}
	if errs < flips*9/10 {
		t.Errorf("only %d of %d flips were seen", errs, flips)
	}
}

// A claim of a file is believed only within limits (cases D1).
func TestHostileNumbers(t *testing.T) {
	s := eventsTable.shape()
	p, path, content, want, at := damaged(t, true)
	put := func(offset int) func(b []byte, v uint64) {
		return func(b []byte, v uint64) { binary.LittleEndian.PutUint64(b[prefixSize+offset:], v) }
	}
	for _, c := range []struct {
		name string
		set  func(b []byte, v uint64) // in the last batch
		want string
	}{
		{"rows everywhere", func(b []byte, v uint64) {
			for _, at := range s.rowsAt {
				put(at)(b, v)
			}
		}, "claims"},
		{"rows of one column", put(s.rowsAt[3]), "its columns have"},
		{"rows of the batch", put(s.rowsAt[0]), "its columns have"},
		{"nulls of a column", put(s.rowsAt[1] + 8), "metadata is not that"},
		{"body", put(s.bodyAt), "its body claims"},
		{"buffer's place", put(s.bufsAt + bufferSize*5), "its buffer 5 claims"},
		{"buffer's length", put(s.bufsAt + bufferSize*5 + 8), "claims"},
		{"last buffer's length", put(s.bufsAt + bufferSize*(len(s.bufs)-1) + 8), "claims"},
		{"length before compression", func(b []byte, v uint64) { binary.LittleEndian.PutUint64(b[prefixSize+len(s.meta):], v) }, fmt.Sprintf("bytes for %d rows", rows)},
		{"metadata's length", func(b []byte, v uint64) { binary.LittleEndian.PutUint32(b[4:], uint32(v|8)) }, "its metadata has"},
	} {
		for _, v := range []uint64{1 << 60, 1<<60 - 3, 1 << 31, 1<<32 - 1, 1 << 62, 1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<64 - 8, 65537, 65536, 0, rows - 1, rows + 1} {
			bad := bytes.Clone(content)
			if c.set(bad[at[3]:], v); bytes.Equal(bad, content) {
				continue // what a null count should be
			}
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%s = %#x", c.name, v)
			events, err := readDamaged(t, p, want, what)
			var e *CorruptError
			if !errors.As(err, &e) || e.Batch != 3 || e.Offset != int64(at[3]) || events != 3*rows {
				t.Errorf("%s: %d events, %v", what, events, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; want %q", what, err, c.want)
			}
		}
	}
}

// Other Arrow readers take text for granted; ours looks.
func TestHostileText(t *testing.T) {
	for _, c := range []struct {
		name string
		col  colBuf
		want string
	}{
		{"right", colBuf{[]byte("aé"), offsets(0, 0, 3)}, ""},
		{"not from 0", colBuf{[]byte("ab"), offsets(1, 1, 2)}, "do not begin at 0"},
		{"falling", colBuf{[]byte("ab"), offsets(0, 2, 1)}, "is not between"},
		{"beyond", colBuf{[]byte("ab"), offsets(0, 1, 3)}, "is not between"},
		{"negative", colBuf{[]byte("ab"), offsets(0, 1, 1<<32-1)}, "is not between"},
		{"left over", colBuf{[]byte("ab"), offsets(0, 0, 1)}, "belong to no row"},
		{"not UTF-8", colBuf{[]byte("a\xff"), offsets(0, 1, 2)}, "not UTF-8"},
		{"character cut by rows", colBuf{[]byte("é"), offsets(0, 1, 2)}, "not UTF-8"},
		{"too long", colBuf{make([]byte, MaxText+1), offsets(0, 0, MaxText+1)}, "more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBatch(namesTable)
			addRows(b, []nameRow{{1, ""}, {2, ""}})
			b.cols[1] = c.col
			path := filepath.Join(t.TempDir(), "names.arrow")
			enc, _ := newEncoder()
			w, err := createTable(osDisk{}, path, namesTable, enc)
			if err == nil {
				err = errors.Join(w.append(b), w.close())
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := openTable(path, namesTable)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			_, err = r.next()
			match(t, c.name, err, c.want)
		})
	}
}

func offsets(o ...uint32) (b []byte) {
	for _, v := range o {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

func TestInvalidKindsAreCorrupt(t *testing.T) {
	for _, e := range []Event{{Kind: KindNone}, {Kind: kindCount}, {Kind: WireStack}, {Kind: Alloc, Layer: 4}, {Kind: Alloc, Class: 8}} {
		dir := record(t, []Event{{Kind: Alloc}, e}, 1, WriterOptions{})
		got, _, err := readEvents(open(t, dir).Parts()[0])
		var c *CorruptError
		if len(got) != 1 || !errors.As(err, &c) || c.Batch != 1 {
			t.Errorf("%+v: %d events, %v", e, len(got), err)
		}
	}
}

func TestAnotherTable(t *testing.T) {
	dir := record(t, randomEvents(5, 1), 0, WriterOptions{})
	p := open(t, dir).Parts()[0]
	events := filepath.Join(p.Path(), "events.arrow")
	os.Remove(events)
	os.Rename(filepath.Join(p.Path(), "samples.arrow"), events)
	_, _, err := readEvents(p)
	match(t, "samples as events", err, "its columns are not those of table events in version 1")
	os.WriteFile(events, []byte("PAR1 and so on, longer than the magic"), 0o600)
	_, _, err = readEvents(p)
	match(t, "parquet as events", err, "does not begin as an Arrow file")
	os.Remove(events)
	os.Mkdir(events, 0o700)
	_, _, err = readEvents(p)
	match(t, "a directory as events", err, "it is no regular file")
}
