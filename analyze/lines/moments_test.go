package lines

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// Every row of spec/semantics.md §2.3.
func TestSize(t *testing.T) {
	for _, row := range []struct {
		n    int64
		want string
	}{
		{0, "0.00B"}, {1, "1.00B"}, {511, "511.00B"}, {1000, "1000.00B"}, {1023, "1023.00B"}, {1024, "1.00KB"}, {1025, "1.00KB"},
		{1029, "1.00KB"}, {1030, "1.01KB"}, {1152, "1.12KB"}, {1408, "1.38KB"}, {1536, "1.50KB"}, {1664, "1.62KB"}, {1920, "1.88KB"},
		{2048, "2.00KB"}, {102400, "100.00KB"}, {1047552, "1023.00KB"}, {1048064, "1023.50KB"}, {-1, "-1.00B"}, {-4096, "-4096.00B"},
		{-1048576, "-1048576.00B"}, {1048570, "1023.99KB"}, {1048571, "1024.00KB"}, {1048575, "1024.00KB"}, {1048576, "1.00MB"},
		{1049088, "1.00MB"}, {1179648, "1.12MB"}, {1310720, "1.25MB"}, {1441792, "1.38MB"}, {1068373115, "1018.88MB"},
		{1073741823, "1024.00MB"}, {1073741824, "1.00GB"}, {1610612736, "1.50GB"}, {85899345920, "80.00GB"}, {150754820096, "140.40GB"},
		{1<<40 - 1, "1024.00GB"}, {1 << 40, "1.00TB"}, {1 << 50, "1.00PB"}, {1 << 60, "1.00EB"}, {1<<60 - 1, "1.00EB"}, {math.MaxInt64, "8.00EB"},
	} {
		if got := Size(row.n); got != row.want {
			t.Errorf("Size(%d) = %s, want %s", row.n, got, row.want)
		}
	}
	// Past the largest int64 only the unit's name is left to see.
	for f, want := range map[float64]string{1 << 70: "1.00ZB", 1 << 80: "1024.00ZB"} {
		if got := size(f); got != want {
			t.Errorf("size(%g) = %s, want %s", f, got, want)
		}
	}
}

const twoDevices = `
device 0 uuid=GPU-0 name=H200
device 1 uuid=GPU-1 name=H200
process 1 pid=4711 command=train
frame 1 python a.py 1 main
frame 2 python a.py 2 small
frame 3 python a.py 3 large
stack 10 0 1
stack 11 10 2
stack 12 10 3
part
1000 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x10 size=100 stack=11
1010 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x20 size=1000 stack=12
1020 Alloc thread=7 api=cuMemAlloc_v2 device=1 address=0x30 size=50 stack=11
1030 ScopeBegin thread=7 api=nvtx scope=1 name="step"
1040 Free thread=7 api=cuMemFree_v2 address=0x20
1050 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x40 size=300 stack=11
1060 Alloc thread=7 api=cuMemAlloc_v2 device=1 address=0x50 size=7000 stack=12
1070 Free thread=7 api=cuMemFree_v2 address=0x50
1080 ScopeEnd thread=7 api=nvtx scope=1
1090 ProcessEnd
`

func moment(t *testing.T, s string) analyze.Moment {
	m, err := analyze.ParseMoment(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMoments(t *testing.T) {
	for _, row := range []struct {
		name string
		at   At
		q    analyze.Query
		want string
	}{
		{"peak: a tree for each device, largest first", Peak, analyze.Query{}, `device 0 (H200): peak of 1100 bytes used at 0.000001s
_root (1.07KB, 1.07KB)
  a.py:1:main (1.07KB, 1.07KB)
    a.py:3:large (1000.00B, 1000.00B)
    a.py:2:small (100.00B, 100.00B)

device 1 (H200): peak of 7050 bytes used at 0.000001s
_root (6.88KB, 6.88KB)
  a.py:1:main (6.88KB, 6.88KB)
    a.py:3:large (6.84KB, 6.84KB)
    a.py:2:small (50.00B, 50.00B)
`},
		{"peak of one device", Peak, analyze.Query{Devices: []string{"GPU-1"}}, `_root (6.88KB, 6.88KB)
  a.py:1:main (6.88KB, 6.88KB)
    a.py:3:large (6.84KB, 6.84KB)
    a.py:2:small (50.00B, 50.00B)
`},
		{"peak of a window begins with what is live", Peak, analyze.Query{Devices: []string{"0"}, From: moment(t, "scope:step")}, `_root (1.07KB, 1.07KB)
  a.py:1:main (1.07KB, 1.07KB)
    a.py:3:large (1000.00B, 1000.00B)
    a.py:2:small (100.00B, 100.00B)
`},
		{"peak inside a window", Peak, analyze.Query{Devices: []string{"0"}, From: moment(t, "1045ns")}, `_root (400.00B, 400.00B)
  a.py:1:main (400.00B, 400.00B)
    a.py:2:small (400.00B, 400.00B)
`},
		{"end: before the process's end", End, analyze.Query{}, `_root (450.00B, 450.00B)
  a.py:1:main (450.00B, 450.00B)
    a.py:2:small (450.00B, 450.00B)
`},
		{"at a time", Moment, analyze.Query{To: moment(t, "1060ns")}, `_root (7.28KB, 7.28KB)
  a.py:1:main (7.28KB, 7.28KB)
    a.py:3:large (6.84KB, 6.84KB)
    a.py:2:small (450.00B, 450.00B)
`},
		{"at a scope's end", Moment, analyze.Query{To: moment(t, "scope:step#1")}, `_root (450.00B, 450.00B)
  a.py:1:main (450.00B, 450.00B)
    a.py:2:small (450.00B, 450.00B)
`},
		{"total of a scope", Total, analyze.Query{Scopes: []analyze.ScopeRef{{Name: "step", N: 1}}}, `_root (7.13KB, 7.13KB)
  a.py:1:main (7.13KB, 7.13KB)
    a.py:2:small (300.00B, 300.00B)
    a.py:3:large (6.84KB, 6.84KB)
`},
		{"total of a window", Total, analyze.Query{From: moment(t, "1010ns"), To: moment(t, "1020ns")}, `_root (1.03KB, 1.03KB)
  a.py:1:main (1.03KB, 1.03KB)
    a.py:3:large (1000.00B, 1000.00B)
    a.py:2:small (50.00B, 50.00B)
`},
		{"total of another layer", Total, analyze.Query{Layers: []format.Layer{format.LayerHost}}, "_root (0.00B, 0.00B)\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := text(t, ask(t, []*format.Trace{formattest.Text(t, twoDevices)}, row.at, 0, &row.q)); got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
		})
	}
}
