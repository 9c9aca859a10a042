package cuda

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommand looks at programs of every kind that the hook does and does not get
// into.
func TestCommand(t *testing.T) {
	source := filepath.Join(t.TempDir(), "true.c")
	fill(t, source, "int main(void) { return 0; }\n")
	plain := cc(t, "plain", source)
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		fill(t, path, text)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	small := make([]byte, 52) // the header of a 32-bit program, with nothing behind it
	copy(small, "\x7fELF\x01\x01\x01")
	copy(small[16:], "\x02\x00\x03\x00\x01\x00\x00\x00")
	small[40], small[42], small[46] = 52, 32, 40
	raise := func(t *testing.T) string {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a program away")
		}
		b, err := os.ReadFile(plain)
		if err != nil {
			t.Fatal(err)
		}
		path := file("raised", string(b), 0o755)
		if err := os.Chown(path, 65534, -1); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, row := range []struct {
		name    string
		command func(t *testing.T) string
		what    []string // of each file, the first ones of these words
		why     string   // of the last
		never   bool
	}{
		{"a program", func(*testing.T) string { return plain }, []string{"dynamically linked"}, "", false},
		{"static", func(t *testing.T) string { return cc(t, "static", "-static", source) }, []string{"statically linked"}, "no loader", true},
		{"static, of any address", func(t *testing.T) string { return cc(t, "static-pie", "-static-pie", source) }, []string{"statically linked"}, "no loader", true},
		{"musl", func(t *testing.T) string {
			return cc(t, "musl", source, "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
		}, []string{"program of musl"}, "glibc", true},
		{"32 bits", func(*testing.T) string { return file("small", string(small), 0o755) }, []string{"32-bit"}, "64-bit library", true},
		{"setuid", raise, []string{"dynamically linked"}, "setuid", true},
		{"a script by env", func(*testing.T) string { return file("s1", "#!/usr/bin/env -S A=b sh -e\n", 0o755) }, []string{"script of sh", "dynamically linked"}, "", false},
		{"a script of a static interpreter", func(t *testing.T) string { return file("s2", "#! "+cc(t, "static", "-static", source)+" -x\n", 0o755) }, []string{"script of /", "statically linked"}, "no loader", true},
		{"a script of a script", func(*testing.T) string { return file("s3", "#!"+file("s4", "#!/bin/sh\n", 0o755)+"\n", 0o755) }, []string{"script of", "script of", "dynamically linked"}, "", false},
		{"a script without a first line", func(*testing.T) string { return file("s5", "exit 0\n", 0o755) }, []string{"script of /bin/sh", "dynamically linked"}, "", false},
		{"docker", func(*testing.T) string { file("docker", "#!/bin/sh\n", 0o755); return "docker" }, []string{"container client"}, "a server starts", false},
		{"srun", func(*testing.T) string { file("srun", "#!/bin/sh\n", 0o755); return "srun" }, []string{"launcher"}, "other machines", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Command(row.command(t))
			if err != nil || len(got) != len(row.what) {
				t.Fatalf("%+v, %v", got, err)
			}
			for i, r := range got {
				if !strings.HasPrefix(r.What, row.what[i]) {
					t.Errorf("file %d is a %q, want %q", i, r.What, row.what[i])
				}
			}
			last := got[len(got)-1]
			if (last.Why == "") != (row.why == "") || !strings.Contains(last.Why, row.why) || last.Never != row.never || (last.Why != "") != (last.Remedy != "") {
				t.Errorf("%+v", last)
			}
		})
	}
	for name, command := range map[string]string{"not there": "no-such-command-at-all", "a script whose interpreter is not there": file("s6", "#!/nonexistent/sh\n", 0o755), "a script of itself": file("s7", "#!"+dir+"/s7\n", 0o755), "damaged": file("s8", "\x7fELF", 0o755)} {
		if got, err := Command(command); err == nil && len(got) <= most {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
