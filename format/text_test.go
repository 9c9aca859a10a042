package format

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// twin is a canonical text: read and written it is the same.
const twin = `gpurec 1
meta trace_id="t" tool="gpurec 1" host="h" command="python" command="" command="a b" option="--stacks=both" start=2026-11-30T10:00:00.5+02:00 start_monotonic=1000 start_tsc=18446744073709551615 driver="550" nvml="no library" note="first, \"quoted\"" note="second" job="7 9 1 8 a b" job="8 18446744073709551615 -1 -1 " simulated=true ending="failed" reason="disk \"full\"" status=-1 end_monotonic=9 events=1 lost=2 closed_lanes=3 late=4 unresolved=5 lanes=6 cpu_ns=7
device 0 uuid="GPU-0" name="H200" total=150754820096 nvml=0
device 7
process 1 pid=4711 parent=1 start_time=99 image=0xffffffffffffffff begin=0 end=10 status=0 rank=3 executable="/usr/bin/python" command="python train.py" python="3.12"
frame 1 python "/app/main.py" 42 "<module>"
frame 2 native "" -1 "malloc\x00\n\"é" module="/lib/libc.so.6" build_id="ab" address=0x1234
frame 4000000000 thread "" 0 "[thread x]"
stack 10 0 1
stack 11 10 2
stack 12 77 78
name 3 "forward"
name 4 "</script><img src=x onerror=…>\u202e"
name 5 ""
part
-1000 ScopeBegin thread=7 api=scope size=0 scope=1 name=3
1200 Alloc duration=20 thread=7 seq=9223372036854775807 api=cupy device=0 cuctx=0x1 address=0x7f00 object=0x55 size=1024 requested=1000 stack=10
1300 Alloc thread=7 api=torch device=0 address=0xffffffffffffffff size=9223372036854775807 allocated=0 reserved=2 stack=11 flags=nested|inpool|0x8000
1400 Free process=0 thread=7 api=cuMemFree_v2 layer=pool class=managed device=-2 stream=0x1 pool=0x2 scope=18446744073709551615 parent=5 name=99 note=4 status=-5
1400 Mark process=2
1300 Unhooked api="api 999"
1300 Unhooked layer=host class=imported
sample 1300 device=0 total=100 used=10 free=90 reserved=0
sample 1300 process=1 used=10 process_used=7 peak_used=12 api=1
part 4
2000 CheckpointEnd size=0
part
`

// fromText makes a trace of a text.
func fromText(t testing.TB, text string) (*Trace, error) {
	dir := filepath.Join(t.TempDir(), "t.gpurec")
	if err := ReadText(strings.NewReader(text), dir); err != nil {
		if _, serr := os.Stat(dir); !errors.Is(serr, fs.ErrNotExist) {
			t.Errorf("reading failed and left %s", dir)
		}
		return nil, err
	}
	return Open(dir)
}

