package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Repaired is what Repair found and did.
type Repaired struct {
	Events  int64    // rows in the trace now, checkpoints not counted
	Files   int      // tables that were cut, or had no end, or were not there
	Cut     int64    // bytes behind their last whole batch
	Damaged []string // what else was wrong, a sentence each
	open    bool     // trace.json did not say how the recording ended
}

// Needed reports whether there was anything to repair.
func (r *Repaired) Needed() bool { return r.open || r.Files > 0 }

func (r *Repaired) String() string {
	said := []string{"repaired"}
	if r.open {
		said = append(said, "the recorder died before it closed the trace")
	}
	if r.Files > 0 {
		said = append(said, fmt.Sprintf("tables without their end: %d, bytes behind their last whole batches: %d", r.Files, r.Cut))
	}
	return strings.Join(append(said, r.Damaged...), "; ")
}

// A repairTable is how far one table is whole.
type repairTable struct {
	path   string // within the trace
	table  *table
	size   int64 // that it has
	whole  int64 // bytes of whole batches, 0 where not even the head is there
	blocks []fileBlock
	closed bool
}

// Repair closes a trace whose recorder was killed, or whose files were cut, as
// the new directory out; where out is "", in place.
//
//  1. Every table is read to its last whole batch: events before definitions, so
//     that what was flushed meanwhile refers to nothing that is left behind. Of a
//     part's first events, the checkpoint, half would be wrong: it counts whole.
//  2. It is copied as far, or cut there, and gets its footer.
//  3. trace.json says EndRepaired, and why: of a copy at last, so that half of
//     one is no trace; in place at first, so that none that lost rows to a repair
//     that was killed is called whole.
//
// What a closed trace has is not touched: then nothing is made, and Needed is
// false. Do not repair what is being recorded.
func Repair(ctx context.Context, path, out string) (*Repaired, error) {
	t, err := Open(path)
	if err != nil {
		return nil, err
	}
	if t.Alone() {
		return nil, fmt.Errorf("repair %s: it is one part of a trace; name the trace", path)
	}
	m := t.Meta()
	r := &Repaired{open: m.Ending == EndGrowing}
	tables, err := r.look(ctx, t, &m)
	if err != nil {
		return nil, fmt.Errorf("repair %s: %w", path, err)
	}
	if !r.Needed() {
		return r, nil
	}
	if m.Reason != "" {
		m.Reason += "; "
	}
	m.Ending, m.Reason = EndRepaired, m.Reason+r.String()
	if out == "" {
		err = repairHere(t, tables, &m)
	} else {
		err = repairInto(ctx, t, out, tables, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("repair %s: %w", path, err)
	}
	return r, nil
}

// look reads every table, and adds up what trace.json lacks.
func (r *Repaired) look(ctx context.Context, t *Trace, m *Meta) (tables []*repairTable, err error) {
	var lost int64
	for _, p := range t.Parts() {
		began := p.index == 0
		for _, tab := range slices.Backward(tableOrder[:]) {
			k := &repairTable{path: filepath.Join(partName(p.index), tab.file()), table: tab}
			err := k.look(ctx, t.path, func(b *batch) {
				if tab == eventsTable {
					n, ended := countEvents(b, m, &lost)
					r.Events += n
					began = began || ended
				}
			})
			var cut *TruncatedError
			var corrupt *CorruptError
			switch {
			case err == nil:
			case errors.Is(err, fs.ErrNotExist):
				r.Damaged = append(r.Damaged, fmt.Sprintf("%s was not there", k.path))
			case errors.As(err, &corrupt) && k.whole == 0: // another version's, or no table
				return nil, err
			case errors.As(err, &corrupt):
				r.Damaged = append(r.Damaged, fmt.Sprintf("%s was corrupt from byte %d on: %v", k.path, k.whole, corrupt.Err))
			case !errors.As(err, &cut):
				return nil, err
			}
			if tab == eventsTable && !began && !k.closed && k.whole > 0 {
				r.Damaged = append(r.Damaged, fmt.Sprintf("part %d had just begun, its checkpoint is not whole and is left out", p.index))
				k.whole, k.blocks = 0, nil
			}
			if !k.closed {
				r.Files++
				r.Cut += k.size - k.whole
			}
			tables = append(tables, k)
		}
		m.Parts = max(m.Parts, p.index+1)
	}
	m.Stats.Events = max(m.Stats.Events, uint64(r.Events))
	m.Stats.Lost = max(m.Stats.Lost, uint64(lost))
	return tables, nil
}

// look reads a table. see has each batch.
func (k *repairTable) look(ctx context.Context, dir string, see func(*batch)) error {
	r, err := openTable(filepath.Join(dir, k.path), k.table)
	if err != nil {
		return err
	}
	defer r.close()
	k.size = r.size
	for {
		b, err := r.next()
		if err == nil {
			if err := ctx.Err(); err != nil {
				return err
			}
			see(b)
			continue
		}
		k.whole, k.blocks, k.closed = r.off, r.blocks, err == io.EOF
		if k.closed {
			return nil
		}
		return err
	}
}

// countEvents counts the events of a batch, and what they say was lost, and
// notes the time of the last. It reports whether a checkpoint ended there.
func countEvents(b *batch, m *Meta, lost *int64) (n int64, ended bool) {
	var rows [block]Event
	for from := 0; from < b.rows; from += len(rows) {
		some := rows[:min(len(rows), b.rows-from)]
		getRows(b, from, some)
		for i := range some {
			switch e := &some[i]; {
			case e.Kind.Checkpoint():
				ended = ended || e.Kind == CheckpointEnd
			case e.Kind == Lost && e.Size > 0:
				*lost += min(e.Size, 1<<62-*lost)
				fallthrough
			default:
				n++
				m.End = max(m.End, e.Time)
			}
		}
	}
	return n, ended
}

// regular refuses to repair in place what is a link: a file would be cut that is
// not the trace's.
func regular(dir string, tables []*repairTable) error {
	for _, k := range tables {
		if fi, err := os.Lstat(filepath.Join(dir, k.path)); err == nil && !fi.Mode().IsRegular() {
			return fmt.Errorf("%s is no regular file: repair into another directory", k.path)
		}
	}
	return nil
}

// repairHere does in place what look found necessary.
func repairHere(t *Trace, tables []*repairTable, m *Meta) error {
	if err := regular(t.path, tables); err != nil {
		return err
	}
	if err := (&Writer{dir: t.path, meta: *m, disk: osDisk{}}).writeMeta(); err != nil {
		return err
	}
	for _, k := range tables {
		if k.closed {
			continue
		}
		if err := k.close(filepath.Join(t.path, k.path), os.O_CREATE); err != nil {
			return err
		}
	}
	return nil
}

// repairInto does as a copy what look found necessary.
func repairInto(ctx context.Context, t *Trace, out string, tables []*repairTable, m *Meta) (err error) {
	if err := os.Mkdir(out, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(out) // this call has made it
		}
	}()
	for _, p := range t.Parts() {
		if err := os.Mkdir(filepath.Join(out, partName(p.index)), 0o700); err != nil {
			return err
		}
	}
	for _, k := range tables {
		if err := k.copy(ctx, t.path, out); err != nil {
			return err
		}
	}
	return (&Writer{dir: out, meta: *m, disk: osDisk{}}).writeMeta()
}

