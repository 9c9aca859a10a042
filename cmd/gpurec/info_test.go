package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inspect runs gpurec info --json.
func inspect(t *testing.T, env []string, args ...string) (map[string][]finding, int) {
	t.Helper()
	c := gpurec(t, t.TempDir(), append([]string{"info", "--json"}, args...)...)
	c.Env = append(c.Env, env...)
	var out bytes.Buffer
	c.Stdout = &out
	status := does(t, c)
	var i inspection
	if err := json.Unmarshal(out.Bytes(), &i); err != nil || i.Version == "" || i.Format == 0 {
		t.Fatalf("%v\n%s", err, out.String())
	}
	rows := map[string][]finding{}
	for _, r := range i.Rows {
		if r.State != "yes" && r.State != "no" && r.State != "partly" || r.Detail == "" {
			t.Errorf("%+v", r)
		}
		rows[r.What] = append(rows[r.What], r)
	}
	return rows, status
}

// TestInfo asks what can be recorded, in surroundings that differ.
func TestInfo(t *testing.T) {
	bin := t.TempDir()
	python := func(name, says string) {
		script := "#!/bin/sh\necho '" + says + "'\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	python("python3", "cpython 3.12 3.12.1 False")
	python("python3.13", "cpython 3.13 3.13.0 True")
	python("python3.14", "cpython 3.14 3.14.0 True")
	python("python3.16", "cpython 3.16 3.16.0 False")
	python("python3.11", "pypy 3.11 3.11.13 False")
	python("python3.15", "cpython 3.15 3.15.0a1 False")
	python("python3.15t", "cpython 3.15 3.15.0 True")
	python("python3.10", "Segmentation fault")
	only := "PATH=" + bin + ":/usr/bin:/bin:/usr/sbin:/sbin"
	for _, row := range []struct {
		name   string
		env    []string
		what   string
		states string // of its rows, in order
		says   string // in one of them
	}{
		{"kernel", nil, "kernel", "yes", "."},
		{"lanes", nil, "lanes", "yes", "went from a lane into a trace"},
		{"limits", nil, "limits", "yes", "ptrace_scope"},
		{"other tools", []string{"LD_PRELOAD=", "LD_BIND_NOW=", "NVTX_INJECTION64_PATH=/opt/tool.so"}, "environ", "yes", "/opt/tool.so: gets the ranges"},
		{"a misspelled variable", []string{"LD_PRELOAD=", "GPUREC_ONFULL=wait"}, "environ", "partly", "GPUREC_ONFULL"},
		{"attaching", nil, "attaching", "no", "runs already"},
	} {
		t.Run(row.name, func(t *testing.T) {
			rows, status := inspect(t, append([]string{only}, row.env...))
			var states, details []string
			for _, r := range rows[row.what] {
				states, details = append(states, r.State), append(details, r.Detail)
			}
			if strings.Join(states, " ") != row.states || !strings.Contains(strings.Join(details, "\n"), row.says) || status != 0 {
				t.Errorf("status %d, %+v", status, rows[row.what])
			}
		})
	}
	t.Run("Pythons", func(t *testing.T) {
		rows, _ := inspect(t, []string{only})
		got := map[string]string{}
		for _, r := range rows["python"] {
			if path, _, _ := strings.Cut(r.Detail, " "); filepath.Dir(path) == bin {
				got[filepath.Base(path)] = r.State + r.Remedy
			}
		}
		for name, want := range map[string]string{"python3": "yes", "python3.13": "yes", "python3.14": "partlyuse the build with a global lock", "python3.15t": "partlyuse the build with a global lock", "python3.16": "partlyuse CPython 3.9 to 3.15", "python3.11": "partlyuse CPython", "python3.15": "partlyuse CPython 3.9 to 3.15", "python3.10": "partly"} {
			if got[name] != want {
				t.Errorf("%s: %q, want %q", name, got[name], want)
			}
		}
	})
	t.Run("a command that is a Python", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "python3.15t")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho cpython 3.15 3.15.0 True\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		rows, _ := inspect(t, []string{only}, path, "train.py")
		said := false
		for _, r := range rows["python"] {
			said = said || r.State == "partly" && strings.HasPrefix(r.Detail, path+" 3.15.0 is free-threaded, and of those only 3.13's")
		}
		if !said {
			t.Errorf("%+v", rows["python"])
		}
	})
	t.Run("a small limit", func(t *testing.T) {
		c := gpurec(t, t.TempDir(), "info")
		c.Env = append(c.Env, only)
		c.Args = append([]string{"sh", "-c", `ulimit -f 512; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path, _ = exec.LookPath("sh")
		out, _ := c.Output()
		if !strings.Contains(string(out), "a lane has 1.00 MiB") || !strings.Contains(string(out), "→ ulimit -f unlimited") {
			t.Errorf("%s", out)
		}
	})
}

// TestInfoCommand asks of commands whether they can be recorded, and records what
// can.
func TestInfoCommand(t *testing.T) {
	source, static := filepath.Join(t.TempDir(), "main.c"), filepath.Join(t.TempDir(), "static")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-static", "-o", static, source).CombinedOutput(); err != nil {
		t.Skipf("no static program can be made here: %v\n%s", err, out)
	}
	for _, row := range []struct {
		command []string
		status  int
		last    finding
	}{
		{[]string{program(t, "storm"), "--threads", "1"}, 0, finding{State: "yes", Detail: "dynamically linked"}},
		{[]string{static}, 1, finding{State: "no", Detail: "statically linked", Remedy: "dynamically"}},
		{[]string{"/nonexistent/program"}, 1, finding{State: "no", Detail: "no such command"}},
	} {
		rows, status := inspect(t, []string{"PATH=/usr/bin:/bin"}, row.command...)
		all := rows["command"]
		if len(all) == 0 || status != row.status {
			t.Errorf("%q: status %d, %+v", row.command, status, all)
			continue
		}
		if last := all[len(all)-1]; last.State != row.last.State || !strings.Contains(last.Detail, row.last.Detail) || !strings.Contains(last.Remedy, row.last.Remedy) {
			t.Errorf("%q: %+v", row.command, last)
		}
	}
	if w := does(t, gpurec(t, t.TempDir(), "info", "--nonsense")); w != 2 {
		t.Errorf("status %d", w)
	}
}
