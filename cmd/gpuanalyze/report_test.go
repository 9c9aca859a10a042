package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format/formattest"
)

// The examples of its help, where their traces are.
func TestReportExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	for i, name := range []string{"train", "rank0", "rank1"} {
		text := strings.Replace(traceText, "meta ", "meta trace_id="+name+" ", 1)
		if i == 0 {
			for scope := 10; scope < 13; scope++ {
				text += fmt.Sprintf("7000000 ScopeBegin thread=7 api=nvtx scope=%d name=\"step\"\n7000001 ScopeEnd thread=7 api=nvtx scope=%d\n", scope, scope)
			}
		}
		if err := os.Rename(formattest.Text(t, text).Path(), name+".gpurec"); err != nil {
			t.Fatal(err)
		}
	}
	ran := 0
	for _, example := range reportCommand().examples {
		args := strings.Fields(example)
		code, stdout, stderr := command1(t, args[1:]...)
		page, err := os.ReadFile(args[len(args)-1])
		if code != 0 || stdout != "" || err != nil || !strings.HasPrefix(string(page), "<!DOCTYPE html>") {
			t.Errorf("%s: exit %d, %q, %s, %v", example, code, stdout, stderr, err)
		}
		ran++
	}
	if ran < 3 {
		t.Errorf("%d examples", ran)
	}
	if fi, err := os.Stat("step.html"); err != nil || fi.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", fi, err)
	}
	page, _ := os.ReadFile("step.html")
	if !strings.Contains(string(page), `"limits":"--from scope:step#3 --to scope:step#3"`) {
		t.Error("the page does not say what it is limited to")
	}
}

func TestReport(t *testing.T) {
	t.Chdir(t.TempDir())
	tr := formattest.Text(t, traceText).Path()
	if code, _, stderr := command1(t, "report", tr); code != exitUsage || !strings.Contains(stderr, "-o FILE.html is missing") {
		t.Errorf("without -o: exit %d, %s", code, stderr)
	}
	if code, _, _ := command1(t, "report", "--json", "-o", "-", tr); code != exitUsage {
		t.Errorf("--json -o -: exit %d", code)
	}
	if code, stdout, _ := command1(t, "report", "-o", "-", tr); code != 0 || !strings.HasPrefix(stdout, "<!DOCTYPE html>") {
		t.Errorf("-o -: exit %d, %.100q", code, stdout)
	}
	if err := os.WriteFile("old.html", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command1(t, "report", "--json", "-o", "old.html", tr)
	var said struct {
		Completeness struct{ Complete bool }
		Bytes        int64
	}
	if err := json.Unmarshal([]byte(stdout), &said); err != nil || code != 0 || !said.Completeness.Complete {
		t.Errorf("exit %d, %v, %s%s", code, err, stdout, stderr)
	}
	if fi, err := os.Stat("old.html"); err != nil || fi.Size() != said.Bytes {
		t.Errorf("%v bytes, it says %d: %v", fi.Size(), said.Bytes, err)
	}
	if code, _, stderr := command1(t, "report", "-o", "no/such/folder.html", tr); code != exitFailed || !strings.Contains(stderr, "open no/such/folder.html: no such file or directory") {
		t.Errorf("no folder: exit %d, %s", code, stderr)
	}
	command1(t, "report", "-o", os.DevNull, tr)
	if fi, err := os.Stat(os.DevNull); err != nil || fi.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("%s is %v now", os.DevNull, fi.Mode())
	}
	partial := formattest.Text(t, strings.Replace(traceText, "meta ", "meta ending=failed reason=full ", 1)).Path()
	if code, _, stderr := command1(t, "report", "-o", "partial.html", partial); code != exitPartial || !strings.Contains(stderr, "partial: ") {
		t.Errorf("partial: exit %d, %s", code, stderr)
	}
}
