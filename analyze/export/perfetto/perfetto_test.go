package perfetto

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

// fields are those of a message, in order. That Perfetto's own schema reads
// them too is tested in Python: ../interop/test_viewers.py.
func fields(t *testing.T, m []byte, f func(field int, n uint64, sub []byte)) {
	t.Helper()
	for len(m) > 0 {
		tag, k := binary.Uvarint(m)
		n, l := binary.Uvarint(m[max(k, 0):])
		if k <= 0 || l <= 0 {
			t.Fatalf("no varint in %x", m)
		}
		m = m[k+l:]
		if tag&7 == 2 {
			f(int(tag>>3), n, m[:n])
			m = m[n:]
		} else {
			f(int(tag>>3), n, nil)
		}
	}
}

// drawn is a line for each event: time, type, name or value.
func drawn(t *testing.T, b []byte) (out []string) {
	fields(t, b, func(_ int, _ uint64, packet []byte) {
		var at uint64
		var line string
		fields(t, packet, func(field int, n uint64, sub []byte) {
			if field == packetTimestamp {
				at = n
			}
			if field != packetTrackEvent {
				return
			}
			fields(t, sub, func(field int, n uint64, sub []byte) {
				switch field {
				case eventType:
					line = [...]string{typeBegin: "begin", typeEnd: "end", typeInstant: "instant", typeCounter: "counter"}[n]
				case eventName:
					line += " " + string(sub)
				case eventCounter:
					line += fmt.Sprint(" ", n)
				}
			})
		})
		if line != "" {
			out = append(out, fmt.Sprint(at, " ", line))
		}
	})
	return out
}

const text = `
device 0 uuid="GPU-a"
process 1 pid=11
name 1 "step"
name 2 "forward"
part 3
900 Live api=cuMemAlloc_v2 device=0 address=0x10 size=100 scope=8
900 LiveScope thread=5 api=nvtx scope=8 name=1 object=0
1050 CheckpointEnd size=2
1100 ScopeBegin thread=5 api=nvtx scope=9 parent=8 name=2
1200 Alloc thread=5 api=cuMemAlloc_v2 device=0 address=0x20 size=7 scope=9
1300 ScopeEnd thread=5 api=nvtx scope=9
1400 Free thread=5 api=cuMemFree_v2 address=0x20
1500 AllocFailed thread=5 api=cuMemAlloc_v2 device=0 requested=99999 status=2
`

// What is live and open when a trace or a window begins is drawn from there on,
// what is open at its end is ended there.
func TestWindows(t *testing.T) {
	from, _ := analyze.ParseMoment("1250ns")
	to, _ := analyze.ParseMoment("1450ns")
	for _, row := range []struct {
		name string
		text string
		q    analyze.Query
		want string
	}{
		{"whole", text, analyze.Query{}, "1050 counter 100,1050 counter 100,900 begin step,1100 begin forward,1200 counter 107,1200 counter 107," +
			"1300 end,1400 counter 100,1400 counter 100,1500 instant out of memory: 99999 bytes,1500 end"},
		{"window", text, analyze.Query{From: from, To: to}, "1250 counter 107,1250 counter 107,1250 begin step,1250 begin forward,1300 end,1400 counter 100,1400 counter 100,1450 end"},
		{"empty", "process 1 pid=1\n", analyze.Query{}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var b bytes.Buffer
			a := New(&b, 1)
			if _, err := analyze.Run(context.Background(), []string{formattest.Text(t, row.text).Path()}, &row.q, a, nil); err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(drawn(t, b.Bytes()), ","); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestWriteErrorIsSaid(t *testing.T) {
	a := New(full{}, 1)
	long := text
	for i := range 5000 {
		long += fmt.Sprintf("%d ScopeBegin thread=5 api=nvtx scope=%d name=2\n%d ScopeEnd thread=5 api=nvtx scope=%d\n", 2000+i, 100+i, 2000+i, 100+i)
	}
	_, err := analyze.Run(context.Background(), []string{formattest.Text(t, long).Path()}, &analyze.Query{}, a, nil)
	if err == nil {
		t.Errorf("a full disk is no error of the pass")
	}
}
