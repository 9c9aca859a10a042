package report_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format/formattest"
)

// write puts the page of a trace where a browser opens it.
func write(t *testing.T, name string, traces ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".html")
	if err := os.WriteFile(path, made(t, analyze.Query{}, false, traces...), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every page loads nothing, says nothing on the console, breaks no rule of its
// policy, and is no wider than its window: wide or narrow, light or dark.
func TestBrowserPages(t *testing.T) {
	pages := map[string][]string{
		"train": {h200 + "train.gpurec"}, "cupy": {h200 + "cupy.gpurec"}, "steps": {h200 + "steps.gpurec"}, "flavours": {h200 + "flavours.gpurec"},
		"oom-list": {twin(t, "oom/list.txt.zst")}, "oom-retried": {twin(t, "oom/retried.txt.zst")}, "two": {h200 + "train.gpurec", h200 + "cupy.gpurec"},
		"devices": {formattest.Text(t, twoDevices).Path()}, "empty": {formattest.Text(t, "part\n").Path()}, "hostile": {formattest.Text(t, hostile).Path()},
		"instant": {formattest.Text(t, "meta start_monotonic=-5000000000000000000\nprocess 1 pid=1\npart\n-5000000000000000000 Alloc api=torch device=0 address=1 size=100\n").Path()},
		"idle":    {formattest.Text(t, idle).Path()},
		"crowded": {formattest.Text(t, crowded()).Path()},
		"ages":    {formattest.Text(t, "meta start_monotonic=-9000000000000000000\nprocess 1 pid=1\npart\n-9000000000000000000 ScopeBegin thread=7 api=scope scope=1\n9000000000000000000 Alloc api=torch device=0 address=1 size=9223372036854775807\n").Path()},
	}
	b := startBrowser(t)
	for name, traces := range pages {
		t.Run(name, func(t *testing.T) {
			b.t = t
			path := write(t, name, traces...)
			took := b.open(path, 1280, 900)
			fi, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes, shown after %v", fi.Size(), took)
			b.shot(name + ".png")
			for _, width := range []int{1280, 768, 400} {
				b.size(width, 800)
				var wide int
				if b.eval("document.documentElement.scrollWidth", &wide); wide > width {
					t.Errorf("the page is %d wide in a window of %d", wide, width)
				}
			}
			b.shot(name + "-narrow.png")
			b.size(1280, 900)
			for _, scheme := range []string{"light", "dark"} {
				b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
				var least float64
				if b.eval(contrast, &least); least < 4.5 {
					t.Errorf("%s: text has a contrast of %.2f", scheme, least)
				}
			}
			var same bool
			if b.eval(repeats, &same); same {
				t.Error("two marks of an axis of time have the same name")
			}
			var whole bool
			if b.eval(`!!document.querySelector(".chart")?.textContent.includes("8 s")`, &whole); name == "idle" && !whole {
				t.Error("the axis is not as long as NVML was read")
			}
			b.shot(name + "-dark.png")
			b.quiet(path)
			var pdf struct{ Data string }
			if b.call("Page.printToPDF", map[string]any{"printBackground": true}, &pdf); !strings.HasPrefix(pdf.Data, "JVBERi") {
				t.Error("it does not print")
			}
			b.call("Emulation.setEmulatedMedia", map[string]any{"media": "print"}, nil)
			b.size(794, 1123) // A4
			var wide, rows int
			if b.eval("document.documentElement.scrollWidth", &wide); wide > 794 {
				t.Errorf("the page is %d wide on paper of 794", wide)
			}
			if b.eval("[...document.querySelectorAll('tbody')].reduce((n, b) => Math.max(n, [...b.rows].filter((r) => r.getClientRects().length).length), 0)", &rows); rows == 0 || rows > 40 {
				t.Errorf("a table has %d rows on paper", rows)
			}
			if *shots != "" {
				b.shot(name + "-print.png")
				b.file(name+".pdf", pdf.Data)
			}
			var bad int
			b.eval("(window.pwned || 0) + document.querySelectorAll('img, iframe, object, embed, link').length", &bad)
			if scripts := 0; bad != 0 {
				t.Error("a name has become markup")
			} else if b.eval("document.scripts.length", &scripts); scripts != 2 {
				t.Errorf("%d scripts", scripts)
			}
		})
	}
}

// idle is of devices that nobody used.
const idle = `
device 0 uuid=GPU-0 total=1000
device 1 uuid=GPU-1 total=1000
part
sample 1000000000 device=0 total=1000 used=0 free=900 reserved=100 peak_used=0 api=2
sample 1000000010 device=1 total=1000 used=0 free=900 reserved=100 peak_used=0 api=2
sample 9000000000 device=0 total=1000 used=0 free=900 reserved=100 peak_used=0 api=2
sample 9000000010 device=1 total=1000 used=0 free=950 reserved=50 peak_used=0 api=2
`

// repeats says whether a mark of an axis of time is there twice.
const repeats = `[...document.querySelectorAll(".chart svg")].some((s) => {
	const marks = [...s.querySelectorAll("text")].map((e) => e.textContent).filter((t) => /^[\d.]+ (s|ms|µs)$/.test(t));
	return new Set(marks).size < marks.length;
})`

// contrast is the least contrast, by WCAG's formula, of text on its background.
const contrast = `(() => {
	const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
	const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
	let least = 21, seen = 0;
	for (const e of document.querySelectorAll("h1, h2, h3, p, td, th, dt, dd, b, small, button, select, .dim, .badge, .box, a:not(.skip), svg text")) {
		if (!e.textContent.trim() || e.getClientRects().length === 0) continue;
		let up = e;
		while (up.parentElement && rgba(getComputedStyle(up).backgroundColor)[3] < 255) up = up.parentElement;
		const back = rgba(getComputedStyle(up).backgroundColor)[3] < 255 ? rgba("white") : rgba(getComputedStyle(up).backgroundColor);
		const style = getComputedStyle(e);
		const a = light(rgba(e instanceof SVGElement ? style.fill : style.color)), b = light(back);
		least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
		seen++;
	}
	return seen > 20 ? least : 0;
})()`

// What a hand does to a page, and what it says then.
func TestBrowserHands(t *testing.T) {
	b := startBrowser(t)
	path := write(t, "train", h200+"train.gpurec")
	b.open(path, 1280, 900)

	step := func(name string, f func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { b.t = t; f(t) })
	}
	step("numbers", func(t *testing.T) {
		for selector, want := range map[string]string{"#complete": "complete", "#top": "1,405,545,984 bytes", "#flame-what": "(1,405,545,984)", "#peak": "2,965,241,856", "#contexts": "1,082,657,280"} {
			if got := b.text(selector); !strings.Contains(got, want) {
				t.Errorf("%s does not say %s: %.300s", selector, want, got)
			}
		}
	})
	step("brush", func(t *testing.T) {
		chart, reset := "#time .chart svg[role=img]", `(() => { const b = [...document.querySelectorAll("#time button")].find((b) => b.textContent === "whole time"); return b.disabled; })()`
		axis := `[...document.querySelectorAll("#time .chart svg[role=img] > text")].map((e) => e.textContent).join(" ")`
		var before, zoomed, after string
		var whole bool
		b.eval(axis, &before)
		b.drag(chart, 0.85, 0.95)
		b.eval(axis, &zoomed)
		if b.eval(reset, &whole); whole || zoomed == before {
			t.Errorf("brushing has not zoomed: %s", zoomed)
		}
		b.key("Escape", "")
		b.eval(fmt.Sprintf("document.querySelector(%q).focus()", chart), nil)
		b.key("Escape", "")
		if b.eval(axis, &after); after != before {
			t.Errorf("Escape does not show all: %s", after)
		}
	})
	step("click a moment", func(t *testing.T) {
		b.click("#time .chart svg[role=img]")
		title := b.text("#flame-what")
		if !strings.HasPrefix(title, "live on device 0") {
			t.Errorf("the flame graph shows %s", title)
		}
		b.eval(`document.querySelector("#flame select").value = "still 0"; document.querySelector("#flame select").dispatchEvent(new Event("change"))`, nil)
		if title := b.text("#flame-what"); !strings.HasPrefix(title, "at the peak of device 0") {
			t.Errorf("the flame graph shows %s", title)
		}
	})
	step("search", func(t *testing.T) {
		b.typeText("#flame input[type=search]", "functional.py")
		got := b.text("#flame-found")
		var marked int
		if b.eval("document.querySelectorAll('#flame .found').length", &marked); marked == 0 || !strings.Contains(got, "places with ") {
			t.Errorf("%d boxes are marked; %s", marked, got)
		}
		b.eval(`document.querySelector("#flame input[type=search]").value = ""; document.querySelector("#flame input[type=search]").dispatchEvent(new Event("input"))`, nil)
	})
	step("drill down", func(t *testing.T) {
		b.click("#flame .box:nth-child(2)")
		var above int
		var focused string
		if b.eval("document.querySelectorAll('#flame .above').length", &above); above == 0 {
			t.Error("a click does not go into a line")
		}
		b.eval("document.activeElement.className", &focused)
		b.key("ArrowDown", "")
		b.key("Enter", "\r")
		var deeper int
		if b.eval("document.querySelectorAll('#flame .above').length", &deeper); deeper != above+1 {
			t.Errorf("arrow and Enter go from %d to %d lines above; the focus was on %s", above, deeper, focused)
		}
		b.key("Backspace", "")
		if b.eval("document.querySelectorAll('#flame .above').length", &deeper); deeper != above {
			t.Errorf("Backspace leaves %d lines above", deeper)
		}
		b.key("Escape", "")
		if b.eval("document.querySelectorAll('#flame .above').length", &above); above != 0 {
			t.Errorf("Escape leaves %d lines above", above)
		}
	})
	step("sort", func(t *testing.T) {
		first := `document.querySelector("#lines tbody tr td").textContent`
		var before, after, order string
		b.eval(first, &before)
		b.click("#lines thead th:nth-child(1) button")
		b.eval(first, &after)
		if b.eval(`document.querySelector("#lines thead th").ariaSort`, &order); before == after || order != "ascending" {
			t.Errorf("sorting by name: first %q, then %q, %s", before, after, order)
		}
		b.typeText("#lines input", "no such line")
		if b.eval(first, &after); after != "nothing matches" {
			t.Errorf("the filter shows %q", after)
		}
	})
	step("theme", func(t *testing.T) {
		back := "getComputedStyle(document.body).backgroundColor"
		seen := map[string]bool{}
		for range 3 {
			var colour string
			b.click("#theme")
			b.eval(back, &colour)
			seen[colour] = true
		}
		if len(seen) != 2 {
			t.Errorf("backgrounds %v", seen)
		}
	})
	b.t = t
	b.quiet(path)
}

