package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// A Trace is a trace directory as it was when it was opened. Parts that are
// added later are not seen.
type Trace struct {
	path  string
	meta  Meta
	parts []*Part
	alone bool // opened as one of its parts
}

// maxMeta bounds trace.json.
const maxMeta = 16 << 20

// Open opens a trace: a NAME.gpurec directory, its trace.json, or one of its
// parts alone. It reads trace.json and no table.
//
// A part alone, with no trace.json beside it, answers too; its Meta is empty.
func Open(path string) (*Trace, error) {
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotTraceError{path, pathless(err)}
	}
	if err != nil {
		return nil, fmt.Errorf("open a trace: %w", err)
	}
	dir := path
	if !fi.IsDir() {
		if filepath.Base(path) != MetaFile {
			return nil, &NotTraceError{path, fmt.Errorf("it is a file; a trace is a directory with %s in it", MetaFile)}
		}
		dir = filepath.Dir(path)
	}
	if _, err := os.Stat(filepath.Join(dir, MetaFile)); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, eventsTable.file())); err == nil {
			return openPartAlone(dir)
		}
		return nil, &NotTraceError{path, fmt.Errorf("there is no %s in it", MetaFile)}
	}
	t := &Trace{path: dir}
	if t.meta, err = readMeta(filepath.Join(dir, MetaFile)); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list the parts: %w", err)
	}
	for _, e := range entries {
		if index, ok := partIndex(e.Name()); ok && e.IsDir() {
			t.parts = append(t.parts, &Part{index: index, dir: filepath.Join(dir, e.Name()), apis: t.meta.APIs})
		}
	}
	slices.SortFunc(t.parts, func(a, b *Part) int { return a.index - b.index })
	return t, nil
}

func openPartAlone(dir string) (*Trace, error) {
	abs, err := filepath.Abs(dir) // its name and the directory above matter, and "." has neither
	if err != nil {
		return nil, fmt.Errorf("open a part: %w", err)
	}
	t := &Trace{path: dir, alone: true}
	index, _ := partIndex(filepath.Base(abs))
	t.meta, err = readMeta(filepath.Join(filepath.Dir(abs), MetaFile))
	t.parts = []*Part{{index: index, dir: dir, apis: t.meta.APIs}}
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	return t, err
}

// partIndex is the number that a part's directory is named after.
func partIndex(name string) (int, bool) {
	i, err := strconv.Atoi(name)
	return i, err == nil && i >= 0 && name == partName(i)
}

func readMeta(path string) (m Meta, err error) {
	f, _, err := openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, &NotTraceError{path, pathless(err)}
	}
	if err != nil {
		return m, fmt.Errorf("open a trace: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxMeta+1))
	if err != nil {
		return m, fmt.Errorf("read %s: %w", path, err)
	}
	if len(b) > maxMeta {
		return m, &NotTraceError{path, fmt.Errorf("it has more than %d bytes", maxMeta)}
	}
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return m, &NotTraceError{path, err}
	}
	switch {
	case head.Version == nil || *head.Version < 0:
		return m, &NotTraceError{path, errors.New("it names no format version")}
	case *head.Version > Version, *head.Version < oldest:
		return m, &VersionError{path, *head.Version}
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, &NotTraceError{path, err}
	}
	return m, nil
}

