package formattest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// built uses every word of the Builder.
func built(t *testing.T) *Builder {
	b := New(t)
	p := b.Process("python train.py")
	gpu := b.Device("GPU-0", 80<<30)
	b.Device("GPU-1", 80<<30)
	b.Stack("main.py:3:<module>", "model.py:10:forward")
	b.Begin("forward")
	b.Alloc(format.APITorch, 0x100, 512).Allocated = 512
	b.Alloc(format.APICuPy, 7, 1024)
	b.Stack("main.py:3:<module>")
	b.Begin("inner")
	b.AllocFailed(format.APIMemAlloc, 1<<40)
	b.Free(format.APITorch, 0x100)
	b.End()
	b.Mark("here")
	b.Sample(gpu, 1<<30).Process = p
	b.Process("child")
	b.Thread(77)
	b.Alloc(format.APIMemAlloc, 0x200, 4096).Device = 1
	b.In(p, uint32(4001))
	b.End()
	b.Part([]format.Event{{Kind: format.Live, Process: 2, Device: 1, Size: 4096, Stack: 2}, {Kind: format.CheckpointEnd, Size: 1, Device: format.NoDevice}})
	b.Free(format.APIMemAlloc, 0x200)
	return b
}

func TestBuilder(t *testing.T) {
	tr := built(t).Trace()
	Validate(t, tr)
	Golden(t, "built.txt", []byte(Twin(t, tr)))
	if again := Twin(t, Text(t, Twin(t, tr))); again != Twin(t, tr) {
		t.Errorf("through text it became\n%s", again)
	}
}

func TestEachSeesGoldens(t *testing.T) {
	n := 0
	Each(t, "testdata/*.txt", func(t *testing.T, path string) {
		n++
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		Validate(t, Text(t, string(b)))
	})
	if n != 1 {
		t.Errorf("%d goldens seen", n)
	}
}