// Bytes that no float holds are shown to the last digit.
func TestBrowserExact(t *testing.T) {
	b := startBrowser(t)
	b.open(write(t, "hostile", formattest.Text(t, hostile).Path()), 1280, 900)
	for selector, want := range map[string]string{"#top": "9,007,199,254,741,100", "#flame-what": "9,007,199,254,741,100", "#contexts": "9,007,199,254,740,993", "#oom": "9,007,199,254,740,995",
		"#lines": "9,007,199,254,740,993", "h1": "</script><script>window.pwned=1</script>"} {
		if got := b.text(selector); !strings.Contains(got, want) {
			t.Errorf("%s does not say %s: %.400s", selector, want, got)
		}
	}
	for words, want := range map[string]string{
		"constructor": "1 place with 8.00 PiB (9,007,199,254,740,993)",
		"</s":         "1 place with 8.00 PiB (9,007,199,254,741,100)", // a line and one below it: a byte counts once
	} {
		b.eval(`document.querySelector("#flame input[type=search]").value = ""`, nil)
		b.typeText("#flame input[type=search]", words)
		if got := b.text("#flame-found"); !strings.Contains(got, want) {
			t.Errorf("the search for %s says %s", words, got)
		}
	}
}

// A card that shows the largest sites has a row for the others.
func TestBrowserRest(t *testing.T) {
	var defs, events strings.Builder
	for i := 1; i <= 30; i++ {
		fmt.Fprintf(&defs, "frame %d python a.py %d f\nstack %d 0 %d\n", i, i, i, i)
		fmt.Fprintf(&events, "%d Alloc thread=7 api=torch device=0 address=%d size=%d stack=%d\n", i, 1+i*65536, 2000*i, i)
	}
	b := startBrowser(t)
	b.open(write(t, "rest", formattest.Text(t, "device 0 uuid=GPU-0\nprocess 1 pid=1 command=a\n"+defs.String()+"part\n"+events.String()).Path()), 1280, 900)
	var last string
	if b.eval("document.querySelector('#leaks tr.rest').textContent", &last); !strings.Contains(last, "[smaller sites]") || !strings.Contains(last, "110,000") { // 2000 × (1 + … + 10)
		t.Errorf("the last row is %q", last)
	}
}

