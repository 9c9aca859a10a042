package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// A place is where an export grows: a directory beside what it will be, so that
// nothing has the name before it is whole. It ends with its context, whoever
// writes there then and however long that takes: an interrupt leaves nothing.
type place struct {
	out  string
	ctx  context.Context
	stop func() bool // it no longer ends with ctx

	mu  sync.Mutex // held while it is named or removed
	dir string     // "" after that
}

// newPlace refuses to write over a file.
func newPlace(ctx context.Context, out string) (*place, error) {
	if _, err := os.Lstat(out); err == nil {
		return nil, fmt.Errorf("%s: it exists already; name another output or remove it", out)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create %s: %w", out, cause(err))
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), "."+filepath.Base(out)+"-")
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", out, cause(err))
	}
	p := &place{out: out, ctx: ctx, dir: dir}
	p.stop = context.AfterFunc(ctx, p.remove)
	return p, nil
}

func (p *place) create(name string) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" {
		return nil, context.Cause(p.ctx)
	}
	path := filepath.Join(p.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// nameFile gives the file of that name in the place the place's own name.
func (p *place) nameFile(name string) error {
	return p.name(func(dir string) error { return os.Rename(filepath.Join(dir, name), p.out) })
}

// nameAll gives the directory its name.
func (p *place) nameAll() error {
	return p.name(func(dir string) error {
		err := os.Chmod(dir, 0o755)
		if err == nil {
			err = os.Rename(dir, p.out)
		}
		if err == nil {
			p.dir = ""
		}
		return err
	})
}

// name makes an export whole, unless it has ended before.
func (p *place) name(rename func(dir string) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir == "" || p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return rename(p.dir)
}

// clear removes what is left without a name.
func (p *place) clear() {
	p.stop()
	p.remove()
}

func (p *place) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dir != "" {
		os.RemoveAll(p.dir)
		p.dir = ""
	}
}

// cause is what an error says beside a path: until an export is whole it has a
// name that means nothing to anybody.
func cause(err error) error {
	var p *fs.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}

// A File is an export of one file, whole after Close. Writing to it ends with its
// context.
type File struct {
	ctx context.Context
	p   *place // nil: it is stdout
	f   *os.File
	w   io.Writer
}

const fileName = "file"

// CreateFile begins a file; "-" is stdout.
func CreateFile(ctx context.Context, out string, stdout io.Writer) (*File, error) {
	if out == "-" {
		return &File{ctx: ctx, w: stdout}, nil
	}
	p, err := newPlace(ctx, out)
	if err != nil {
		return nil, err
	}
	f, err := p.create(fileName)
	if err != nil {
		p.clear()
		return nil, fmt.Errorf("create %s: %w", out, cause(err))
	}
	return &File{ctx, p, f, f}, nil
}

func (f *File) Write(b []byte) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.w.Write(b)
}

// Close makes the file whole and gives it its name.
func (f *File) Close() error {
	if f.p == nil {
		return nil
	}
	err := f.f.Close()
	if err == nil {
		err = f.p.nameFile(fileName)
	}
	f.p.clear()
	if err != nil {
		return fmt.Errorf("write %s: %w", f.p.out, cause(err))
	}
	return nil
}

// Abort drops what is not whole. After Close it does nothing.
func (f *File) Abort() {
	if f.p != nil {
		f.f.Close()
		f.p.clear()
	}
}
