package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNumbersOfFunctions holds that a reader which lacks a function can replay
// its events: all numbers that came after version 1 say what they stand for.
func TestNumbersOfFunctions(t *testing.T) {
	first := 0
	seen := map[string]API{}
	for i, a := range APIs {
		if i > 0 && a.API <= APIs[i-1].API {
			t.Errorf("%s: its number %d is not above the one before", a.Name, a.API)
		}
		if strings.HasPrefix(a.Name, "cu") && slices.Contains(Watched, a.Name) {
			t.Errorf("%s is watched, and has a number", a.Name)
		}
		if other, ok := seen[a.Name]; ok || a.Name == "none" || strings.ContainsAny(a.Name, " \"=#") || len(a.Name) > maxAPIName {
			t.Errorf("the name of api %d, %q, is no word of its own (%d)", a.API, a.Name, other)
		}
		seen[a.Name] = a.API
		if a.API < laterAPI {
			first++
		} else if Space(a.API>>12) != a.Space || Kind(a.API>>8&15) != a.Does {
			t.Errorf("%s: its number is %#x; API(%d)<<12 | API(%d)<<8 | N is right", a.Name, uint16(a.API), a.Space, a.Does)
		}
	}
	if first != 41 || len(APIs) > maxAPINames {
		t.Errorf("%d functions and sources have a number below %d, of %d: 41 are of version 1, and later ones begin there", first, laterAPI, len(APIs))
	}
	for _, c := range []APIInfo{{API: 0x31fe, Space: SpaceHandle, Does: Alloc}, {API: 0x0bfe, Does: Reset}, {API: 0x37ff, Space: SpaceHandle, Does: Unmap}, {API: 199}} {
		if got := c.API.Info(); got != c || c.API.Space() != c.Space || c.API.Known() {
			t.Errorf("%#x is %+v, want %+v", uint16(c.API), got, c)
		}
	}
}

// ofNewer is a trace of a recorder that knew two functions more.
const ofNewer = `gpurec 1
meta trace_id="t"
api 4607 "cuMemNew"
api 8702 "a \"name\"\n\u202e"
part
1 Alloc api="cuMemNew" layer=driver class=device address=0x10 size=2
2 Free api=cuMemFree_v2 address=0x10
3 Alloc api="a \"name\"\n\u202e" layer=host class=pinned address=0x10 size=2
4 Free api="api 4608" layer=driver
`

func TestNamesOfANewerRecorder(t *testing.T) {
	tr, err := fromText(t, ofNewer)
	if err != nil {
		t.Fatal(err)
	}
	if got := toText(t, tr); got != ofNewer {
		t.Errorf("its text is\n%s\nwant\n%s", got, ofNewer)
	}
	var file struct{ APIs map[string]string }
	b, err := os.ReadFile(filepath.Join(tr.Path(), MetaFile))
	if err := errors.Join(err, json.Unmarshal(b, &file)); err != nil {
		t.Fatal(err)
	}
	if len(file.APIs) != len(APIs)+2 || file.APIs["1"] != "cuMemAlloc_v2" || file.APIs["208"] != "go.free" || file.APIs["4607"] != "cuMemNew" {
		t.Errorf("trace.json names %d functions: %q", len(file.APIs), file.APIs)
	}
	part := open(t, tr.Parts()[0].Path())
	for name, tr := range map[string]*Trace{"the trace": tr, "its part alone": part} {
		defs := NewDefs()
		if err := tr.Parts()[0].LoadDefs(defs); err != nil {
			t.Fatal(err)
		}
		for a, want := range map[API]string{4607: "cuMemNew", 4608: "api 4608", 1: "cuMemAlloc_v2", 0: "none"} {
			if got := defs.API(a); got != want {
				t.Errorf("%s: %d is %q, want %q", name, a, got, want)
			}
		}
	}
	// What a newer recorder calls what we know is ours to say.
	if tr, err = fromText(t, "gpurec 1\napi 1 \"cuMemRenamed\"\n1 Alloc api=\"api 1\"\n"); err != nil {
		t.Fatal(err)
	}
	if got := toText(t, tr); !strings.Contains(got, "api=cuMemAlloc_v2") || strings.Contains(got, "cuMemRenamed") {
		t.Errorf("a name for a function that we know: %s", got)
	}
}

// Names that a trace claims are few, short, and each one function's.
func TestHostileNamesOfFunctions(t *testing.T) {
	many := map[API]string{}
	for i := range maxAPINames + 1 {
		many[laterAPI+API(i)] = fmt.Sprint("f", i)
	}
	for _, c := range []struct {
		name string
		apis any
		want string
	}{
		{"too many", many, "more than 1024 names"},
		{"too long", map[string]string{"4607": strings.Repeat("x", maxAPIName+1)}, "has 257 bytes"},
		{"too long for one we know", map[string]string{"1": strings.Repeat("x", maxAPIName+1)}, "has 257 bytes"},
		{"empty", map[string]string{"4607": ""}, "has 0 bytes"},
		{"of another", map[string]string{"4607": "cuMemFree_v2"}, `is another's: "cuMemFree_v2"`},
		{"a number", map[string]string{"4607": "api 1"}, "another's"},
		{"none", map[string]string{"4607": "none"}, "another's"},
		{"twice", map[string]string{"4607": "x\x1b", "4608": "x\x1b"}, `apis 4607 and 4608 have one name: "x\x1b"`},
		{"no number", map[string]string{"x": "y"}, "x"},
		{"too large a number", map[string]string{"65536": "y"}, "65536"},
		{"no names", map[string]int{"4607": 1}, "number"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			b, err := json.Marshal(map[string]any{"version": Version, "apis": c.apis})
			if err := errors.Join(err, os.WriteFile(filepath.Join(dir, MetaFile), b, 0o600)); err != nil {
				t.Fatal(err)
			}
			_, err = Open(dir)
			var not *NotTraceError
			if !errors.As(err, &not) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a *NotTraceError with %q", err, c.want)
			}
		})
	}
	for _, c := range []struct{ text, want string }{
		{"api 4607 x\napi 4607 y\n", "defined twice"},
		{"api 4607 x\napi 4608 x\n", "have one name"},
		{"api 4607 cupy\n", "another's"},
		{"1 Mark\napi 4607 x\n", "before the first part"},
		{"api 65536 x\n", "does not fit"},
		{"api 4607\n", "name is missing"},
		{"1 Mark api=x\n", `unknown api "x"`},
		{"1 Mark api=\"api 65536\"\n", "unknown api"},
	} {
		if _, err := fromText(t, "gpurec 1\n"+c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := Create(filepath.Join(t.TempDir(), "t"), Meta{APIs: APINames{4607: ""}}, WriterOptions{}); err == nil {
		t.Error("a trace is made with an empty name")
	}
}
