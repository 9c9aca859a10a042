package format

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

const (
	maxLine    = 8 << 20  // bytes of one line: a process with three texts of MaxText, quoted
	textWindow = 64 << 20 // of a compressed text, in memory
)

// ReadText makes the trace directory dir, which must not exist, from a text
// twin. It knows zstd by its first bytes. On an error, a *SyntaxError where
// the text is at fault, dir is gone again.
func ReadText(r io.Reader, dir string) error {
	in := bufio.NewReaderSize(r, 64<<10)
	if b, err := in.Peek(4); err == nil && bytes.Equal(b, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
		dec, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(textWindow))
		if err != nil {
			return fmt.Errorf("make a decompressor: %w", err)
		}
		defer dec.Close()
		in = bufio.NewReaderSize(dec, 64<<10)
	}
	p := textParser{in: in, dir: dir, part: -1, names: map[string]NameID{}, apis: map[string]API{}}
	p.meta.Ending = EndClosed
	err := p.run()
	if err == nil {
		if err = p.start(0); err == nil {
			err = p.w.Close(func(m *Meta) { m.Ending, m.Reason = p.meta.Ending, p.meta.Reason })
		}
		if err == nil {
			return nil
		}
	} else if p.w != nil {
		p.w.Close(nil)
	}
	if p.w != nil {
		os.RemoveAll(dir) // this call has made it
	}
	return err
}

// A textParser reads lines into a Writer. The trace is created at the first
// line that is neither a head, nor meta, nor a definition; what comes before
// waits in defs, so that a definition reaches every part that needs it.
type textParser struct {
	in     *bufio.Reader
	dir    string
	number int // of the line
	head   bool
	hasM   bool
	meta   Meta
	defs   []func(*Defs)
	known  *Defs // all so far, before and after the start
	w      *Writer
	made   error // why the trace could not be created
	part   int
	names  map[string]NameID
	apis   map[string]API // those that our list lacks
	fields []field
}

var errNoHead = fmt.Errorf(`a text twin begins with the line "%s %d"`, textHead, Version)

func (p *textParser) run() error {
	p.known = NewDefs()
	for {
		b, err := p.line()
		if err == io.EOF {
			if !p.head {
				return &SyntaxError{1, errNoHead}
			}
			return nil
		}
		if err == nil {
			err = p.read(b)
		}
		if err != nil {
			var v *VersionError
			var s *SyntaxError
			if errors.As(err, &v) || errors.As(err, &s) || p.made != nil || p.w != nil && p.w.err != nil {
				return err
			}
			return &SyntaxError{p.number, err}
		}
	}
}

// line returns the next line that says something, without its end.
func (p *textParser) line() (string, error) {
	for {
		p.number++
		var long []byte
		for more := true; more; {
			b, err := p.in.ReadSlice('\n')
			long = append(long, b...)
			switch {
			case len(long) > maxLine:
				return "", fmt.Errorf("it has more than %d bytes", maxLine)
			case err == nil || err == io.EOF && len(long) > 0:
				more = false
			case err == io.EOF:
				return "", err
			case err != bufio.ErrBufferFull:
				return "", fmt.Errorf("read text: %w", err)
			}
		}
		if b := bytes.TrimSpace(long); len(b) > 0 && b[0] != '#' {
			return string(b), nil
		}
	}
}

func (p *textParser) read(s string) (err error) {
	if p.fields, err = splitFields(p.fields[:0], s); err != nil {
		return err
	}
	word := p.fields[0]
	a := args{fields: p.fields[1:]}
	if !p.head {
		if word.value != textHead || word.key != "" {
			return errNoHead
		}
		p.head = true
		v := a.intWord("version", 32)
		if a.err == nil && v > Version {
			return &VersionError{"text twin", int(v)}
		}
		if a.err == nil && v < oldestText {
			return fmt.Errorf("there is no version %d", v)
		}
		return a.end()
	}
	switch word.value {
	case "meta":
		if p.hasM || p.w != nil {
			return errors.New("meta stands once, before the first part")
		}
		p.hasM = true
		return p.readMeta(&a)
	case "api":
		return p.readAPI(&a)
	case "device", "process", "frame", "stack", "name":
		return p.readDef(word.value, &a)
	case "part":
		index := p.part + 1
		if len(a.fields) > 0 {
			index = int(a.intWord("index", 31))
		}
		if err := a.end(); err != nil {
			return err
		}
		if index <= p.part {
			return fmt.Errorf("part %d does not come after part %d", index, p.part)
		}
		return p.start(index)
	case "sample":
		return p.readSample(&a)
	}
	if word.key != "" {
		return fmt.Errorf("a line does not begin with %s=", word.key)
	}
	return p.readEvent(word, &a)
}

