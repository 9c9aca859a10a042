package analyze

import "testing"

func TestTurn(t *testing.T) {
	for name, want := range map[string]string{
		"step": "step", "step 20": "step", "step#3": "step", "epoch_12": "epoch", "batch=7": "batch", "layer2d": "layer2d",
		"20": "20", "#20": "#20", "": "", "step 1 of 20": "step 1 of",
	} {
		if got := Turn(name); got != want {
			t.Errorf("%q is a turn of %q, want %q", name, got, want)
		}
	}
}
