package slice

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/formattest"
)

// TestRedact: what a redacted slice holds, and trace.json's bytes, say nothing of
// where and by whom the program was run.
func TestRedact(t *testing.T) {
	text := strings.NewReplacer(
		`meta trace_id="5a"`, `meta trace_id="5a" host="node17" command="/home/kim/bin/python" command="--token=hunter2" option="-o" option="/home/kim/x.gpurec" no_samples="load /home/kim/lib/nvml.so on node17"`,
		`process 1 pid=11`, `process 1 pid=11 executable="/home/kim/bin/python" command="/home/kim/bin/python train.py --token=hunter2"`,
		`frame 1 python a.py 1 main`, `frame 1 python /home/kim/bert/src/a.py 1 main`,
		`name="train"`, `name="train /home/kim/bert/data/x.bin on node17"`,
	).Replace(whole)
	tr := formattest.Text(t, text)
	dir := filepath.Join(t.TempDir(), "slice.gpurec")
	a := New(dir)
	a.Redact = true
	c, err := analyze.Run(context.Background(), []string{tr.Path()}, &analyze.Query{}, a, nil)
	if err == nil {
		err = a.Close(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := format.WriteText(&got, formattest.Open(t, dir)); err != nil {
		t.Fatal(err)
	}
	meta, err := os.ReadFile(filepath.Join(dir, format.MetaFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"kim", "node17", "hunter2", "bert"} {
		if !strings.Contains(text, secret) {
			t.Fatalf("the trace has no %s to hide", secret)
		}
		if bytes.Contains(got.Bytes(), []byte(secret)) || bytes.Contains(meta, []byte(secret)) {
			t.Errorf("%s is left in\n%s%s", secret, got.String(), meta)
		}
	}
	for _, want := range []string{"src/a.py", `"train data/x.bin on host"`, `command="python"`} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("there is no %s in\n%s", want, got.String())
		}
	}
}
