package symbols

import (
	"bytes"
	"math/rand"
	"os"
	"runtime"
	"strings"
	"testing"
)

// ourTable is that of the program that this test is.
func ourTable(t *testing.T) *goTable {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	img, err := openImage(exe)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(img.close)
	table, err := img.goTable(1<<30, 0)
	if err != nil || table == nil {
		t.Fatalf("%v, %v", table, err)
	}
	return table
}

// TestGoTable asks of many instructions what Go's runtime says of them: the
// innermost of inlined calls. (cmd/gpurec's TestGoStacks compares the others.)
func TestGoTable(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this test is no ELF file here")
	}
	table := ourTable(t)
	here, _, _, _ := runtime.Caller(0)
	if chain := table.place(uint64(here)); len(chain) == 0 || chain[0].function != runtime.FuncForPC(here).Name() {
		t.Skipf("the loader has moved this test: %v", chain)
	}
	compared, inlined := 0, 0
	table.steps = 1 << 40
	for i := 0; i < table.n; i += 31 {
		entry := table.text + uint64(table.number(table.funcs, 2*uint64(i)))
		for addr := entry; addr < entry+300; addr += 3 {
			f, _ := runtime.CallersFrames([]uintptr{uintptr(addr + 1)}).Next() // as of a caller
			got := table.place(addr)
			if f.Function == "" || f.Line == 0 || f.Entry == uintptr(addr+1) || len(got) == 0 {
				continue // between functions, or of none
			}
			inner, want := got[len(got)-1], place{f.Function, f.File, int32(f.Line)}
			if from, to := strings.Index(inner.function, "["), strings.LastIndex(inner.function, "]"); from >= 0 {
				inner.function = inner.function[:from] + "[...]" + inner.function[to+1:] // Go does so of arrays too
			}
			if inner != want {
				t.Fatalf("%#x: %v, Go says %v", addr, got, want)
			}
			compared++
			if len(got) > 1 {
				inlined++
			}
		}
	}
	if compared < 10_000 || inlined < 1000 {
		t.Errorf("%d addresses were compared, %d of inlined calls", compared, inlined)
	}
}

// A damaged table ends, and harms nobody.
func TestGoTableDamaged(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("this test is no ELF file here")
	}
	whole := ourTable(t)
	dice := rand.New(rand.NewSource(1))
	for range 300 {
		table := *whole
		for _, part := range []*[]byte{&table.names, &table.units, &table.files, &table.pcs, &table.funcs} {
			if dice.Intn(2) == 0 {
				continue
			}
			*part = bytes.Clone((*part)[:min(len(*part), 1<<16)>>dice.Intn(12)])
			for range dice.Intn(1000) {
				if len(*part) > 0 {
					(*part)[dice.Intn(len(*part))] = byte(dice.Int())
				}
			}
		}
		table.n = dice.Intn(2 * table.n)
		table.steps = 1 << 20
		for range 100 {
			table.place(table.text + uint64(dice.Intn(1<<20)))
		}
	}
}
