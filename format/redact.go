package format

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A redactor takes out of what a Writer writes where and by whom the program was
// run, so that a trace can be shown to others:
//
//	command lines     the program's name alone
//	paths             from site-packages or Python's library on, else the last two
//	                  elements, none of them whose home it is:
//	                  /home/kim/bert/src/train.py is src/train.py, /home/kim/a.py a.py
//	the host's name   nothing
//	a job's name      nothing, as it may be made of the host's
//	other texts       the same for the paths and the host in them: reasons, names
//	                  of scopes and marks
//
// Two paths stay two: the second that would become the same gets a number in
// front, ~2/src/train.py, in the order in which they come. Functions, names,
// build ids and the devices' UUIDs stay as they are.
type redactor struct {
	host  string
	shown map[string]string // by path
	taken map[string]int    // how many became one text
}

// mostPaths is how many paths are told apart.
const mostPaths = 1 << 16

func newRedactor(host string) *redactor {
	return &redactor{host: host, shown: map[string]string{}, taken: map[string]int{}}
}

// kept are the places from which on a path says nothing of its owner.
var kept = regexp.MustCompile(`^.*/(?:(?:site|dist)-packages/|(python\d+\.\d+/))`)

// homes are where the next element of a path is somebody's name.
var homes = regexp.MustCompile(`^.*/(?:home|[Uu]sers)/[^/]+(?:/|$)`)

// path is what is left of a path. What has no slash is none.
func (r *redactor) path(p string) string {
	if !strings.Contains(p, "/") || strings.HasPrefix(p, "[") || strings.HasPrefix(p, "<") && strings.HasSuffix(p, ">") {
		return p
	}
	if s, ok := r.shown[p]; ok {
		return s
	}
	tail := ""
	if m := kept.FindStringSubmatchIndex(p); m != nil && m[2] >= 0 {
		tail = p[m[2]:]
	} else if m != nil {
		tail = p[m[1]:]
	} else {
		p := path.Clean(p)
		if in := homes.FindString(p); in != "" {
			p = "/~/" + p[len(in):] // of the home itself its sign is left
		}
		elements := strings.Split(strings.Trim(p, "/"), "/")
		tail = strings.Join(elements[max(len(elements)-2, 0):], "/")
		if len(elements) <= 2 { // /srv/train.py: what is left would be all of it
			tail = elements[len(elements)-1]
		}
	}
	if len(r.shown) >= mostPaths {
		return tail
	}
	r.taken[tail]++
	s := tail
	if n := r.taken[tail]; n > 1 {
		s = fmt.Sprintf("~%d/%s", n, tail)
	}
	r.shown[p] = s
	return s
}

// Names of scopes may have slashes and be no paths; in reasons a path may begin
// with a directory's name.
var (
	rooted = regexp.MustCompile(`/(?:[^/\s:'"=,;()]+/)+[^/\s:'"=,;()]*|~[^/\s]*/[^\s:'"=,;()]+`)
	paths  = regexp.MustCompile(`[^/\s:'"=,;()]*/(?:[^/\s:'"=,;()]+/)*[^/\s:'"=,;()]*`)
)

// text is a text without the paths of this kind and the host in it.
func (r *redactor) text(s string, kind *regexp.Regexp) string {
	s = kind.ReplaceAllStringFunc(s, r.path)
	if len(r.host) > 2 {
		s = strings.ReplaceAll(s, r.host, "host")
	}
	return s
}

func (r *redactor) frame(f *Frame) { f.File, f.Module = r.path(f.File), r.path(f.Module) }

func (r *redactor) process(p *Process) {
	program := p.Executable
	if program == "" {
		program, _, _ = strings.Cut(strings.Trim(p.Command, "'"), " ")
	}
	p.Executable = path.Base(program)
	if program == "" {
		p.Executable = ""
	}
	p.Command = p.Executable
}

// meta is a copy of m with what may be shown.
func (r *redactor) meta(m Meta) Meta {
	if len(m.Command) > 0 {
		m.Command = []string{path.Base(m.Command[0])}
	}
	options, next := m.Options, false
	m.Options = nil
	for _, o := range options {
		name, value, has := strings.Cut(o, "=")
		tells := name == "--output" || name == "--metrics" // a user's name, a host's
		short := strings.IndexByte(o, 'o')                 // -o, after others: -qo NAME
		switch {
		case next:
			o, next = "…", false
		case strings.HasPrefix(o, "-") && !strings.HasPrefix(o, "--") && short > 0:
			if next = short == len(o)-1; !next {
				o = o[:short+1] + "…"
			}
		case has && (tells || strings.Contains(value, "/")):
			o = name + "=…"
		case strings.Contains(o, "/"):
			o = "…"
		default:
			next = tells
		}
		m.Options = append(m.Options, o)
	}
	m.Host = ""
	m.Jobs = slices.Clone(m.Jobs)
	for i := range m.Jobs {
		m.Jobs[i].ID = ""
	}
	m.Notes = slices.Clone(m.Notes)
	for i := range m.Notes {
		m.Notes[i] = r.text(m.Notes[i], paths)
	}
	m.Reason, m.NoSamples = r.text(m.Reason, paths), r.text(m.NoSamples, paths)
	return m
}