// An out-of-memory card says who called the line that asked, and how to see past a
// wrapper that has nearly all.
func TestBrowserWrapper(t *testing.T) {
	const text = `device 0 uuid=GPU-0 total=100000
process 1 pid=7 command=a
frame 1 python a.py 1 main
frame 2 python a.py 2 load
frame 3 python a.py 3 step
frame 4 python it's.py 4 alloc
stack 10 0 1
stack 11 10 2
stack 12 11 4
stack 13 10 3
stack 14 13 4
part
1000 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x100000 size=30000 requested=30000 stack=12
1010 Alloc thread=7 api=cuMemAlloc_v2 device=0 address=0x200000 size=30000 requested=30000 stack=14
1500 AllocFailed thread=7 api=cuMemAlloc_v2 device=0 requested=90000 status=2 stack=14
2000 ProcessEnd status=1
`
	b := startBrowser(t)
	path := write(t, "wrapper", formattest.Text(t, text).Path())
	b.open(path, 1280, 900)
	var facts, card string
	b.eval("[...document.querySelectorAll('#oom article dt')].map((e) => e.textContent + ' ' + e.nextSibling.textContent).join('; ')", &facts)
	b.eval("document.querySelector('#oom article').textContent", &card)
	if !strings.Contains(facts, "; by it's.py:4:alloc; called by a.py:3:step; called by a.py:1:main; ") || !strings.Contains(card, `a report with --hide 'it'\''s.py:4:alloc' shows who called it`) {
		t.Errorf("%s\n%s", facts, card)
	}
	b.quiet(path)
}

// twoDevices has one that is freest first, and another later.
const twoDevices = `meta command=python command=two.py
device 0 uuid=GPU-0 name=H200 total=100000000
device 1 uuid=GPU-1 name=H200 total=100000000
process 1 pid=4711 command="python two.py"
frame 1 python two.py 3 main
stack 10 0 1
part
sample 500 device=0 total=100000000 used=1000000 free=90000000
sample 500 device=1 total=100000000 used=2000000 free=80000000
1000 Alloc thread=7 api=torch device=0 address=0x100000 size=40000000 stack=10
1500 Alloc thread=7 api=torch device=1 address=0x900000 size=20000000 stack=10
sample 2000 device=0 total=100000000 used=41000000 free=50000000
sample 2000 device=1 total=100000000 used=22000000 free=60000000
3000 Free thread=7 api=torch address=0x100000
`
