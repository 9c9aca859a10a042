package format

import (
	"slices"
	"strings"
	"testing"
)

func TestRedactPaths(t *testing.T) {
	r := newRedactor("node17")
	for _, row := range []struct{ path, want string }{ // in this order
		{"/home/kim/bert/src/train.py", "src/train.py"},
		{"/home/lee/bert/src/train.py", "~2/src/train.py"},
		{"/home/kim/bert/src/train.py", "src/train.py"},
		{"/home/kim/env/lib/python3.12/site-packages/torch/nn/modules/module.py", "torch/nn/modules/module.py"},
		{"/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"},
		{"/home/kim/.pyenv/versions/3.12.1/lib/python3.12/threading.py", "python3.12/threading.py"},
		{"/srv/train.py", "train.py"},
		{"/train.py", "~2/train.py"},
		{"train.py", "train.py"},
		{"kim/src/train.py", "~3/src/train.py"},
		{"/home/kim/", "~"},
		{"/home/kim/run.py", "run.py"},
		{"/nfs/home/kim/run.py", "~2/run.py"},
		{"/Users/kim/bert/src/eval.py", "src/eval.py"},
		{"/data/users/kim/a/b.py", "a/b.py"},
		{"/home/kim/env/lib/python3.12/site-packages/torch/cuda/__init__.py", "torch/cuda/__init__.py"},
		{"", ""},
		{"<string>", "<string>"},
		{"[vdso]", "[vdso]"},
		{"/home/kim/<ipython>", "<ipython>"},
	} {
		if got := r.path(row.path); got != row.want {
			t.Errorf("%s became %s, want %s", row.path, got, row.want)
		}
	}
}

// TestRedactMeta: what trace.json may show.
func TestRedactMeta(t *testing.T) {
	m := newRedactor("node17").meta(Meta{
		Host: "node17", Jobs: []Job{{PID: 7, StartTime: 9, LocalRank: 1, WorldSize: 8, ID: "prterun-node17-4711@1"}}, Command: []string{"/home/kim/bin/serve", "--token", "hunter2"},
		Options: []string{"-o", "kims.gpurec", "--retain=2GiB", "--output=/home/kim/x", "--stacks", "python", "-o/kim/y", "/home/kim/z", "-okim",
			"-qo", "kims.gpurec", "-vokim", "--metrics", "node17:9400", "--metrics=node17:1", "--redact", "-q"},
		Reason:    "the recording ended: write kim/t.gpurec/00000/events.arrow: no space left on device; node17 is full",
		NoSamples: "nvml: load /home/kim/lib/libnvidia-ml.so.1",
		Notes:     []string{"the environment has what /home/kim/env set on node17"},
		Driver:    "580.1",
	})
	if want := []string{"-o", "…", "--retain=2GiB", "--output=…", "--stacks", "python", "-o…", "…", "-o…",
		"-qo", "…", "-vo…", "--metrics", "…", "--metrics=…", "--redact", "-q"}; !slices.Equal(m.Options, want) {
		t.Errorf("options %q, want %q", m.Options, want)
	}
	all := strings.Join(append(append(m.Command, m.Options...), m.Host, m.Reason, m.NoSamples, m.Notes[0], m.Jobs[0].ID), " ")
	for _, secret := range []string{"kim", "node17", "hunter2"} {
		if strings.Contains(all, secret) {
			t.Errorf("%s is left in %q", secret, all)
		}
	}
	if m.Command[0] != "serve" || !strings.Contains(m.Reason, "no space left on device; host is full") || m.Driver != "580.1" {
		t.Errorf("%+v", m)
	}
}
