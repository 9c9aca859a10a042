package export

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// A place is where an export grows: a directory beside what it will be, so that
// nothing has the name before it is whole.
type place struct {
	out string
	dir string
}

// newPlace refuses to write over a file.
func newPlace(out string) (*place, error) {
	if _, err := os.Lstat(out); err == nil {
		return nil, fmt.Errorf("%s: it exists already; name another output or remove it", out)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create %s: %w", out, cause(err))
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), "."+filepath.Base(out)+"-")
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", out, cause(err))
	}
	return &place{out, dir}, nil
}

func (p *place) create(name string) (*os.File, error) {
	path := filepath.Join(p.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// nameFile gives the file of that name in the place the place's own name.
func (p *place) nameFile(name string) error { return os.Rename(filepath.Join(p.dir, name), p.out) }

// nameAll gives the directory its name.
func (p *place) nameAll() error {
	err := os.Chmod(p.dir, 0o755)
	if err == nil {
		err = os.Rename(p.dir, p.out)
	}
	if err == nil {
		p.dir = ""
	}
	return err
}

// clear removes what is left without a name.
func (p *place) clear() {
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

// A File is an export of one file, whole after Close.
type File struct {
	p *place
	f *os.File
	io.Writer
}

const fileName = "file"

// CreateFile begins a file; "-" is stdout.
func CreateFile(out string, stdout io.Writer) (*File, error) {
	if out == "-" {
		return &File{Writer: stdout}, nil
	}
	p, err := newPlace(out)
	if err != nil {
		return nil, err
	}
	f, err := p.create(fileName)
	if err != nil {
		p.clear()
		return nil, fmt.Errorf("create %s: %w", out, cause(err))
	}
	return &File{p, f, f}, nil
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
