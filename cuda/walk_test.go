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
	out, err := exec.Command(cc(t, "stackhash", "-O2", "testdata/stackhash.c")).Output()
	if err != nil {
		t.Fatal(err)
	}
	var made, same int
	var skew float64
	if _, err := fmt.Sscan(string(out), &made, &same, &skew); err != nil {
		t.Fatalf("%v of %q", err, out)
	}
	if made < 10_000_000 || same != 0 {
		t.Errorf("%d of %d stacks have the hash of another", same, made)
	}
	if skew > 0.01 { // the tables of what has been sent are indexed by some of the bits
		t.Errorf("a bit of the hashes is off an even chance by %.3f", skew)
	}
}
