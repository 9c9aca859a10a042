package cuda

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

const programs = "../testdata/programs/"

func TestStorm(t *testing.T) {
	storm := cc(t, "storm", programs+"storm.c", "-lpthread", "-ldl")
	for _, row := range []struct {
		name string
		e    Environment
		lost bool
	}{
		{name: "wait loses nothing", e: Environment{OnFull: "wait"}},
		{name: "a small lane drops and counts", e: Environment{LaneSize: format.MinLaneSize}, lost: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			const threads, events = 4, 20000
			for try := 0; ; try++ {
				r := newReceiver(t)
				r.wait.Store(!row.lost)
				r.paused.Store(row.lost)
				lanes, _ := program{e: row.e, args: []string{storm, "--threads", fmt.Sprint(threads), "--events", fmt.Sprint(events)}}.run(t, r)
				var got, lost uint64
				for _, l := range lanes {
					if m := l.missing(); m > l.dropped {
						t.Errorf("lane %d: %d missing by seq, %d by its counter", l.hello.TID, m, l.dropped)
					}
					lost += l.dropped
					got += uint64(count(l.events(), format.Alloc) + count(l.events(), format.Free))
				}
				if got+lost != threads*events {
					t.Errorf("%d recorded + %d lost of %d", got, lost, threads*events)
				}
				if pause := time.Duration(r.pause.Load()); lost > 0 && !row.lost && pause > time.Second/2 && try < 5 {
					t.Logf("%d lost to a reader that stood still for %v: once more", lost, pause)
					continue
				}
				if (lost > 0) != row.lost {
					t.Errorf("%d lost", lost)
				}
				break
			}
		})
	}
}