func TestCheck(t *testing.T) {
	const defs = "process 1\ndevice 0\nframe 1 go a 1 b\nstack 1 0 1\nstack 2 9 1\nstack 3 0 5\nname 1 n\n"
	for _, c := range []struct{ name, text, want string }{
		{"good", "1 Alloc size=1 stack=1 device=0 name=1 seq=1", ""},
		{"no events", "", ""},
		{"stack", "1 Mark stack=8", "its stack is not defined"},
		{"caller", "1 Mark stack=2", "or a caller of it"},
		{"frame", "1 Mark stack=3", "frame 5 of its stack is not defined"},
		{"process", "1 Mark process=2", "its process is not defined"},
		{"device", "1 Mark device=2", "its device is not defined"},
		{"name", "1 Mark name=2", "name 2 is not defined"},
		{"note", "1 Mark note=2", "name 2 is not defined"},
		{"sample's device", "sample 1 device=3", "device 3 is not defined"},
		{"sample's process", "sample 1 device=0 process=3", "process 3 is not defined"},
		{"sample's api", "sample 1 device=0 api=3", "api 3"},
		{"size", "1 Alloc", "what is taken has no size"},
		{"status of an Alloc", "1 Alloc size=1 status=2", "has failed"},
		{"address of a failed", "1 AllocFailed api=torch address=1", "has an address"},
		{"status of a failed", "1 AllocFailed api=cuMemAlloc_v2", "has no status"},
		{"scope without name", "1 ScopeBegin scope=1", "without id or name"},
		{"scope twice", "1 ScopeBegin scope=1 name=1\n1 ScopeBegin scope=1 name=1", "the scope is open"},
		{"scope ends twice", "1 ScopeBegin scope=1 name=1\n1 ScopeEnd scope=1\n1 ScopeEnd scope=1", "the scope is not open"},
		{"report of no scope", "1 ScopeReport scope=1", "the scope is not open"},
		{"scope open over a part", "1 ScopeBegin scope=1 name=1\npart\n1 LiveScope scope=1\n2 CheckpointEnd size=1\n3 ScopeEnd scope=1", ""},
		{"scope forgotten by a checkpoint", "1 ScopeBegin scope=1 name=1\npart\n2 CheckpointEnd size=0\n3 ScopeEnd scope=1", "the scope is not open"},
		{"parts deleted", "part 3\n2 CheckpointEnd size=0\n3 ScopeEnd scope=1", ""},
		{"gap", "1 Mark seq=1\n1 Mark seq=3", "seq 3 after 1, and 0 are said to be lost"},
		{"gap that is counted", "1 Mark seq=1\n1 Lost size=1\n1 Mark\n1 Mark seq=3", ""},
		{"more counted than missing", "1 Mark seq=1\n1 Lost size=2\n1 Mark seq=3", "and 2 are said to be lost"},
		{"number twice", "1 Mark seq=1\n1 Mark seq=1", "seq 1 after 1"},
		{"thread's number used again", "1 Mark seq=5\n1 ThreadBegin seq=1", ""},
		{"numbers of two threads", "1 Mark seq=5\n1 Mark seq=9 thread=2\n1 Mark seq=6\n1 Mark thread=2 seq=10", ""},
		{"nothing lost", "1 Lost size=0", "nothing is lost"},
		{"no checkpoint", "part 1\n1 Mark", "begins without a checkpoint"},
		{"no rows", "part 1", "it has not even a checkpoint"},
		{"no end", "part 1\n1 Live size=1", "its checkpoint has no end"},
		{"no end, then an event", "part\n1 Live size=1\n1 Mark", "it has no end"},
		{"wrong count", "part\n1 Live size=1\n1 CheckpointEnd size=2", "the checkpoint has 1 rows"},
		{"checkpoint in the middle", "1 Mark\n1 Live size=1", "outside of one"},
		{"two ends", "part\n1 CheckpointEnd size=0\n1 CheckpointEnd size=0", "outside of one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, faults := Check(Text(t, defs+c.text))
			got := strings.Join(faults, "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("faults %q, want %q", got, c.want)
			}
			if c.want != "" && len(faults) > 2 {
				t.Errorf("one mistake, %d faults: %q", len(faults), got)
			}
		})
	}
	_, faults := Check(Text(t, "meta events=1 lost=3\n1 Lost size=2"))
	if len(faults) != 1 || !strings.Contains(faults[0], "says 3 lost, the Lost rows say 2") {
		t.Errorf("faults %q", faults)
	}
	_, faults = Check(Text(t, strings.Repeat("1 Lost size=0\n", 100)))
	if len(faults) != maxFaults+1 || faults[maxFaults] != "and 80 more faults" {
		t.Errorf("100 faults are %d lines, the last %q", len(faults), faults[len(faults)-1])
	}
}

func TestCheckOfDamage(t *testing.T) {
	tr := built(t).Trace()
	os.Truncate(filepath.Join(tr.Path(), "00001", "events.arrow"), 10)
	os.Remove(filepath.Join(tr.Path(), "00000", "stacks.arrow"))
	_, faults := Check(tr)
	got := strings.Join(faults, "\n")
	for _, want := range []string{"truncated at batch 0", "the table is missing", "its stack is not defined"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

// recorderT hears what a helper says of a test, in place of the test.
type recorderT struct {
	testing.TB
	said []string
}

func (r *recorderT) Helper() {}
func (r *recorderT) Errorf(f string, args ...any) {
	r.said = append(r.said, f)
}

func TestGoldenFails(t *testing.T) {
	for _, c := range []struct{ name, file, got string }{
		{"differs", "built.txt", "gpurec 1\n"},
		{"is missing", "none.txt", "x"},
		{"is empty", "built.txt", ""},
	} {
		if *update {
			t.Log("not looked at: -update rewrites what should differ")
			continue
		}
		var r recorderT
		Golden(&r, c.file, []byte(c.got))
		if len(r.said) != 1 {
			t.Errorf("a golden that %s: %d errors", c.name, len(r.said))
		}
	}
}
