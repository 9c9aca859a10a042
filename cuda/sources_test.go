package cuda

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder/ring"
)

// PyTorch's reports, by the names of its versions; what is not CUDA's is passed
// on and not recorded.
func TestTorch(t *testing.T) {
	for _, row := range []struct{ name, flag string }{{"2.x", "-DCURRENT"}, {"1.10 to 1.13", "-DLEGACY"}} {
		t.Run(row.name, func(t *testing.T) {
			libc10 := cc(t, "libc10.so", row.flag, "-shared", "-fPIC", "testdata/libc10.c", "-Wl,-soname=libc10.so")
			dir := filepath.Dir(libc10)
			user := cc(t, "libc10user.so", row.flag, "-shared", "-fPIC", "testdata/c10user.c", "-L", dir, "-l:libc10.so", "-Wl,-rpath="+dir)
			main := cc(t, "torch", "testdata/torch.c", "-ldl")
			p := program{args: []string{main, user}}

			_, without := program{args: p.args, e: Environment{}}.run(t, nil)
			lanes, out := p.run(t, newReceiver(t))
			if out != without || strings.Count(out, "\n") != 5 {
				t.Errorf("what reached libc10:\n%s\nwithout a recorder:\n%s", out, without)
			}
			var got []string
			for _, r := range all(lanes) {
				got = append(got, fmt.Sprintf("%s address=%#x allocated=%d reserved=%d slots=%d", text(r), r.Event().Address, r.Event().A, r.Event().B, r.Head().Slots))
			}
			golden(t, "torch.txt", got)
		})
	}
}

// NVTX in two libraries, each with its own tables.
func TestNVTX(t *testing.T) {
	a := cc(t, "liba.so", "-shared", "-fPIC", "testdata/nvtxclient.c", "-ldl")
	b := cc(t, "libb.so", "-shared", "-fPIC", "testdata/nvtxclient.c", "-ldl")
	main := cc(t, "nvtx", "testdata/nvtx.c", "-ldl")
	tool := cc(t, "libtool.so", "-shared", "-fPIC", "testdata/nvtxtool.c")
	for _, row := range []struct {
		name string
		env  []string
	}{
		{"alone", nil},
		{"chained in front of another tool", []string{format.EnvNVTXChain + "=" + tool}},
	} {
		t.Run(row.name, func(t *testing.T) {
			lanes, out := program{args: []string{main, a, b}, env: row.env}.run(t, newReceiver(t))
			if len(lanes) != 1 {
				t.Fatalf("%d lanes", len(lanes))
			}
			names := map[uint64]string{0: "-"}
			ranges := map[uint64]int{0: 0}
			got := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			for _, r := range lanes[0].records {
				switch {
				case r.Kind() == format.WireName:
					d, s := r.Name()
					names[d.Hash] = fmt.Sprintf("%q/%d", s, d.Unit)
				case ring.ShapeOf(r.Kind()) == ring.ShapeScope:
					s := r.Scope()
					if _, ok := ranges[s.Range]; !ok {
						ranges[s.Range] = len(ranges)
					}
					name, ok := names[s.Name]
					if _, ok2 := names[s.Domain]; !ok || !ok2 {
						t.Errorf("%s before its names", s.Kind)
					}
					got = append(got, fmt.Sprintf("%s %s name=%s domain=%s depth=%d range=%d flags=%d", s.Kind, s.API, name, names[s.Domain], s.Depth, ranges[s.Range], s.Flags))
				}
			}
			golden(t, "nvtx-"+strings.Fields(row.name)[0]+".txt", got)
		})
	}
	t.Run("not recorded", func(t *testing.T) {
		_, out := program{args: []string{main, a}}.run(t, nil)
		if !strings.HasPrefix(out, "init 0") || !strings.Contains(out, "push -2") {
			t.Errorf("a library that nobody listens to: %s", out)
		}
	})
}