// pathless drops the path that the error around it says already.
func pathless(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Path is the trace's directory, or the one part's.
func (t *Trace) Path() string { return t.path }

// Meta is trace.json.
func (t *Trace) Meta() Meta { return t.meta }

// Parts are the parts there are, in order. What Missing says lies between them.
func (t *Trace) Parts() []*Part { return t.parts }

// Alone reports whether the trace was opened as one of its parts.
func (t *Trace) Alone() bool { return t.alone }

// A Gap is a run of parts that a trace had and has no more.
type Gap struct{ First, Last int }

func (g Gap) String() string {
	if g.First == g.Last {
		return fmt.Sprintf("part %d is missing", g.First)
	}
	return fmt.Sprintf("parts %d to %d are missing", g.First, g.Last)
}

// Missing is what is not there directly before the i-th of Parts, or, where i
// is their number, after the last: trace.json of a closed trace knows how many
// there were. The first parts may be deleted on purpose and are no gap, unless
// no part is left at all.
func (t *Trace) Missing(i int) (Gap, bool) {
	g := Gap{0, t.meta.Parts - 1}
	if n := len(t.parts); n > 0 {
		if t.alone || i == 0 {
			return Gap{}, false
		}
		g.First = t.parts[i-1].index + 1
		if i < n {
			g.Last = t.parts[i].index - 1
		}
	}
	return g, g.First <= g.Last
}

// A Part is one part of a trace.
type Part struct {
	index int
	dir   string
	apis  APINames // the trace's
}

// Index is the part's number in its trace.
func (p *Part) Index() int { return p.index }

// Path is the part's directory.
func (p *Part) Path() string { return p.dir }

// open opens a table. fs.ErrNotExist means that the part is gone: its oldest
// parts may be deleted while a trace is read. A table that is missing in a
// part that is there is an error of the part.
func (p *Part) open(t *table) (*tableReader, error) {
	path := filepath.Join(p.dir, t.file())
	r, err := openTable(path, t)
	if err == nil {
		return r, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open a table: %w", err)
	}
	if _, serr := os.Stat(p.dir); serr != nil {
		return nil, fmt.Errorf("open part %d: %w", p.index, serr)
	}
	// The events are made last: without them the recorder is at the part's tables, or
	// died at them.
	if _, err := os.Stat(filepath.Join(p.dir, eventsTable.file())); errors.Is(err, fs.ErrNotExist) {
		return nil, &TruncatedError{Path: path}
	}
	return nil, &CorruptError{Path: path, Err: errors.New("the table is missing")}
}

// LoadDefs adds the part's definitions to into, and its trace's names of
// functions. Read the part's events first:
// of a growing part the definitions of what was read are then all there.
//
// It loads what it can; the error may join several, each of a table.
func (p *Part) LoadDefs(into *Defs) error {
	if p.apis != nil {
		into.apis = p.apis
	}
	return errors.Join(
		loadTable(p, framesTable, into.PutFrame),
		loadTable(p, stacksTable, into.PutStack),
		loadTable(p, namesTable, func(r nameRow) { into.PutName(r.ID, r.Text) }),
		loadTable(p, processesTable, into.PutProcess),
		loadTable(p, devicesTable, into.PutDevice),
	)
}

// EachFrame calls see for every frame of the part's, and loads nothing.
func (p *Part) EachFrame(see func(Frame)) error { return loadTable(p, framesTable, see) }

func loadTable[T any](p *Part, t *table, put func(T)) error {
	r, err := p.open(t)
	if err != nil {
		return err
	}
	defer r.close()
	var rows [block]T
	for {
		b, err := r.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for from := 0; from < b.rows; from += len(rows) {
			n := min(len(rows), b.rows-from)
			getRows(b, from, rows[:n])
			for i := range n {
				put(rows[i])
			}
		}
	}
}

// A rowReader reads a table's rows a batch at a time.
type rowReader[T any] struct {
	r    *tableReader
	rows []T
}

func (r *rowReader[T]) next() ([]T, error) {
	b, err := r.r.next()
	if err != nil {
		return nil, err
	}
	if cap(r.rows) < b.rows {
		r.rows = make([]T, b.rows)
	}
	r.rows = r.rows[:b.rows]
	getRows(b, 0, r.rows)
	return r.rows, nil
}

// An EventReader reads a part's events.
type EventReader struct{ rowReader[Event] }

// Events opens the part's events.
func (p *Part) Events() (*EventReader, error) {
	r, err := p.open(eventsTable)
	if err != nil {
		return nil, err
	}
	return &EventReader{rowReader[Event]{r: r}}, nil
}

// Next returns the next events, valid and the caller's until the next call.
// After the last whole batch it returns io.EOF, a *TruncatedError or a
// *CorruptError, and that again at every call.
func (r *EventReader) Next() ([]Event, error) { return r.next() }

// Close ends reading.
func (r *EventReader) Close() { r.r.close() }

// A SampleReader reads a part's samples.
type SampleReader struct{ rowReader[Sample] }

// Samples opens the part's samples.
func (p *Part) Samples() (*SampleReader, error) {
	r, err := p.open(samplesTable)
	if err != nil {
		return nil, err
	}
	return &SampleReader{rowReader[Sample]{r: r}}, nil
}

// Next returns the next samples, as EventReader.Next does.
func (r *SampleReader) Next() ([]Sample, error) { return r.next() }

// Close ends reading.
func (r *SampleReader) Close() { r.r.close() }
