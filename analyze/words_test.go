package analyze

import "testing"

// The command can be pasted: any path is one word, any moment that event's.
func TestPasted(t *testing.T) {
	for in, want := range map[string]string{"a/b-1.gpurec": "a/b-1.gpurec", "my run": "'my run'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "": "''", "-q": "./-q"} {
		if got := Word(in); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
	for in, want := range map[int64]string{0: "0s", 1: "0.000000001s", 100e9: "100s", 1500000000: "1.5s", -1: "-0.000000001s"} {
		if got := Exactly(in); got != want {
			t.Errorf("%d is %s, want %s", in, got, want)
		}
	}
}