// copy copies what is whole, and closes it.
func (k *repairTable) copy(ctx context.Context, from, to string) error {
	path := filepath.Join(to, k.path)
	n := k.whole
	if k.closed {
		n = k.size
	}
	if err := copyHead(ctx, filepath.Join(from, k.path), path, n); err != nil || k.closed {
		return err
	}
	return k.close(path, 0)
}

func copyHead(ctx context.Context, from, to string, n int64) error {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil || n == 0 {
		return errors.Join(err, closeFile(out))
	}
	in, _, err := openFile(from)
	if err != nil {
		return errors.Join(err, closeFile(out))
	}
	defer in.Close()
	for most := int64(64 << 20); n > 0 && err == nil; n -= most { // an interrupt is waited for so long
		most = min(most, n)
		if err = ctx.Err(); err == nil {
			_, err = io.CopyN(out, in, most)
		}
	}
	return errors.Join(err, out.Close())
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// close cuts a file behind its last whole batch, and writes its footer. Whenever
// it is interrupted, the file is one that can be repaired.
func (k *repairTable) close(path string, how int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|how, 0o600)
	if err != nil {
		return err
	}
	s := k.table.shape()
	end := s.tail(k.blocks)
	if k.whole == 0 {
		end = append(slices.Clone(s.head), end...)
	}
	if err = f.Truncate(k.whole); err == nil {
		_, err = f.WriteAt(end, k.whole)
	}
	return errors.Join(err, f.Sync(), f.Close())
}