func TestEnviron(t *testing.T) {
	for _, row := range []struct {
		name       string
		base, want []string
		e          Environment
	}{
		{
			name: "nothing before",
			base: []string{"HOME=/h"},
			e:    Environment{Hook: "/c/libgpurec.so", Socket: "/r/s", Python: "/c/python", Stacks: "auto", OnFull: "drop", MaxFrames: 64, LaneSize: 1 << 20},
			want: []string{"HOME=/h", "GPUREC_SOCKET=/r/s", "GPUREC_HOOK=/c/libgpurec.so", "GPUREC_STACKS=auto", "GPUREC_ON_FULL=drop", "GPUREC_MAX_FRAMES=64",
				"GPUREC_LANE_SIZE=1048576", "GPUREC_OUTER=GPUREC_LANE_SIZE=1048576&GPUREC_MAX_FRAMES=64&GPUREC_ON_FULL=drop&GPUREC_STACKS=auto",
				"LD_PRELOAD=/c/libgpurec.so", "NVTX_INJECTION64_PATH=/c/libgpurec.so", "PYTHONPATH=/c/python"},
		},
		{
			name: "what was there comes after",
			base: []string{"LD_PRELOAD=/x.so:/y.so", "NVTX_INJECTION64_PATH=/nsys.so", "PYTHONPATH=/p:/q", "LD_LIBRARY_PATH=/l"},
			e:    Environment{Hook: "/c/libgpurec.so", Socket: "/r/s", Python: "/c/python"},
			want: []string{"LD_LIBRARY_PATH=/l", "GPUREC_SOCKET=/r/s", "GPUREC_HOOK=/c/libgpurec.so", "LD_PRELOAD=/c/libgpurec.so:/x.so:/y.so",
				"NVTX_INJECTION64_PATH=/c/libgpurec.so", "GPUREC_NVTX_CHAIN=/nsys.so", "PYTHONPATH=/c/python:/p:/q"},
		},
		{
			name: "a recording in a recording",
			base: []string{"GPUREC_SOCKET=/outer", "GPUREC_STACKS=none", "LD_PRELOAD=/old/libgpurec.so /x.so", "NVTX_INJECTION64_PATH=/old/libgpurec.so",
				"GPUREC_NVTX_CHAIN=/nsys.so", "PYTHONPATH=/c/python:/p"},
			e: Environment{Hook: "/c/libgpurec.so", Socket: "/r/s", Python: "/c/python"},
			want: []string{"GPUREC_SOCKET=/r/s", "GPUREC_HOOK=/c/libgpurec.so", "LD_PRELOAD=/c/libgpurec.so:/x.so", "NVTX_INJECTION64_PATH=/c/libgpurec.so",
				"GPUREC_NVTX_CHAIN=/nsys.so", "PYTHONPATH=/c/python:/p"},
		},
		{
			name: "simulated, no Python",
			base: []string{"LD_LIBRARY_PATH=/l", "PYTHONPATH=/p", "GPUREC_SIM_STATE=/old"},
			e:    Environment{Hook: "/c/libgpurec.so", Socket: "/r/s", Simulator: "/c/sim", SimulatorState: "/r/state", Verbose: true},
			want: []string{"GPUREC_SOCKET=/r/s", "GPUREC_HOOK=/c/libgpurec.so", "GPUREC_VERBOSE=1", "GPUREC_OUTER=GPUREC_VERBOSE=1", "LD_PRELOAD=/c/libgpurec.so",
				"NVTX_INJECTION64_PATH=/c/libgpurec.so", "PYTHONPATH=/p", "LD_LIBRARY_PATH=/c/sim:/l", "GPUREC_SIM_STATE=/r/state"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := row.e.Environ(row.base); !slices.Equal(got, row.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(row.want, "\n"))
			}
		})
	}
}

// TestUserSetting starts recordings in one another: each has its own settings and
// sees of the user's what the user said, not what the ones outside told their hooks.
func TestUserSetting(t *testing.T) {
	outer := Environment{Hook: "/c/libgpurec.so", Socket: "/r/s", Stacks: "none", OnFull: "wait", MaxFrames: 7}
	for _, row := range []struct {
		name       string
		base, then []string // what the user set outside, and between the two
		want       map[string]string
	}{
		{"nothing", nil, nil, map[string]string{}},
		{"outside", []string{"GPUREC_STACKS=python", "GPUREC_LANE_SIZE=2 MiB"}, nil, map[string]string{"GPUREC_STACKS": "python"}},
		{"outside, as the recording has it", []string{"GPUREC_ON_FULL=wait"}, nil, map[string]string{"GPUREC_ON_FULL": "wait"}},
		{"between", nil, []string{"GPUREC_MAX_FRAMES=9"}, map[string]string{"GPUREC_MAX_FRAMES": "9"}},
		{"both", []string{"GPUREC_MAX_FRAMES=8"}, []string{"GPUREC_MAX_FRAMES=9"}, map[string]string{"GPUREC_MAX_FRAMES": "9"}},
		{"a value with all that a query string needs", []string{"GPUREC_STACKS=a&b=c;% ", "GPUREC_OUTER=%zz"}, nil, map[string]string{"GPUREC_STACKS": "a&b=c;% "}},
	} {
		t.Run(row.name, func(t *testing.T) {
			env := row.base
			for depth := 1; depth < 4; depth++ {
				env = append(outer.Environ(env), row.then...)
				lookup := func(name string) (value string, ok bool) {
					for _, kv := range env {
						if n, v, _ := strings.Cut(kv, "="); n == name {
							value, ok = v, true // the last one, as after putenv
						}
					}
					return value, ok
				}
				for _, name := range shared {
					want, is := row.want[name]
					if name == "GPUREC_LANE_SIZE" {
						continue // this recording tells its hook none
					}
					if got, ok := UserSetting(lookup, name); got != want || ok != is {
						t.Errorf("depth %d: %s is %q (%v), want %q", depth, name, got, ok, want)
					}
				}
			}
		})
	}
}
