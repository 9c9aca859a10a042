package oom

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

// page is a small trace with one of everything that a page has: a fatal failure
// with causes, growth and pins, one that was caught, a retry, and what failed for
// another reason.
const page = `meta command=python command=a.py start=2026-11-30T03:00:00Z start_monotonic=0
device 0 uuid=GPU-0 name=H200 total=100000
process 1 pid=7 begin=0 end=2000000 status=1 command="python a.py"
frame 1 python a.py 1 main
frame 2 python a.py 2 step
frame 3 python /x/site-packages/torch/nn.py 3 forward
frame 4 python a.py 9 save
stack 10 0 1
stack 11 10 2
stack 12 11 3
stack 13 10 4
part
1000 ScopeBegin thread=7 api=nvtx scope=1 name="train"
1010 ScopeBegin thread=7 api=nvtx scope=2 parent=1 name="step"
1020 Alloc duration=5 thread=7 api=cuMemAlloc_v2 device=0 address=0x100000 size=30000 requested=30000 stack=12 scope=2
1021 Alloc thread=7 api=torch device=0 address=0x100000 size=10000 stack=12 scope=2
1030 ScopeEnd thread=7 api=nvtx scope=2
1110 ScopeBegin thread=7 api=nvtx scope=3 parent=1 name="step"
1121 Alloc thread=7 api=torch device=0 address=0x104000 size=5000 stack=12 scope=3
1130 ScopeEnd thread=7 api=nvtx scope=3
1210 ScopeBegin thread=7 api=nvtx scope=4 parent=1 name="step"
1220 Alloc duration=5 thread=7 api=cuMemAlloc_v2 device=0 address=0x200000 size=30000 requested=30000 stack=12 scope=4
1221 Alloc thread=7 api=torch device=0 address=0x200000 size=15000 stack=12 scope=4
1230 ScopeEnd thread=7 api=nvtx scope=4
1310 ScopeBegin thread=7 api=nvtx scope=5 parent=1 name="step"
1320 Alloc thread=7 api=torch device=0 address=0x206000 size=5000 stack=12 scope=5
1321 Alloc thread=7 api=torch device=0 address=0x204000 size=100 stack=11 scope=5
1330 ScopeEnd thread=7 api=nvtx scope=5
1410 ScopeBegin thread=7 api=nvtx scope=6 parent=1 name="step"
1420 Alloc duration=5 thread=7 api=cuMemAlloc_v2 device=0 address=0x300000 size=20000 requested=20000 stack=12 scope=6
1421 Alloc thread=7 api=torch device=0 address=0x300000 size=12000 stack=12 scope=6
1430 ScopeEnd thread=7 api=nvtx scope=6
sample 1440 device=0 total=100000 used=89000 free=10000 reserved=1000
sample 1440 device=0 process=1 total=100000 used=89000 free=10000 reserved=1000 process_used=86000
1500 AllocFailed duration=8 thread=7 api=cuMemAlloc_v2 device=0 requested=30000 status=2 stack=13 scope=1
1510 AllocFailed thread=7 api=torch.oom device=0 size=28000 allocated=47100 reserved=80000 stack=13 scope=1
1520 AllocFailed duration=8 thread=7 api=cuMemAlloc_v2 device=0 requested=4000 status=2 stack=12 scope=1
1530 Alloc duration=5 thread=7 api=cuMemAlloc_v2 device=0 address=0x400000 size=4000 requested=4000 stack=12 scope=1
1531 Alloc thread=7 api=torch device=0 address=0x400000 size=4000 stack=12 scope=1
1535 AllocFailed thread=7 api=cuMemHostAlloc requested=64 status=2 stack=12 scope=1
1540 AllocFailed duration=8 thread=7 api=cuMemAlloc_v2 device=0 requested=30000 status=2 stack=12 scope=1
1541 AllocFailed duration=8 thread=7 api=cuMemAlloc_v2 device=0 requested=30000 status=2 stack=12 scope=1
1550 AllocFailed thread=7 api=torch.oom device=0 size=28000 allocated=51100 reserved=84000 stack=12 scope=1
1560 ScopeEnd thread=7 api=nvtx scope=1
2000000 ProcessEnd status=1
`

// TestWrapper has programs whose requests come by one line, or do not: a wrapper's
// callers are what a reader looks for.
func TestWrapper(t *testing.T) {
	const program = `meta command=./a start=2026-11-30T03:00:00Z start_monotonic=0
device 0 uuid=GPU-0 name=H200 total=100000
process 1 pid=7 begin=0 end=2000000 status=1 command="./a"
frame 1 native a.cc 1 main module=/a
frame 2 native a.cc 2 load module=/a
frame 3 native a.cc 3 step module=/a
frame 4 native a.cc 4 "Buffer::Buffer(long *)" module=/a
frame 5 native a.cc 5 other module=/a
stack 10 0 1
stack 11 10 2
stack 12 11 4
stack 13 10 3
stack 14 13 4
stack 15 13 5
part
1000 Alloc duration=5 thread=7 api=cuMemAlloc_v2 device=0 address=0x100000 size=30000 requested=30000 stack=12
1010 Alloc duration=5 thread=7 api=cuMemAlloc_v2 device=0 address=0x200000 size=30000 requested=30000 stack=STACK
1500 AllocFailed duration=8 thread=7 api=cuMemAlloc_v2 device=0 requested=90000 status=2 stack=14
2000000 ProcessEnd status=1
`
	const hint = "\n    nearly all has one line: --hide 'a.cc:4:Buffer::Buffer(long *)' shows who called it\n"
	for _, c := range []struct {
		name, stack string
		hint        bool
	}{
		{"two callers of one line", "14", true},
		{"one caller", "12", false},
		{"another line has half", "15", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := ask(t, formattest.Text(t, strings.ReplaceAll(program, "STACK", c.stack)), &analyze.Query{}).WriteText(&b, false); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(b.String(), "\n              called by a.cc:3:step\n              called by a.cc:1:main\n") || strings.Contains(b.String(), hint) != c.hint {
				t.Error(b.String())
			}
		})
	}
}