// Merged by time, give-backs first, the lanes' events must replay without an
// Alloc at a live address or a Free of none: the order of effect (A1, A2).
func TestOrderOfEffect(t *testing.T) {
	storm := cc(t, "storm", programs+"storm.c", "-lpthread", "-ldl")
	r := newReceiver(t) // lanes that hold it all: nothing is lost, however slowly they are read
	lanes, _ := program{e: Environment{LaneSize: 8 << 20}, args: []string{storm, "--threads", "4", "--events", "20000"}}.run(t, r)
	var at []int
	for range lanes {
		at = append(at, 0)
	}
	live := map[uint64]bool{}
	allocs := 0
	for {
		best := -1
		for i, l := range lanes {
			if at[i] == len(l.records) {
				continue
			}
			if best < 0 || earlier(l.records[at[i]], lanes[best].records[at[best]]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		rec := lanes[best].records[at[best]]
		at[best]++
		switch a := rec.Event().Address; rec.Kind() {
		case format.Alloc:
			if live[a] {
				t.Fatalf("Alloc at %#x, which is live", a)
			}
			live[a] = true
			allocs++
		case format.Free:
			if !live[a] {
				t.Fatalf("Free of %#x, which is not live", a)
			}
			delete(live, a)
		}
	}
	if allocs < 1000 {
		t.Errorf("only %d allocs", allocs)
	}
}

func earlier(a, b ring.Record) bool {
	if a.Time() != b.Time() {
		return a.Time() < b.Time()
	}
	return a.Kind().GivesBack() && !b.Kind().GivesBack()
}

// Every entry point through every door gives the same events.
func TestFlavours(t *testing.T) {
	dir := libraryDirectory(t)
	flavours := cc(t, "flavours", programs+"flavours.c", "-ldl")
	linked := cc(t, "linked", "-DLINKED", programs+"flavours.c", "-ldl", "-L", dir, "-l:libcuda.so.1")
	var want []string
	for _, row := range []struct {
		name string
		args []string
	}{
		{"dlsym", []string{flavours, "--door", "dlsym"}},
		{"procaddress", []string{flavours, "--door", "procaddress"}},
		{"procaddress per thread", []string{flavours, "--door", "procaddress", "--per-thread"}},
		{"linked", []string{linked, "--door", "linked"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			lanes, _ := program{args: row.args}.run(t, newReceiver(t))
			var got []string
			for _, r := range all(lanes) {
				switch r.Kind() {
				case format.FreeDone, format.Unhooked:
				default:
					got = append(got, strings.ReplaceAll(text(r), "_ptsz", ""))
				}
			}
			if len(lanes) != 1 || count(all(lanes), format.Unhooked) > 0 {
				t.Errorf("%d lanes, %d unhooked look-ups", len(lanes), count(all(lanes), format.Unhooked))
			}
			if want == nil {
				want = got
				golden(t, "flavours.txt", got)
			}
			if !slices.Equal(got, want) {
				t.Errorf("events differ from those through dlsym:\n%s\nthrough dlsym:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// Refused frees, and frees through another family of functions (A5, A9).
func TestFaults(t *testing.T) {
	faults := cc(t, "faults", programs+"faults.c", "-lpthread", "-ldl")
	lanes, _ := program{args: []string{faults}}.run(t, newReceiver(t))
	var got []string
	for _, r := range lanes[0].events() {
		if r.Kind() != format.FreeDone {
			got = append(got, text(r))
		}
	}
	golden(t, "faults.txt", got)
}

func golden(t *testing.T, name string, got []string) {
	t.Helper()
	path := "testdata/" + name
	text := strings.Join(got, "\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("differs from %s (go test -update rewrites it):\n%s", path, text)
	}
}

var update = flag.Bool("update", false, "rewrite the goldens")

// guest runs testdata/guest.c with these words.
func guest(t *testing.T, r *receiver, p program, words ...string) ([]*lane, string) {
	t.Helper()
	bin := cc(t, "guest", "testdata/guest.c", "-ldl", "-lpthread")
	p.args = append([]string{bin}, words...)
	return p.run(t, r)
}

func TestGuest(t *testing.T) {
	for _, row := range []struct {
		name  string
		words string
		check func(t *testing.T, lanes []*lane)
	}{
		{"errno is kept", "start errno", nil},
		{"no descriptor stays", "start descriptors", nil},
		{"a limit on file sizes costs events, not the program", "start file-limit", func(t *testing.T, lanes []*lane) {
			if len(lanes) != 0 {
				t.Errorf("%d lanes beyond RLIMIT_FSIZE", len(lanes))
			}
		}},
		{"a birth that failed is tried again, however often events come", "start file-limit-passes", func(t *testing.T, lanes []*lane) {
			if len(lanes) != 1 || lanes[0].dropped == 0 {
				t.Fatalf("%d lanes, want one that counts what was before it", len(lanes))
			}
			if got := uint64(count(lanes[0].events(), format.Alloc) + count(lanes[0].events(), format.Free)); got+lanes[0].dropped != 220*2 {
				t.Errorf("%d recorded + %d lost of %d", got, lanes[0].dropped, 220*2)
			}
		}},
		{"no descriptors to be had", "start no-descriptors", nil},
		{"look-ups answer as without us", "start dlsym", nil},
		{"no driver, no exports of it", "no-driver", nil},
		{"a lane is reused by the next thread", "start pair threads", func(t *testing.T, lanes []*lane) {
			if len(lanes) != 2 {
				t.Errorf("%d lanes for two threads at a time", len(lanes))
			}
			var names []string
			for _, r := range lanes[len(lanes)-1].records {
				if r.Kind() == format.ThreadBegin {
					names = append(names, strings.TrimRight(string(r.Thread().Name[:]), "\x00"))
				}
			}
			if len(names) != 200 || names[0] != "worker 0" || names[199] != "worker 199" {
				t.Errorf("threads: %q", names)
			}
		}},
		{"a birth after the first makes lanes for the next threads too", "start pair stay", func(t *testing.T, lanes []*lane) {
			files := map[format.WireHello]int{}
			for _, l := range lanes {
				files[l.hello]++
				if got, child := count(l.events(), format.Alloc), count(l.events(), format.Mark); l.missing() != 0 || l.dropped != 0 || got+child == 0 || got*child != 0 {
					t.Errorf("%d allocs, %d marks of a child, %d lost in a lane", got, child, l.dropped)
				}
			}
			var shares []int
			for _, n := range files {
				shares = append(shares, n)
			}
			slices.Sort(shares)
			if want := []int{1, 1, 1, 4, 4}; !slices.Equal(shares, want) { // the first thread's, a child's, and 9 threads'
				t.Errorf("files of lanes that threads wrote into: %v, want %v", shares, want)
			}
		}},
		{"more threads than memory for lanes", "start crowd", func(t *testing.T, lanes []*lane) {
			if len(lanes) > format.MaxLaneBytes/format.DefaultLane {
				t.Errorf("%d lanes", len(lanes))
			}
			// What the threads without a lane did is counted in one that is there.
			var got, lost uint64
			for _, l := range lanes {
				got += uint64(count(l.events(), format.Alloc) + count(l.events(), format.Free))
				lost += l.dropped
				if l.missing() > l.dropped {
					t.Errorf("%d missing, %d dropped", l.missing(), l.dropped)
				}
			}
			if lost == 0 || got+lost != 301*2 {
				t.Errorf("%d recorded + %d lost of %d", got, lost, 301*2)
			}
		}},
		{"a limit that has room for one lane, not for four", "start file-limit-of-one", func(t *testing.T, lanes []*lane) {
			if len(lanes) != 2 || lanes[0].dropped+lanes[1].dropped != 0 {
				t.Errorf("%d lanes for two threads", len(lanes))
			}
		}},
		{"a forked child has its own lane", "start forks", func(t *testing.T, lanes []*lane) {
			var got []string
			for _, l := range lanes {
				got = append(got, fmt.Sprint(l.hello.PID == lanes[0].hello.PID, count(l.events(), format.Mark), count(l.events(), format.Alloc)))
			}
			if want := []string{"true 4 1", "false 1 0", "false 1 0", "false 1 0"}; !slices.Equal(got, want) {
				t.Errorf("lanes %q, want %q", got, want)
			}
		}},
		{"a child of many lanes forgets them in time", "start forks-of-a-crowd", func(t *testing.T, lanes []*lane) {
			var got uint64
			for _, l := range lanes {
				if l.hello.PID != lanes[0].hello.PID {
					got += uint64(count(l.events(), format.Mark)) + l.dropped
				}
			}
			if got != 20*2 {
				t.Errorf("%d recorded or counted of %d", got, 20*2)
			}
		}},
		{"what is looked up and not wrapped is said once", "start unhooked", func(t *testing.T, lanes []*lane) {
			names := map[uint64]string{}
			var got []string
			for _, r := range lanes[0].records {
				switch r.Kind() {
				case format.WireName:
					d, s := r.Name()
					names[d.Hash] = string(s)
				case format.Unhooked:
					got = append(got, names[r.Scope().Name])
				}
			}
			if want := []string{"cuMemAllocUnheard"}; !slices.Equal(got, want) {
				t.Errorf("unhooked %q, want %q", got, want)
			}
		}},
		{"the public functions", "start api", func(t *testing.T, lanes []*lane) {
			var got []string
			names := map[uint64]string{0: "-"}
			for _, r := range lanes[0].records {
				switch ring.ShapeOf(r.Kind()) {
				case ring.ShapeDefinition:
					if r.Kind() == format.WireName {
						d, s := r.Name()
						names[d.Hash] = string(s[:min(len(s), 8)])
					}
				case ring.ShapeScope:
					s := r.Scope()
					got = append(got, fmt.Sprintf("%s %s name=%s domain=%s flags=%d depth=%d", s.Kind, s.API, names[s.Name], names[s.Domain], s.Flags, s.Depth))
				case ring.ShapeEvent:
					if r.Kind() != format.FreeDone {
						got = append(got, fmt.Sprintf("%s requested=%d object=%d known duration=%v", text(r), r.Event().A, r.Event().B, r.Call().Duration >= 0))
					}
				}
			}
			golden(t, "api.txt", got)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			lanes, _ := guest(t, newReceiver(t), program{}, strings.Fields(row.words)...)
			if row.check != nil {
				row.check(t, lanes)
			}
		})
	}
}

// A process's first events come from many threads at once: each of them leaves
// its lane to a later one.
func TestDawn(t *testing.T) {
	for range 20 {
		e := Environment{LaneSize: 2 * format.DefaultLane} // no birth makes more than one of these
		lanes, _ := guest(t, newReceiver(t), program{e: e}, "start", "dawn")
		if len(lanes) != 8 {
			t.Errorf("%d lanes of 8 threads at a time", len(lanes))
		}
	}
}

// Above 7/8 only Allocs are refused: every Free of a full lane is there.
func TestFullLane(t *testing.T) {
	r := newReceiver(t)
	r.paused.Store(true)
	lanes, _ := guest(t, r, program{e: Environment{LaneSize: format.MinLaneSize}}, "start", "full")
	events := lanes[0].events()
	allocs, frees := count(events, format.Alloc), count(events, format.Free)
	if frees != 200 || allocs >= 4000 || uint64(allocs)+lanes[0].dropped != 4000 {
		t.Errorf("%d allocs and %d frees recorded, %d dropped, of 4000 and 200", allocs, frees, lanes[0].dropped)
	}
	if lanes[0].missing() != lanes[0].dropped {
		t.Errorf("%d missing by seq, %d by the counter", lanes[0].missing(), lanes[0].dropped)
	}
}

// A process that is killed leaves all it has published (F6).
func TestKilled(t *testing.T) {
	r := newReceiver(t)
	bin := cc(t, "guest", "testdata/guest.c", "-ldl", "-lpthread")
	cmd := program{args: []string{bin, "start", "hang"}}.command(t, r)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.waitFor(func(r ring.Record) bool { return r.Kind() == format.Mark })
	cmd.Process.Kill()
	cmd.Wait()
	if got := all(r.finish()); count(got, format.Alloc) != 1 || count(got, format.Free) != 1 {
		t.Errorf("%d events", len(got))
	}
}

// Processes that have nothing to do with CUDA, or with no recorder, are left alone.
func TestInert(t *testing.T) {
	t.Run("no recorder", func(t *testing.T) {
		guest(t, nil, program{}, "start", "inert")
	})
	t.Run("nobody listens", func(t *testing.T) {
		guest(t, nil, program{e: Environment{Socket: "/nonexistent/socket"}}, "start", "pair", "errno", "inert")
	})
	t.Run("no CUDA", func(t *testing.T) {
		r := newReceiver(t)
		lanes, out := program{args: []string{"sh", "-c", "echo one; ls / > /dev/null; echo two"}}.run(t, r)
		if len(lanes) != 0 || out != "one\ntwo\n" {
			t.Errorf("%d lanes, output %q", len(lanes), out)
		}
	})
	t.Run("says why only when asked", func(t *testing.T) {
		bin := cc(t, "guest", "testdata/guest.c", "-ldl", "-lpthread")
		for _, verbose := range []bool{false, true} {
			cmd := program{e: Environment{Socket: "/nonexistent/socket", Verbose: verbose}, args: []string{bin, "start", "pair"}}.command(t, nil)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "gpurec: off") != verbose {
				t.Errorf("verbose %v: %v\n%s", verbose, err, out)
			}
		}
	})
}

// The library needs nothing that a system of 2014 lacks, and shows nothing else
// than it must.
func TestLibrary(t *testing.T) {
	f, err := elf.Open(libraryDirectory(t) + "/" + HookName)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	needed, err := f.DynString(elf.DT_NEEDED)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range needed {
		if n != "libc.so.6" && n != "libdl.so.2" && !strings.HasPrefix(n, "ld-linux") {
			t.Errorf("needs %s", n)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	exported, versions := 0, 0
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF {
			var minor int
			if _, err := fmt.Sscanf(s.Version, "GLIBC_2.%d", &minor); err == nil {
				versions++
				if minor > 17 {
					t.Errorf("%s needs %s", s.Name, s.Version)
				}
			}
			continue
		}
		exported++
		ok := slices.Contains([]string{"dlsym", "dlclose", "dlopen", "dlmopen"}, s.Name) || strings.HasPrefix(s.Name, "InitializeInjectionNvtx") || strings.HasPrefix(s.Name, "cu") || strings.HasPrefix(s.Name, "gpurec_") ||
			strings.HasPrefix(s.Name, "_ZN3c1027reportMemoryUsageToProfiler") || strings.HasPrefix(s.Name, "_ZN3c1027reportOutOfMemoryToProfiler")
		if versioned := strings.HasPrefix(s.Version, "GLIBC_"); s.Name == s.Version { // a version's own
			continue
		} else if !ok || versioned != (s.Name == "dlsym") {
			t.Errorf("exports %s %s", s.Name, s.Version)
		}
	}
	hooked := 0
	for _, a := range format.APIs {
		if a.Hook {
			hooked++
			if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == a.Name && s.Section != elf.SHN_UNDEF }) {
				t.Errorf("%s is not exported", a.Name)
			}
		}
	}
	if versions == 0 || exported < hooked || hooked < 30 {
		t.Errorf("%d versions, %d exports, %d hooked functions seen", versions, exported, hooked)
	}
}