func toText(t testing.TB, tr *Trace) string {
	t.Helper()
	var out bytes.Buffer
	if err := WriteText(&out, tr); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTextComesBackTheSame(t *testing.T) {
	tr, err := fromText(t, twin)
	if err != nil {
		t.Fatal(err)
	}
	if got := toText(t, tr); got != twin {
		t.Errorf("got\n%s\nwant\n%s", got, twin)
	}
	enc, _ := zstd.NewWriter(nil)
	packed := enc.EncodeAll([]byte(twin), nil)
	tr, err = fromText(t, string(packed))
	if err != nil {
		t.Fatalf("a compressed twin: %v", err)
	}
	if got := toText(t, tr); got != twin {
		t.Errorf("a compressed twin came back as\n%s", got)
	}
}

// What the writer may be given goes to text and back, column by column.
func TestEventsThroughText(t *testing.T) {
	want := randomEvents(2000, 11)
	tr, err := fromText(t, toText(t, open(t, record(t, want, 0, WriterOptions{}))))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := readEvents(tr.Parts()[0])
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d events, %v", len(got), err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("event %d is %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestTextDefaults(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "gpurec 1", "meta\npart\n"},
		{"version 0", "gpurec 0\n1 Mark", "meta\npart\n1 Mark\n"},
		{"comments, blanks, tabs, no quotes, CRLF", "# c\n\n gpurec\t1 # d\r\nname 1 a#b # c\r\n\tname 2 \"#\"#x", "!no space after a quote"},
		{"comments at the end", "gpurec 1\nname 1 a#b # c \"\n  # d\nmeta host=h", "meta host=\"h\"\nname 1 \"a#b\"\npart\n"},
		{"growing", "gpurec 1\nmeta ending=growing", "meta ending=\"growing\"\npart\n"},
		{"the only process", "gpurec 1\nprocess 7\n1 Mark", "meta\nprocess 7\npart\n1 Mark\n"},
		{"no process", "gpurec 1\n1 Mark process=0", "meta\npart\n1 Mark\n"},
		{"two processes", "gpurec 1\nprocess 7\nprocess 8\n1 Mark process=8", "meta\nprocess 7\nprocess 8\npart\n1 Mark process=8\n"},
		{"a process that changes", "gpurec 1\nprocess 7 pid=1\npart\n1 Mark\npart\nprocess 7 pid=2", "meta\nprocess 7 pid=2\npart\n1 Mark\npart\n"},
		{"layer and class of an api", "gpurec 1\n1 Alloc api=cuMemAllocHost_v2 layer=host class=none", "meta\npart\n1 Alloc api=cuMemAllocHost_v2 class=none\n"},
		{"names by text", "gpurec 1\nname 1 a\n1 Mark name=\"a\"\n2 Mark name=\"b\" note=\"b\"\n3 Mark name=\"\"", "meta\nname 1 \"a\"\nname 2 \"b\"\nname 3 \"\"\npart\n1 Mark name=1\n2 Mark name=2 note=2\n3 Mark name=3\n"},
		{"peak as used", "gpurec 1\nsample 5 used=3 peak_used=3", "meta\npart\nsample 5 used=3\n"},
		{"numbers as Go has them", "gpurec 1\n1 Alloc size=0x10 address=16 requested=1_000", "meta\npart\n1 Alloc address=0x10 size=16 requested=1000\n"},
		{"first part not 0", "gpurec 1\npart 3\n1 Mark\npart", "meta\npart 3\n1 Mark\npart\n"},
		{"the same definition twice", "gpurec 1\nframe 1 go a 1 b\nframe 1 go \"a\" 1 b", "meta\nframe 1 go \"a\" 1 \"b\"\npart\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, err := fromText(t, c.in)
			if want, bad := strings.CutPrefix(c.want, "!"); bad {
				match(t, c.name, err, want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := toText(t, tr); got != "gpurec 1\n"+c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestTextErrors(t *testing.T) {
	const head = "gpurec 1\n"
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", `line 1: a text twin begins with the line "gpurec 1"`},
		{"no head", "# c\n1 Mark", `line 2: a text twin begins`},
		{"newer", "gpurec 2", "text twin: format version 2 is newer than 1"},
		{"negative version", "gpurec -1", "line 1: there is no version -1"},
		{"no version", "gpurec", "line 1: version is missing"},
		{"more in the head", "gpurec 1 1", `"1" is more than the line can hold`},
		{"unknown line", head + "\nthread 7", `line 3: "thread" is no line of a text twin`},
		{"unknown kind", head + "1 Malloc", `line 2: unknown kind "Malloc"`},
		{"no kind", head + "1", "line 2: kind is missing"},
		{"a number as kind", head + "1 3", `unknown kind "3"`},
		{"unknown key", head + "1 Mark sizee=3", `an event has no key "sizee"`},
		{"no key", head + "1 Mark 3", `"3" has no key`},
		{"no number", head + "1 Mark size=x", "is no number"},
		{"number too large", head + "1 Mark thread=4294967296", "does not fit in 32 bits"},
		{"device too large", head + "device 32768", "device 32768 is over 32767"},
		{"unknown api", head + "1 Mark api=malloc", `unknown api "malloc"`},
		{"unknown layer", head + "1 Mark layer=x", `unknown layer "x"`},
		{"unknown class", head + "1 Mark class=x", `unknown class "x"`},
		{"unknown flag", head + "1 Mark flags=nested|x", `unknown flag "x"`},
		{"which process", head + "process 1\nprocess 2\n1 Mark", "line 4: process= is needed: 2 are defined"},
		{"id 0", head + "stack 0 1 1", "id 0 stands for none"},
		{"stack without frame", head + "stack 1 1", "frame is missing"},
		{"frame of another kind", head + "frame 1 java a 1 b", `unknown frame kind "java"`},
		{"redefined frame", head + "frame 1 go a 1 b\nframe 1 go a 2 b", "frame 1 is defined twice, differently"},
		{"redefined stack", head + "stack 1 0 1\nstack 1 0 2", "stack 1 is defined twice"},
		{"redefined name", head + "name 1 a\nname 1 b", "name 1 is defined twice"},
		{"job without its words", "gpurec 1\nmeta job=\"7 9 1\"", "is not PID START LOCAL_RANK WORLD_SIZE ID"},
		{"job of no number", "gpurec 1\nmeta job=\"7 9 1 99999999999 x\"", "is no number of 32 bits"},
		{"meta twice", head + "meta\nmeta", "meta stands once"},
		{"meta late", head + "1 Mark\nmeta", "before the first part"},
		{"unknown ending", head + "meta ending=lost", `unknown ending "lost"`},
		{"time of no calendar", head + "meta start=2026-02-30T10:00:00Z", "is no RFC 3339 instant"},
		{"parts backwards", head + "part 3\npart 3", "part 3 does not come after part 3"},
		{"open quote", head + `name 1 "a`, "a quote is not closed"},
		{"quote inside", head + `name 1 a"b"`, "a quote or = inside a word"},
		{"two =", head + "1 Mark size=1=2", "is no number"},
		{"not UTF-8", head + `name 1 "\xff"`, "not UTF-8"},
		{"not UTF-8, bare", head + "name 1 a\xff", "not UTF-8"},
		{"compressed and cut", "\x28\xb5\x2f\xfd\x04", "read text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := fromText(t, c.in)
			match(t, c.name, err, c.want)
			var s *SyntaxError
			if err != nil && strings.HasPrefix(c.want, "line ") && !errors.As(err, &s) {
				t.Errorf("a %T", err)
			}
		})
	}
	long := head + "name 1 " + strings.Repeat("x", maxLine+1)
	if _, err := fromText(t, long); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a line of %d bytes: %v", len(long), err)
	}
}

// A text of a damaged trace has what could be read, and says what could not.
func TestTextOfADamagedTrace(t *testing.T) {
	dir := record(t, randomEvents(200, 5), 50, WriterOptions{})
	path := filepath.Join(dir, "00000", "events.arrow")
	fi, _ := os.Stat(path)
	os.Truncate(path, fi.Size()/2)
	os.Remove(filepath.Join(dir, "00000", "names.arrow"))
	var out bytes.Buffer
	err := WriteText(&out, open(t, dir))
	if !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), "names.arrow") {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(out.String(), "\n"); n < 100 {
		t.Errorf("only %d lines", n)
	}
}
