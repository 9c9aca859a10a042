package lines

import (
	"fmt"
	"math/rand"
	"sort"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// B7: the tree of the peak is what a slow replay finds live at the first
// highest moment of each device, whatever happened before and after.
func TestPeakAgainstReplay(t *testing.T) {
	type block struct {
		device, stack int
		size          int64
	}
	for seed := range int64(20) {
		r := rand.New(rand.NewSource(seed))
		var text strings.Builder
		text.WriteString("process 1 pid=1 command=x\n")
		for i := range 5 {
			fmt.Fprintf(&text, "frame %d python a.py %d f\nstack %d 0 %d\n", i+1, i+1, 10+i, i+1)
		}
		text.WriteString("part\n")
		live := map[int]block{}
		best := map[int]int64{}
		at := map[int]map[int]int64{} // device → line → bytes at its peak
		for i := range 300 {
			a := 1 + r.Intn(30)
			if b, ok := live[a]; ok {
				fmt.Fprintf(&text, "%d Free thread=1 api=torch device=%d address=%d\n", 1000+i, 1-b.device, a)
				delete(live, a)
			} else {
				b := block{r.Intn(2), r.Intn(5), int64(1 + r.Intn(100))}
				fmt.Fprintf(&text, "%d Alloc thread=1 api=torch device=%d address=%d size=%d stack=%d\n", 1000+i, b.device, a, b.size, 10+b.stack)
				live[a] = b
			}
			sum := map[int]int64{}
			lines := map[int]map[int]int64{0: {}, 1: {}}
			for _, b := range live {
				sum[b.device] += b.size
				lines[b.device][b.stack+1] += b.size
			}
			for d := range 2 {
				if sum[d] > best[d] {
					best[d], at[d] = sum[d], lines[d]
				}
			}
		}
		rep := ask(t, []*format.Trace{formattest.Text(t, text.String())}, Peak, 0, &analyze.Query{})
		if len(rep.Trees) != 2 {
			t.Fatalf("seed %d: %d trees", seed, len(rep.Trees))
		}
		for d, tree := range rep.Trees {
			var got, want []string
			for _, n := range tree.Root.Children {
				got = append(got, fmt.Sprintf("%d:%d", n.Line, n.Used))
			}
			for line, n := range at[d] {
				want = append(want, fmt.Sprintf("%d:%d", line, n))
			}
			sort.Strings(got)
			sort.Strings(want)
			if tree.Used != best[d] || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("seed %d device %d: %d %v, want %d %v", seed, d, tree.Used, got, best[d], want)
			}
		}
	}
}
