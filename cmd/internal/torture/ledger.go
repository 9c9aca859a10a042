package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpurec/gpurec/format"
)

// A ledger is the traced program's own account, as testdata/programs/ledger.c
// lays it down.
type ledger struct {
	pid      int32
	threads  []account
	children []int32 // pids of those whose call had returned
}

// An account is one thread's calls.
type account struct {
	tid    uint32
	done   []entry
	flight *entry // begun and not done
}

type entry struct {
	alloc      bool
	status     int32
	address    uint64
	size       int64
	begin, end format.Time
}

const (
	ledgerMagic = 0x3152474445474c50
	ledgerHead  = 64
	entrySize   = 40
)

// errEarly is a ledger whose program had not come to its first line.
var errEarly = errors.New("the ledger is empty")

// readLedger reads what a program left.
func readLedger(path string) (*ledger, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errEarly
	} else if err != nil {
		return nil, err
	}
	u64 := binary.LittleEndian.Uint64
	u32 := binary.LittleEndian.Uint32
	if len(b) < ledgerHead || u64(b) == 0 {
		return nil, errEarly
	}
	if u64(b) != ledgerMagic {
		return nil, fmt.Errorf("%s: not a ledger", path)
	}
	l := &ledger{pid: int32(u64(b[8:]))}
	threads, calls, places := int(u64(b[16:])), int(u64(b[24:])), int(u64(b[32:]))
	at := ledgerHead
	for range places {
		if u32(b[at+4:]) != 0 {
			l.children = append(l.children, int32(u32(b[at:])))
		}
		at += 8
	}
	for range threads {
		a := account{tid: uint32(u64(b[at:]))}
		begun, done := int(u64(b[at+8:])), int(u64(b[at+16:]))
		if begun > calls || done > begun || begun > done+1 {
			return nil, fmt.Errorf("%s: %d calls begun, %d done", path, begun, done)
		}
		at += ledgerHead
		for i := range begun {
			e := b[at+i*entrySize:]
			x := entry{alloc: u32(e) == 1, status: int32(u32(e[4:])), address: u64(e[8:]), size: int64(u64(e[16:])), begin: format.Time(u64(e[24:])), end: format.Time(u64(e[32:]))}
			if i == done {
				a.flight = &x
			} else {
				a.done = append(a.done, x)
			}
		}
		at += calls * entrySize
		l.threads = append(l.threads, a)
	}
	return l, nil
}

// awaitLedger waits until the program writes into its ledger, and returns its
// pid; 0 when it did not in time.
func awaitLedger(path string, d time.Duration) int {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f, err := os.Open(path); err == nil {
			var b [16]byte
			_, err := f.ReadAt(b[:], 0)
			f.Close()
			if err == nil && binary.LittleEndian.Uint64(b[:]) == ledgerMagic {
				return int(binary.LittleEndian.Uint64(b[8:]))
			}
		}
	}
	return 0
}
