package cuda

import (
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// An Environment says what a traced program is to find. Zero fields leave the
// hook's defaults.
type Environment struct {
	Hook      string // path of the preload library
	Socket    string // absolute path of the recorder's socket
	Python    string // directory for PYTHONPATH; "" leaves Python alone
	Stacks    string // auto, none, python, native, both
	OnFull    string // drop or wait
	MaxFrames int
	LaneSize  int64
	Verbose   bool
	Deepbind  bool // libraries opened with RTLD_DEEPBIND are recorded too

	Trace string // absolute path of what is recorded; "" where the program need not know

	Simulator      string // directory of the simulated GPU; "" for the real one
	SimulatorState string // file in which its processes keep common books
}

// EnvOuter remembers, for a gpurec below a gpurec, which of the names that both
// the user and the hook know hold a value of the outer recording, and what the
// user had there: a query string, NAME=set&NAME=before.
const EnvOuter = "GPUREC_OUTER"

// shared are the names by which the hook takes its settings and gpurec run its
// flags.
var shared = []string{format.EnvStacks, format.EnvMaxFrames, format.EnvLaneSize, format.EnvOnFull, format.EnvVerbose, format.EnvDeepbind}

// UserSetting is what the user set a variable to: its value, but what it was
// before where the value is an outer recording's word to its hook.
func UserSetting(lookup func(string) (string, bool), name string) (string, bool) {
	value, ok := lookup(name)
	text, _ := lookup(EnvOuter)
	outer, err := url.ParseQuery(text)
	if h := outer[name]; err == nil && len(h) > 0 && ok && value == h[0] {
		return strings.Join(h[1:], ""), len(h) > 1
	}
	return value, ok
}

// Environ returns base with what the traced program needs. It sets GPUREC_
// names, LD_PRELOAD, NVTX_INJECTION64_PATH and PYTHONPATH, for the simulated
// GPU also LD_LIBRARY_PATH, and keeps what they held: other preloaded libraries
// come after the hook, and a tool that NVTX was to load is loaded by the hook.
// A base that comes from another recording loses what that one put there.
func (e Environment) Environ(base []string) []string {
	old := map[string]string{}
	var out []string
	for _, kv := range base {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "LD_PRELOAD", name == "NVTX_INJECTION64_PATH", name == "PYTHONPATH", name == format.EnvNVTXChain,
			name == "LD_LIBRARY_PATH" && e.Simulator != "":
			old[name] = value
		case name == format.EnvSocket, name == format.EnvHook, name == format.EnvTrace:
		case name == EnvOuter, slices.Contains(shared, name):
			old[name] = value
		case name == "GPUREC_SIM_STATE" && e.SimulatorState != "":
		default:
			out = append(out, kv)
		}
	}
	set := func(name, value string) {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	isHook := func(path string) bool { return path == e.Hook || filepath.Base(path) == HookName }

	set(format.EnvSocket, e.Socket)
	set(format.EnvTrace, e.Trace)
	set(format.EnvHook, e.Hook)
	set(format.EnvStacks, e.Stacks)
	set(format.EnvOnFull, e.OnFull)
	if e.MaxFrames > 0 {
		set(format.EnvMaxFrames, strconv.Itoa(e.MaxFrames))
	}
	if e.LaneSize > 0 {
		set(format.EnvLaneSize, strconv.FormatInt(e.LaneSize, 10))
	}
	if e.Verbose {
		set(format.EnvVerbose, "1")
	}
	if e.Deepbind {
		set(format.EnvDeepbind, "1")
	}
	outer := url.Values{}
	lookup := func(name string) (string, bool) { v, ok := old[name]; return v, ok }
	for _, name := range shared {
		i := slices.IndexFunc(out, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		if i < 0 {
			continue
		}
		outer[name] = []string{out[i][len(name)+1:]}
		if before, ok := UserSetting(lookup, name); ok {
			outer[name] = append(outer[name], before)
		}
	}
	set(EnvOuter, outer.Encode())

	preload := []string{e.Hook}
	for _, p := range strings.FieldsFunc(old["LD_PRELOAD"], func(r rune) bool { return r == ':' || r == ' ' }) {
		if !isHook(p) {
			preload = append(preload, p)
		}
	}
	set("LD_PRELOAD", strings.Join(preload, ":"))

	chain := old["NVTX_INJECTION64_PATH"]
	if isHook(chain) {
		chain = old[format.EnvNVTXChain]
	}
	set("NVTX_INJECTION64_PATH", e.Hook)
	set(format.EnvNVTXChain, chain)

	set("PYTHONPATH", first(e.Python, old["PYTHONPATH"]))
	if e.Simulator != "" {
		set("LD_LIBRARY_PATH", first(e.Simulator, old["LD_LIBRARY_PATH"]))
		set("GPUREC_SIM_STATE", e.SimulatorState)
	}
	return out
}

// first puts dir in front of a search path, once.
func first(dir, path string) string {
	if dir == "" || path == "" {
		return dir + path
	}
	kept := []string{dir}
	for _, p := range strings.Split(path, ":") {
		if p != dir {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, ":")
}
