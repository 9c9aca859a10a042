package nvml

import (
	"errors"
	"testing"

	"github.com/gpurec/gpurec/format"
)

func TestFreest(t *testing.T) {
	refused := memAnswer{err: lost()}
	for _, tc := range []struct {
		name string
		mem  []memAnswer
		want int
	}{
		{"none", nil, -1},
		{"one", []memAnswer{{m: used(gib)}}, 0},
		{"most free", []memAnswer{{m: used(3 * gib)}, {m: used(gib)}, {m: used(2 * gib)}}, 1},
		{"a tie goes to the lowest", []memAnswer{{m: used(3 * gib)}, {m: used(gib)}, {m: used(gib)}}, 1},
		{"one byte decides", []memAnswer{{m: used(gib)}, {m: used(gib - 1)}}, 1},
		{"one that does not answer", []memAnswer{refused, {m: used(gib)}}, 1},
		{"none answers", []memAnswer{refused, refused}, -1},
		{"all full", []memAnswer{{m: used(15 * gib)}, {m: used(15 * gib)}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var hs []*fakeHandle
			for _, a := range tc.mem {
				hs = append(hs, &fakeHandle{mem: []memAnswer{a}})
			}
			i, m, ok := fakeNVML(hs...).Freest()
			if i != tc.want || ok != (tc.want >= 0) {
				t.Fatalf("freest is %d (%v), want %d", i, ok, tc.want)
			}
			if ok && m != tc.mem[i].m {
				t.Errorf("its memory is %+v, want %+v", m, tc.mem[i].m)
			}
		})
	}
}

func TestReaders(t *testing.T) {
	procs := []format.ProcessReading{{PID: 7, Used: 5}, {PID: 9, Used: format.Unknown}}
	n := fakeNVML(
		&fakeHandle{d: Device{NVML: 0, UUID: "GPU-a", Name: "H200"}, mem: []memAnswer{{m: used(gib)}}, procs: []procAnswer{{p: procs}}},
		&fakeHandle{d: Device{NVML: 1, UUID: "GPU-b", Name: "H200"}, mem: []memAnswer{{m: used(2 * gib)}, {err: lost()}}},
	)
	rows := n.Rows()
	want := []format.DeviceRow{
		{ID: 0, UUID: "GPU-a", Name: "H200", Total: 16 * gib, NVML: 0},
		{ID: 1, UUID: "GPU-b", Name: "H200", Total: 16 * gib, NVML: 1},
	}
	if len(rows) != 2 || rows[0] != want[0] || rows[1] != want[1] {
		t.Errorf("rows are %+v", rows)
	}
	if i, ok := n.Index("GPU-b"); i != 1 || !ok {
		t.Errorf("GPU-b is %d, %v", i, ok)
	}
	if _, ok := n.Index("GPU-c"); ok {
		t.Error("an unknown UUID was found")
	}
	if u, ok := n.UUID(1); u != "GPU-b" || !ok {
		t.Errorf("device 1 is %q, %v", u, ok)
	}
	for _, i := range []int{-1, 2, 99} {
		if _, ok := n.UUID(i); ok {
			t.Errorf("device %d has a UUID", i)
		}
		if _, err := n.Memory(i); err == nil {
			t.Errorf("device %d has memory", i)
		}
	}
	if p, err := n.Processes(0); err != nil || len(p) != 2 || p[1].Used != format.Unknown {
		t.Errorf("processes are %v, %v", p, err)
	}

	// The second device is lost after its first reading.
	m, errs := n.MemoryAll()
	if errs[0] != nil || m[0].Used != gib || m[0].Used+m[0].Free == m[0].Total {
		t.Errorf("device 0 says %+v, %v", m[0], errs[0])
	}
	var de *DeviceError
	if !errors.As(errs[1], &de) || de.Index != 1 || de.UUID != "GPU-b" || !Final(errs[1]) {
		t.Fatalf("device 1 says %v", errs[1])
	}
	if got := errs[1].Error(); got != "nvml: memory of device 1 (GPU-b): GPU is lost (NVML error 15)" {
		t.Errorf("its words are %q", got)
	}

	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := n.Memory(0); err == nil || !Final(err) {
		t.Errorf("after Close memory says %v", err)
	}
}
