package report_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var browse = flag.Bool("browser", false, "test pages in a headless Chromium")
var shots = flag.String("shots", "", "write screenshots of the pages to this `FOLDER`")

// A browser is a headless Chromium, told what to do over a pair of pipes: its
// protocol's messages are JSON, each with a zero byte after it.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	next    int
	events  []message // not looked at yet
}

type message struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser skips the test where there is no Chromium.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	if !*browse {
		t.Skip("make test-browser has its turn: -browser is not given")
	}
	path := os.Getenv("CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path == "" {
			path, _ = exec.LookPath(name)
		}
	}
	if path == "" {
		t.Skip("no Chromium: there is none in PATH, and CHROMIUM does not name one")
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{read, theirs}
	if err := cmd.Start(); err != nil {
		t.Skipf("no Chromium: %v", err)
	}
	read.Close()
	theirs.Close()
	b := &browser{t: t, to: write, from: bufio.NewReader(ours)}
	watchdog := time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		b.send("", "Browser.close", nil)
		write.Close()
		time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		watchdog.Stop()
		ours.Close()
	})
	return b
}

func (b *browser) send(session, method string, params any) int {
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	b.to.Write(append(text, 0))
	return b.next
}

func (b *browser) receive() message {
	b.t.Helper()
	text, err := b.from.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("the browser has gone: %v", err)
	}
	var m message
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.t.Fatal(err)
	}
	return m
}

// call waits for the answer; what else comes meanwhile stays in events.
func (b *browser) call(method string, params any, result any) {
	b.t.Helper()
	id := b.send(b.session, method, params)
	for {
		m := b.receive()
		if m.ID != id {
			b.events = append(b.events, m)
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(m.Result, result); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

// open shows a file in a new tab, and returns how long it took to load.
func (b *browser) open(path string, width, height int) time.Duration {
	b.t.Helper()
	b.session = ""
	var target struct{ TargetID, SessionID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.size(width, height)
	b.events = nil
	begin := time.Now()
	abs, err := filepath.Abs(path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.call("Page.navigate", map[string]any{"url": "file://" + abs}, nil)
	for {
		for _, e := range b.events {
			if e.Method == "Page.loadEventFired" {
				b.eval("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))", nil)
				return time.Since(begin)
			}
		}
		b.events = append(b.events, b.receive())
	}
}

func (b *browser) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// quiet checks that nothing was loaded but the page, and that nothing was said
// on the console: an error, or a refusal by the page's policy.
func (b *browser) quiet(path string) {
	b.t.Helper()
	b.eval("0", nil) // what was said before has come then
	seen := 0
	for _, e := range b.events {
		switch e.Method {
		case "Network.requestWillBeSent":
			var r struct{ Request struct{ URL string } }
			json.Unmarshal(e.Params, &r)
			if seen++; !strings.HasSuffix(r.Request.URL, filepath.Base(path)) {
				b.t.Errorf("the page asked for %s", r.Request.URL)
			}
		case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
			b.t.Errorf("%s: %.600s", e.Method, e.Params)
		}
	}
	if seen != 1 {
		b.t.Errorf("%d requests; want the page's own", seen)
	}
}

// eval runs an expression in the page.
func (b *browser) eval(expression string, result any) {
	b.t.Helper()
	if err := b.try(expression, result); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) try(expression string, result any) error {
	b.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r)
	if r.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	if result == nil {
		return nil
	}
	if r.Result.Value == nil {
		return errors.New(expression + ": no value")
	}
	return json.Unmarshal(r.Result.Value, result)
}

// text is what an element says.
func (b *browser) text(selector string) (s string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).textContent", selector), &s)
	return s
}

// place is the middle of an element on the screen, scrolled to.
func (b *browser) place(selector string) (x, y, width float64) {
	b.t.Helper()
	var r struct{ X, Y, W float64 }
	b.eval(fmt.Sprintf(`(() => { const e = document.querySelector(%q); e.scrollIntoView({block: "center", behavior: "instant"});
		const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2, W: r.width}; })()`, selector), &r)
	return r.X, r.Y, r.W
}

func (b *browser) mouse(kind string, x, y float64) {
	b.t.Helper()
	buttons := 0
	if kind != "mouseMoved" {
		buttons = 1
	}
	b.call("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1}, nil)
}

func (b *browser) click(selector string) {
	b.t.Helper()
	x, y, _ := b.place(selector)
	b.mouse("mouseMoved", x, y)
	b.mouse("mousePressed", x, y)
	b.mouse("mouseReleased", x, y)
}

// drag goes over a part of an element, as shares of its width.
func (b *browser) drag(selector string, from, to float64) {
	b.t.Helper()
	x, y, width := b.place(selector)
	left := x - width/2
	b.mouse("mouseMoved", left+from*width, y)
	b.mouse("mousePressed", left+from*width, y)
	for i := range 5 {
		at := from + (to-from)*float64(i+1)/5
		b.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseMoved", "x": left + at*width, "y": y, "button": "left", "buttons": 1}, nil)
	}
	b.mouse("mouseReleased", left+to*width, y)
}

// key presses one: its name, and the text that it types, if any.
func (b *browser) key(name, text string) {
	b.t.Helper()
	p := map[string]any{"type": "keyDown", "key": name, "code": name}
	if codes := map[string]int{"Enter": 13, "Escape": 27, "Backspace": 8, "ArrowDown": 40, "ArrowRight": 39, "Tab": 9}; codes[name] != 0 {
		p["windowsVirtualKeyCode"] = codes[name]
	}
	if text != "" {
		p["text"] = text
	}
	b.call("Input.dispatchKeyEvent", p, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": name}, nil)
}

func (b *browser) typeText(selector, text string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("document.querySelector(%q).focus()", selector), nil)
	b.call("Input.insertText", map[string]any{"text": text}, nil)
}

// shot writes a screenshot of the whole page where somebody asked for them.
func (b *browser) shot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &r)
	b.file(name, r.Data)
}

func (b *browser) file(name, data string) {
	b.t.Helper()
	raw, err := base64.StdEncoding.DecodeString(data)
	if err == nil {
		err = os.MkdirAll(*shots, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, name), raw, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
