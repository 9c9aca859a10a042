package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/live"
	"github.com/gpurec/gpurec/recorder"
)

func TestAddress(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"9400", "127.0.0.1:9400"},
		{"0", "127.0.0.1:0"},
		{":9400", "127.0.0.1:9400"},
		{"0.0.0.0:9400", "0.0.0.0:9400"},
		{"[::1]:9400", "[::1]:9400"},
		{"node7:9400", "node7:9400"},
		{"", ""}, {"node7", ""}, {"65536", ""}, {"-1", ""}, {"1:2:3", ""}, {"h:http", ""}, {"h:", ""}, {"9400/metrics", ""},
	} {
		if got, err := Address(tc.text); got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: %q, %v; want %q", tc.text, got, err, tc.want)
		}
	}
}

// recording is a program that records itself, and is shown.
func recording(t *testing.T) (*recorder.Recorder, *Server) {
	t.Helper()
	r, err := recorder.Open(recorder.Options{Output: filepath.Join(t.TempDir(), "t.gpurec")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	m, err := Serve(r.Session(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return r, m
}

// get asks once, as Prometheus does.
func get(t *testing.T, m *Server) string {
	t.Helper()
	m.mu.Lock()
	m.text = nil // not the one before
	m.mu.Unlock()
	a, err := http.Get(m.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil || a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != ContentType {
		t.Fatalf("%s, %v, %v\n%s", a.Status, a.Header, err, b)
	}
	return string(b)
}

func alloc(r *recorder.Recorder, device int, size int64, at uint64) {
	h := r.Hook()
	h.MallocPre(device, size, size)
	h.MallocPost(device, size, size, at, at)
}

// What was published before it was asked for is in the answer, and names that a
// program chose stay names.
func TestAnswer(t *testing.T) {
	r, m := recording(t)
	r.Device(0, format.DeviceRow{UUID: "GPU-00000000-0000-0000-0000-000000000001", Name: "a \"b\"\n\\c\xff# TYPE x gauge\nx 1"})
	for i := range uint64(50) {
		alloc(r, 0, 1000, i+1)
		text := get(t, m)
		for _, want := range []string{
			fmt.Sprintf("\ngpurec_device_used_bytes{device=\"0\",uuid=\"GPU-00000000-0000-0000-0000-000000000001\"} %d\n", 1000*(i+1)),
			"name=\"a \\\"b\\\"\\n\\\\c\uFFFD# TYPE x gauge\\nx 1\"} 1\n",
			"\ngpurec_recording 1\n",
		} {
			if !strings.Contains(text, want) {
				t.Fatalf("after %d allocations there is no %q in\n%s", i+1, want, text)
			}
		}
	}
	r.Close()
	if text := get(t, m); !strings.Contains(text, "\ngpurec_recording 0\n") || strings.Contains(text, "gpurec_used_bytes") {
		t.Errorf("after the end it says\n%s", text)
	}
}

// A program that makes devices up makes no series up.
func TestBounds(t *testing.T) {
	r, m := recording(t)
	const made = mostDevices + 72
	for i := range made {
		r.Device(i, format.DeviceRow{UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i)})
		alloc(r, i, 1, uint64(i+1))
	}
	text := get(t, m)
	if n := strings.Count(text, "\ngpurec_used_bytes{"); n != mostDevices {
		t.Errorf("%d of %d devices are shown, want %d", n, made, mostDevices)
	}
	if !strings.Contains(text, fmt.Sprintf("\ngpurec_left_out_series %d\n", made-mostDevices)) {
		t.Errorf("what is left out is not counted in\n%s", text)
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.Count(line, "{") > 1 || len(line) > 1000 {
			t.Errorf("line %q", line)
		}
	}
}

// Every metric is written in the form that Prometheus asks for, the largest
// number to the last digit.
func TestText(t *testing.T) {
	const most = 1<<63 - 1
	curve := live.Curve{Now: most, Peak: most, Total: most, Count: most}
	s := &snapshot{recording: true, devices: []deviceState{{DeviceRow: format.DeviceRow{ID: 3, UUID: "u", Name: "n"}, used: curve,
		Device: live.Device{Acquired: curve, Sampled: true, NVMLPeak: most, Reading: format.Sample{Total: most, Used: most, Free: most, Reserved: format.Unknown}}}},
		processes: []processState{{row: format.Process{PID: 7, Rank: format.Unknown}}}, uses: []use{{used: format.LayerPool, pool: curve}}}
	text := string(s.text())
	for i := range metrics {
		m := &metrics[i]
		head := "# HELP " + m.name + " " + m.help + "\n# TYPE " + m.name + " " + m.kind + "\n" + m.name
		if m.name == "gpurec_device_nvml_reserved_bytes" { // unknown
			head = ""
		}
		if strings.Count(text, "# HELP "+m.name+" ") > 1 || head != "" && !strings.Contains(text, head) {
			t.Errorf("%s is not once in\n%s", m.name, text)
		}
		if grows := strings.HasSuffix(m.name, "_total"); grows != (m.kind == "counter") {
			t.Errorf("%s is a %s", m.name, m.kind)
		}
		if strings.ContainsAny(m.help, "\n\\") || !strings.HasSuffix(m.help, ".") {
			t.Errorf("%s: help %q", m.name, m.help)
		}
	}
	if want := "\ngpurec_used_bytes{device=\"3\",uuid=\"u\",process=\"7\",rank=\"\"} 9223372036854775807\n"; !strings.Contains("\n"+text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
	if strings.Contains(text, "reserved_bytes") {
		t.Errorf("an unknown number is shown in\n%s", text)
	}
}

// The fold is asked once for all who come within leastBetween; who cannot wait
// is told so, and the next one is served.
func TestTurns(t *testing.T) {
	_, m := recording(t)
	m.text, m.made = []byte("the one before"), time.Now().Add(time.Hour)
	if got, err := m.look(context.Background()); string(got) != "the one before" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	m.text = nil
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	w := httptest.NewRecorder()
	m.answer(w, httptest.NewRequest("GET", "/metrics", nil).WithContext(gone))
	if w.Code != http.StatusServiceUnavailable && w.Code != http.StatusOK { // the fold may have been quick
		t.Errorf("status %d", w.Code)
	}
	get(t, m)
}

// Whatever is sent, the next one is served and the recording goes on.
func TestHostile(t *testing.T) {
	r, m := recording(t)
	alloc(r, 0, 4096, 1)
	for _, tc := range []struct{ name, request, want string }{
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "HTTP/1.1 400 "},
		{"a header without end", "GET /metrics HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", mostHeader+8<<10), "HTTP/1.1 431 "},
		{"a line without end", strings.Repeat("G", mostHeader+8<<10), "HTTP/1.1 "},
		{"another method", "POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n", "HTTP/1.1 405 "},
		{"another path", "GET /../../etc/passwd HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 "},
		{"a profile", "GET /debug/pprof/heap HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 404 "},
		{"no host", "GET /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"a body with a lie", "GET /metrics HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 "},
		{"hung up", "GET /metr", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := net.Dial("tcp", m.address.String())
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, tc.request) // may be cut off
			if tc.want != "" {
				line, err := bufio.NewReader(c).ReadString('\n')
				if !strings.HasPrefix(line, tc.want) || strings.Contains(line, " 200 ") && tc.name == "another path" {
					t.Errorf("answer %q, %v; want %q", line, err, tc.want)
				}
			}
			c.Close()
			if text := get(t, m); !strings.Contains(text, "} 4096\n") {
				t.Errorf("then it says\n%s", text)
			}
		})
	}
	// Connections that say nothing take every place, and give them back.
	var idle []net.Conn
	for range 2 * mostCalls {
		c, err := net.Dial("tcp", m.address.String())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, c)
	}
	if err := r.Session().View(context.Background(), func(*recorder.View) {}); err != nil {
		t.Errorf("the recording: %v", err)
	}
	for _, c := range idle {
		c.Close()
	}
	get(t, m)
}

// Connections that are slow, or stay, keep nobody out.
func TestCrowd(t *testing.T) {
	r, _ := recording(t)
	for _, row := range []struct {
		name string
		hold time.Duration
		does func(t *testing.T, c net.Conn)
	}{
		{"say nothing", 10 * time.Millisecond, func(*testing.T, net.Conn) {}},
		{"never come to an end", 10 * time.Millisecond, func(t *testing.T, c net.Conn) { io.WriteString(c, "GET /metr") }},
		{"wait for their next request", time.Hour, func(t *testing.T, c net.Conn) {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			m, err := serve(r.Session(), "127.0.0.1:0", row.hold)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for range mostCalls {
				c, err := net.Dial("tcp", m.address.String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				row.does(t, c)
			}
			for range 3 {
				get(t, m)
			}
		})
	}
}

// A port that is taken is an error to say; the session is none the worse.
func TestTaken(t *testing.T) {
	r, m := recording(t)
	if _, err := Serve(r.Session(), m.address.String()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("error %v", err)
	}
	get(t, m)
}
