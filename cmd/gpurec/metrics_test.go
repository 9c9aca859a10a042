package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// What keeps a recording from being shown is said also where nothing else is,
// and changes neither the command nor its trace. Without --metrics nothing
// listens.
func TestMetricsFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const sockets = `ls -l /proc/$PPID/fd | grep -c socket:`
	own := 0 // sockets that a recording has anyway, by the first row
	for _, tc := range []struct {
		name   string
		flags  []string
		env    string
		status int
		words  string // all that stderr has, without gpurec's name; with … at its end how it begins
	}{
		{name: "off"},
		{name: "any port", flags: []string{"--metrics", "0"}},
		{name: "by environment", env: "GPUREC_METRICS=0"},
		{name: "said where it is", flags: []string{"--metrics", "0", "-v"}, words: "metrics at http://127.0.0.1:…"},
		{name: "taken", flags: []string{"--metrics", taken.Addr().String()}, words: "no metrics, the recording goes on: listen tcp " + taken.Addr().String() + ": bind: address already in use\n"},
		{name: "taken, quiet", flags: []string{"-q", "--metrics", taken.Addr().String()}, words: "no metrics, the recording goes on: listen tcp " + taken.Addr().String() + ": bind: address already in use\n"},
		{name: "another machine's address", flags: []string{"--metrics", "192.0.2.1:9400"}, words: "no metrics, the recording goes on: listen tcp 192.0.2.1:9400: bind: cannot assign requested address\n"},
		{name: "no port", flags: []string{"--metrics", "localhost"}, status: failed, words: `invalid argument "localhost" for "--metrics" flag: "localhost" is neither a port nor HOST:PORT; see gpurec run --help` + "\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"run", "-o", "t.gpurec"}, tc.flags...)
			c := gpurec(t, dir, append(args, "--", "sh", "-c", sockets)...)
			if tc.env != "" {
				c.Env = append(c.Env, tc.env)
			}
			var stdout, stderr bytes.Buffer
			c.Stdout, c.Stderr = &stdout, &stderr
			if status := does(t, c); status != tc.status {
				t.Errorf("status %d, want %d", status, tc.status)
			}
			said, found := strings.CutPrefix(stderr.String(), "gpurec: ")
			if begins, partly := strings.CutSuffix(tc.words, "…"); !(said == tc.words || partly && strings.HasPrefix(said, begins)) || found != (tc.words != "") {
				t.Errorf("stderr %q, want %q", stderr.String(), tc.words)
			}
			if tc.status != 0 {
				return
			}
			n, err := strconv.Atoi(strings.TrimSpace(stdout.String()))
			if err != nil {
				t.Fatal(err)
			}
			if tc.name == "off" {
				own = n
			}
			want := own
			if tc.env != "" || len(tc.flags) > 0 && !strings.Contains(tc.words, "no metrics") {
				want++
			}
			if n != want {
				t.Errorf("gpurec has %d sockets, want %d", n, want)
			}
			if m := read(t, filepath.Join(dir, "t.gpurec")).meta; m.Ending != format.EndClosed || m.Status == nil || *m.Status != 0 {
				t.Errorf("the trace says %+v", m)
			}
		})
	}
}
