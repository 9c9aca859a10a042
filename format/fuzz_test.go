package format

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FuzzPart reads any bytes as any table: never a panic, always a typed error
// or an end, and what is accepted is written back the same.
func FuzzPart(f *testing.F) {
	dir := record(f, randomEvents(30, 1), 10, WriterOptions{})
	for i, t := range tableOrder {
		b, err := os.ReadFile(filepath.Join(dir, "00000", t.file()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
		f.Add(uint8(i), b[:len(b)-len(t.shape().footer)])
		f.Add(uint8(i), b[:len(t.shape().head)+200])
	}
	f.Add(uint8(6), []byte("ARROW1\x00\x00"))
	enc, err := newEncoder()
	if err != nil {
		f.Fatal(err)
	}
	defer enc.Close()
	f.Fuzz(func(t *testing.T, which uint8, content []byte) {
		tab := tableOrder[int(which)%len(tableOrder)]
		dir := t.TempDir()
		path := filepath.Join(dir, tab.file())
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := openTable(path, tab)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		again := filepath.Join(dir, "again.arrow")
		w, err := createTable(osDisk{}, again, tab, enc)
		if err != nil {
			t.Fatal(err)
		}
		var all []*batch
		for {
			b, err := r.next()
			if err != nil {
				var c *CorruptError
				if !errors.Is(err, ErrTruncated) && !errors.As(err, &c) && err.Error() != "EOF" {
					t.Fatalf("an error of no type of ours: %v", err)
				}
				if _, err2 := r.next(); err2 != err {
					t.Fatalf("after %v came %v", err, err2)
				}
				break
			}
			if err := w.append(b); err != nil {
				t.Fatal(err)
			}
			c := newBatch(tab)
			c.addBatch(b, 0, b.rows)
			all = append(all, c)
			if len(all) > 64 { // a bomb of equal batches: enough is seen
				break
			}
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		r2, err := openTable(again, tab)
		if err != nil {
			t.Fatal(err)
		}
		defer r2.close()
		for i, want := range all {
			b, err := r2.next()
			if err != nil {
				t.Fatalf("batch %d was accepted and written, and is not: %v", i, err)
			}
			if b.rows != want.rows || !slices.EqualFunc(b.cols, want.cols, func(a, b colBuf) bool { return bytes.Equal(a.data, b.data) && bytes.Equal(a.offs, b.offs) }) {
				t.Fatalf("batch %d came back as another", i)
			}
		}
	})
}

// FuzzText reads any text: never a panic, and what is accepted becomes a trace
// whose text is accepted and becomes the same.
func FuzzText(f *testing.F) {
	f.Add(twin)
	f.Add("gpurec 1\nprocess 1\n1 Mark name=\"x\"\npart 3\nsample 1 used=3\n")
	f.Add("gpurec 1\nmeta start=2026-01-01T00:00:00Z ending=growing\nstack 1 1 1\nframe 1 python \"\" 0 \"\"\n5 Alloc stack=1 flags=echo|0x100\n")
	f.Add("gpurec 1\nname 1 a # c\n1 Live device=-1 size=0x7f\n")
	f.Add("gpurec 1\napi 4607 \"cuMemNew\"\n1 Alloc api=cuMemNew layer=driver address=1 size=2\n2 Free api=\"api 4606\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		tr, err := fromText(t, text)
		if err != nil {
			return
		}
		first := toText(t, tr)
		tr, err = fromText(t, first)
		if err != nil {
			t.Fatalf("its own text is refused: %v\n%s", err, first)
		}
		if second := toText(t, tr); second != first {
			t.Fatalf("its own text becomes another\n%s\n%s", first, second)
		}
	})
}

// FuzzMeta reads any bytes as trace.json: never a panic, an error of our types,
// and what is accepted is written back the same.
func FuzzMeta(f *testing.F) {
	b, err := os.ReadFile(filepath.Join(record(f, randomEvents(30, 1), 10, WriterOptions{}), MetaFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"start":"2026-11-30T12:00:00.123456789+09:30","status":-1,"parts":9223372036854775807,"apis":{"4353":"cuMemNew","70000":"x","a":""}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, MetaFile)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		var written [2][]byte
		for i := range written {
			m, err := readMeta(path)
			if err != nil {
				var none *NotTraceError
				var version *VersionError
				if i > 0 || !errors.As(err, &none) && !errors.As(err, &version) {
					t.Fatalf("time %d: %v", i, err)
				}
				return
			}
			if err := (&Writer{dir: dir, meta: m, disk: osDisk{}}).writeMeta(); err != nil {
				t.Fatalf("accepted, and cannot be written: %v", err)
			}
			if written[i], err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(written[0], written[1]) {
			t.Fatalf("written back as another:\n%s\n%s", written[0], written[1])
		}
	})
}

// FuzzRepair damages a trace that was never closed in two places and cuts one
// of its files: repair refuses it, or what it makes is closed and stays as it is.
func FuzzRepair(f *testing.F) {
	dir := f.TempDir()
	w, err := Create(filepath.Join(dir, "t"), Meta{Command: []string{"x"}, Monotonic: 1}, WriterOptions{BatchRows: 100})
	if err != nil {
		f.Fatal(err)
	}
	fill(f, w, 2, 300, 150)
	if err := w.Flush(); err != nil {
		f.Fatal(err)
	}
	w.part.closeFiles()
	files := map[string][]byte{}
	var names []string
	err = filepath.WalkDir(filepath.Join(dir, "t"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(filepath.Join(dir, "t"), path)
			names = append(names, rel)
			files[rel], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil || len(names) != 15 {
		f.Fatalf("%q, %v", names, err)
	}
	f.Add(uint8(7), uint32(1<<31), uint8(3), uint32(0), []byte{0xff})
	f.Add(uint8(11), uint32(5000), uint8(14), uint32(20), []byte("version"))
	f.Fuzz(func(t *testing.T, cut uint8, at uint32, damaged uint8, from uint32, bytes []byte) {
		dir := filepath.Join(t.TempDir(), "t")
		for i, name := range names {
			b := append([]byte{}, files[name]...)
			if i == int(damaged)%len(names) {
				copy(b[min(int(from), len(b)):], bytes)
			}
			if i == int(cut)%len(names) {
				b = b[:min(int(at), len(b))]
			}
			os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out := dir + "-repaired"
		if _, err := Repair(t.Context(), dir, out); err != nil {
			if _, err := os.Lstat(out); err == nil {
				t.Fatal("refused, and an output is left")
			}
			return
		}
		r, err := Repair(t.Context(), out, dir+"-again")
		if err != nil || r.Needed() {
			t.Fatalf("what was repaired needs it again: %v, %v", r, err)
		}
		tr, err := Open(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range tr.Parts() {
			if _, _, err := readEvents(p); err != nil {
				t.Fatal(err)
			}
		}
	})
}
