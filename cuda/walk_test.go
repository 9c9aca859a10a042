package cuda

import (
	"fmt"
	"os/exec"
	"testing"
)

// The recorder knows a stack by its hash alone: of millions of stacks, as alike
// as can be, no two may have the same.
func TestStackHashes(t *testing.T) {
	if testing.Short() {
		t.Skip("sorts 10 million hashes")
	}
	for _, row := range []struct {
		python, frames string
		stacks         int
	}{{"12", "10", 10_000_000}, {"11", "8", 4_500_000}} {
		t.Run("3."+row.python, func(t *testing.T) {
			out, err := exec.Command(cc(t, "stackhash", "-O2", "testdata/stackhash.c"), row.python, row.frames).Output()
			if err != nil {
				t.Fatal(err)
			}
			var made, same int
			var skew float64
			if _, err := fmt.Sscan(string(out), &made, &same, &skew); err != nil {
				t.Fatalf("%v of %q", err, out)
			}
			if made < row.stacks || same != 0 {
				t.Errorf("%d of %d stacks have the hash of another", same, made)
			}
			if skew > 0.01 { // the tables of what has been sent are indexed by some of the bits
				t.Errorf("a bit of the hashes is off an even chance by %.3f", skew)
			}
		})
	}
}