// start begins part index, or leaves the current one where index is 0.
func (p *textParser) start(index int) error {
	if p.w == nil {
		w, err := create(p.dir, p.meta, WriterOptions{}, index)
		if err != nil {
			p.made = err
			return err
		}
		p.w, p.part = w, index
		for _, put := range p.defs {
			put(w.Defs())
		}
		p.defs = nil
		return nil
	}
	if index <= p.part {
		return nil
	}
	p.part = index
	return p.w.rotateTo(index, nil)
}

// put gives a definition to the writer, now or when there is one.
func (p *textParser) put(f func(*Defs)) {
	f(p.known)
	if p.w != nil {
		f(p.w.Defs())
		return
	}
	p.defs = append(p.defs, f)
}

func (p *textParser) readSample(a *args) error {
	s := Sample{Time: Time(a.intWord("time", 64)), Device: NoDevice, Reserved: Unknown, ProcessUsed: Unknown, API: 2}
	peak := false
	for a.next() {
		switch a.key {
		case "device":
			s.Device = Device(a.int(16))
		case "process":
			s.Process = ProcessID(a.uint(32))
		case "total":
			s.Total = a.int(64)
		case "used":
			s.Used = a.int(64)
		case "free":
			s.Free = a.int(64)
		case "reserved":
			s.Reserved = a.int(64)
		case "process_used":
			s.ProcessUsed = a.int(64)
		case "peak_used":
			s.PeakUsed, peak = a.int(64), true
		case "api":
			s.API = int8(a.int(8))
		default:
			a.unknown("a sample")
		}
	}
	if !peak {
		s.PeakUsed = s.Used
	}
	if a.err != nil {
		return a.err
	}
	if err := p.start(0); err != nil {
		return err
	}
	return p.w.Sample(&s)
}

func (p *textParser) readEvent(word field, a *args) error {
	at, err := strconv.ParseInt(word.value, 10, 64)
	if err != nil || word.quoted {
		return fmt.Errorf("%q is no line of a text twin: neither a time nor meta, api, device, process, frame, stack, name, part, sample", word.value)
	}
	e := Event{Time: Time(at), Duration: Unknown, Size: Unknown, Requested: Unknown, Allocated: Unknown, Reserved: Unknown, Device: NoDevice}
	if e.Kind, err = ParseKind(a.word("kind")); err != nil {
		a.fail(err)
	}
	var layer, class, process bool
	for a.next() {
		switch a.key {
		case "duration":
			e.Duration = a.int(64)
		case "process":
			e.Process, process = ProcessID(a.uint(32)), true
		case "thread":
			e.Thread = uint32(a.uint(32))
		case "seq":
			e.Seq = a.uint(63)
		case "api":
			var theirs bool
			if e.API, theirs = p.apis[a.text()]; !theirs {
				e.API, err = ParseAPI(a.text())
				a.fail(err)
			}
		case "layer":
			e.Layer, err = ParseLayer(a.text())
			a.fail(err)
			layer = true
		case "class":
			e.Class, err = ParseClass(a.text())
			a.fail(err)
			class = true
		case "device":
			e.Device = Device(a.int(16))
		case "cuctx":
			e.CUctx = a.uint(64)
		case "address":
			e.Address = a.uint(64)
		case "object":
			e.Object = a.uint(64)
		case "size":
			e.Size = a.int(64)
		case "requested":
			e.Requested = a.int(64)
		case "allocated":
			e.Allocated = a.int(64)
		case "reserved":
			e.Reserved = a.int(64)
		case "stream":
			e.Stream = a.uint(64)
		case "pool":
			e.Pool = a.uint(64)
		case "stack":
			e.Stack = StackID(a.uint(32))
		case "scope":
			e.Scope = ScopeID(a.uint(64))
		case "parent":
			e.Parent = ScopeID(a.uint(64))
		case "name":
			e.Name = p.nameOf(a)
		case "note":
			e.Note = p.nameOf(a)
		case "status":
			e.Status = int32(a.int(32))
		case "flags":
			e.Flags, err = ParseFlags(a.text())
			a.fail(err)
		default:
			a.unknown("an event")
		}
	}
	if !process {
		if len(p.known.processes) > 1 {
			a.fail(fmt.Errorf("process= is needed: %d are defined", len(p.known.processes)))
		}
		e.Process = p.known.loneProcess()
	}
	info := e.API.Info()
	if !layer {
		e.Layer = info.Layer
	}
	if !class {
		e.Class = info.Class
	}
	if a.err != nil {
		return a.err
	}
	if err := p.start(0); err != nil {
		return err
	}
	return p.w.Event(&e)
}

// nameOf is a name by id, or by its text: the first id of that text, or a new one.
func (p *textParser) nameOf(a *args) NameID {
	if !a.quoted {
		return NameID(a.uint(32))
	}
	s := a.text()
	if id, ok := p.names[s]; ok || a.err != nil {
		return id
	}
	id := NameID(p.known.names.rows + 1)
	for p.known.HasName(id) {
		id++
	}
	p.names[s] = id
	p.put(func(d *Defs) { d.PutName(id, s) })
	return id
}
