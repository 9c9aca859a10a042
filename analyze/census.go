package analyze

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// A census is what there is of what a query asks for, over all traces. A filter
// that matched nothing anywhere is a slip, and zeros would be no answer to it.
type census struct {
	q                             *Query
	pid, rank, thread, dev, scope tally
	last                          scopeThread // looked at last
	stopped                       bool        // a trace was not read to its end
}

// A tally is the values of one field.
type tally struct {
	found map[string]bool // of those asked for
	there []string        // the first few that there are
	known map[string]bool
	more  bool
}

const mostNamed = 8

func (t *tally) add(s string) {
	switch {
	case t.known[s] || t.more:
	case len(t.there) == mostNamed:
		t.more = true
	default:
		if t.known == nil {
			t.known = map[string]bool{}
		}
		t.known[s] = true
		t.there = append(t.there, s)
	}
}

func (t *tally) find(s string) {
	if t.found == nil {
		t.found = map[string]bool{}
	}
	t.found[s] = true
}

// names says what there is.
func (t *tally) names() string {
	s := strings.Join(t.there, ", ")
	switch {
	case len(t.there) == 0:
		return "there is none"
	case t.more:
		return "there are " + s + " and more"
	case len(t.there) == 1:
		return "there is " + s
	}
	return "there are " + s
}

// event looks at the threads of the processes asked for.
func (c *census) event(e *format.Event, f *filter) {
	at := scopeThread{e.Process, e.Thread}
	if at == c.last || e.Thread == 0 || !f.matches(e, ByProcess) {
		return
	}
	c.last = at
	s := strconv.FormatUint(uint64(e.Thread), 10)
	c.thread.add(s)
	if contains(c.q.Threads, e.Thread) {
		c.thread.find(s)
	}
}

// trace looks at what a pass has come to know.
func (c *census) trace(p *Pass) {
	for _, r := range p.Defs.Processes() {
		pid, rank := strconv.Itoa(int(r.PID)), strconv.Itoa(int(r.Rank))
		c.pid.add(pid)
		c.pid.find(pid)
		if r.Rank >= 0 {
			c.rank.add(rank)
			c.rank.find(rank)
		}
	}
	device := func(id format.Device, uuid string) {
		name := strconv.Itoa(int(id))
		if uuid != "" {
			name += " (" + Short(uuid) + ")"
		}
		c.dev.add(name)
		for _, want := range c.q.Devices {
			if deviceIs(want, id, uuid) {
				c.dev.find(want)
			}
		}
	}
	for _, r := range p.Defs.Devices() {
		device(r.ID, r.UUID)
	}
	for _, d := range p.State.Devices() {
		if _, defined := p.Defs.Device(d.ID); !defined && d.ID != format.NoDevice {
			device(d.ID, "")
		}
	}
	s := &p.filter.scopes
	for _, name := range s.names.there {
		c.scope.add(name)
	}
	c.scope.more = c.scope.more || s.names.more
	for i, r := range s.refs {
		if s.hit[i] {
			c.scope.find(r.String())
		}
	}
	c.last = scopeThread{}
}

// judge is an error where a filter matched nothing. One of several values that
// did not is noted. What might have come after the window's end is no slip.
func (c *census) judge(comp *Completeness) error {
	for _, f := range []struct {
		what string
		t    *tally
		want []string
		all  bool // known without reading to the end
	}{
		{"process", &c.pid, texts(c.q.Processes), true},
		{"rank", &c.rank, texts(c.q.Ranks), true},
		{"device", &c.dev, c.q.Devices, true},
		{"thread", &c.thread, texts(c.q.Threads), false},
		{"scope", &c.scope, texts(c.q.Scopes), false},
	} {
		var missing []string
		for _, w := range f.want {
			if !f.t.found[w] {
				missing = append(missing, Short(w))
			}
		}
		if len(missing) == 0 {
			continue
		}
		words := fmt.Sprintf("no %s %s; %s", f.what, strings.Join(missing, ", "), f.t.names())
		if len(missing) == len(f.want) && (f.all || !c.stopped) {
			return fmt.Errorf("%s", words)
		}
		comp.note("%s", words)
	}
	return nil
}

func texts[T any](vs []T) (s []string) {
	for _, v := range vs {
		s = append(s, fmt.Sprint(v))
	}
	return s
}
