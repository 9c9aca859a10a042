package format

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A Restatement is what becomes of the definitions of a trace whose native frames
// were only addresses. Ids stay; new ones must be unused in all parts.
type Restatement struct {
	Frames map[FrameID]Frame   // in place of the one of that id, or new
	Stacks map[StackID][]Stack // in place of a node: callers first, the node of that id last
}

// Restate writes a closed trace again with other definitions, as the new
// directory out; where out is "", in place:
//
//  1. Of each part that has any of them, both tables are written beside.
//  2. The frames are renamed, then the stacks: killed in between, a part's old
//     stacks refer to frames that are still there, by the same ids.
//
// Of a copy trace.json comes last, so that half of one is no trace. Events stay
// as they are, byte for byte.
func Restate(ctx context.Context, path, out string, r *Restatement) error {
	t, err := Open(path)
	if err == nil {
		err = t.restate(ctx, out, r)
	}
	if err != nil {
		return fmt.Errorf("restate %s: %w", path, err)
	}
	return nil
}

func (t *Trace) restate(ctx context.Context, out string, r *Restatement) error {
	switch {
	case t.Alone():
		return errors.New("it is one part of a trace; name the trace")
	case t.meta.Ending == EndGrowing:
		return errors.New("it is not closed: it is being recorded, or gpuanalyze repair closes it")
	}
	enc, err := newEncoder()
	if err != nil {
		return fmt.Errorf("make a compressor: %w", err)
	}
	defer enc.Close()
	if out != "" {
		return t.restateInto(ctx, out, r, enc)
	}
	for _, p := range t.parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, tab := range []*table{framesTable, stacksTable} {
			if err := regular(p.dir, []*repairTable{{path: tab.file()}}); err != nil {
				return err
			}
		}
		if _, err := r.part(p.dir, p.dir, enc); err != nil {
			return err
		}
	}
	return nil
}

func (t *Trace) restateInto(ctx context.Context, out string, r *Restatement, enc *encoder) (err error) {
	if err := os.Mkdir(out, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(out) // this call has made it
		}
	}()
	for _, p := range t.parts {
		dir := filepath.Join(out, partName(p.index))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		changed, err := r.part(p.dir, dir, enc)
		if err != nil {
			return err
		}
		for _, tab := range tableOrder {
			if changed && (tab == framesTable || tab == stacksTable) {
				continue
			}
			from := filepath.Join(p.dir, tab.file())
			fi, err := os.Stat(from)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = copyHead(ctx, from, filepath.Join(dir, tab.file()), fi.Size())
			}
			if err != nil {
				return err
			}
		}
	}
	return (&Writer{dir: out, meta: t.meta, disk: osDisk{}}).writeMeta()
}

// part writes the two tables of a part, unless it has nothing that changes.
func (r *Restatement) part(from, to string, enc *encoder) (changed bool, err error) {
	var stacks []Stack
	var stated, had idSet
	add := func(s Stack) {
		if !stated.has(uint32(s.ID)) {
			stated.add(uint32(s.ID))
			stacks = append(stacks, s)
		}
	}
	err = eachRow(from, stacksTable, func(s Stack) {
		become, ok := r.Stacks[s.ID]
		if !ok {
			become = []Stack{s}
		}
		changed = changed || ok
		for _, s := range become {
			add(s)
		}
	})
	if err != nil {
		return false, err
	}
	var frames []Frame
	err = eachRow(from, framesTable, func(f Frame) {
		had.add(uint32(f.ID))
		if g, ok := r.Frames[f.ID]; ok {
			changed, f = true, g
		}
		frames = append(frames, f)
	})
	if err != nil || !changed {
		return false, err
	}
	for _, s := range stacks {
		if g, ok := r.Frames[s.Frame]; ok && !had.has(uint32(s.Frame)) {
			had.add(uint32(s.Frame))
			frames = append(frames, g)
		}
	}
	for i := range frames {
		frames[i].clean()
	}
	disk := osDisk{}
	names := [2]string{filepath.Join(to, framesTable.file()), filepath.Join(to, stacksTable.file())}
	for _, name := range names {
		disk.Remove(name + besideSuffix) // of one that was killed
	}
	err = writeRows(disk, names[0]+besideSuffix, framesTable, frames, enc)
	if err == nil {
		err = writeRows(disk, names[1]+besideSuffix, stacksTable, stacks, enc)
	}
	for _, name := range names {
		if err == nil {
			err = disk.Rename(name+besideSuffix, name)
		}
	}
	if err != nil {
		for _, name := range names {
			disk.Remove(name + besideSuffix)
		}
	}
	return true, err
}

// eachRow reads a table that must be whole.
func eachRow[T any](dir string, t *table, see func(T)) error {
	p := &Part{dir: dir}
	err := loadTable(p, t, see)
	var cut *TruncatedError
	if errors.As(err, &cut) {
		return fmt.Errorf("%w; gpuanalyze repair closes it", err)
	}
	return err
}

// writeRows makes a table of so many rows, and has it on the disk.
func writeRows[T any](disk Disk, path string, t *table, rows []T, enc *encoder) error {
	w, err := createTable(disk, path, t, enc)
	if err != nil {
		return err
	}
	b := newBatch(t)
	for i := range rows {
		addRows(b, rows[i:i+1])
		if b.full(MaxBatchRows) {
			if err := w.append(b); err != nil {
				w.f.Close()
				return err
			}
			b.reset()
		}
	}
	err = w.append(b)
	return errors.Join(err, w.f.Sync(), w.close())
}
