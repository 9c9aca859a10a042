package recorder_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
)

// A pool in Go calls the hook where CuPy's calls its own, and a scope measures
// a block of the program. The trace is for gpuanalyze.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	rec, err := recorder.Open(recorder.Options{
		Output: filepath.Join(dir, "example.gpurec"),
		Meta:   format.Meta{Tool: "example", Command: os.Args},
	})
	if err != nil {
		log.Fatal(err)
	}
	hook := rec.Hook()
	forward := rec.Scope("forward")

	// The pool is asked for 100,000,000 bytes, has no block that large, and takes
	// one from the driver.
	const device, size, memSize = 0, 100_000_000, 100_000_256
	hook.MallocPre(device, size, memSize)
	hook.AllocPre(device, memSize)
	ptr := uint64(0x7f00_0000_0000)
	hook.AllocPost(device, memSize, ptr)
	hook.MallocPost(device, size, memSize, ptr, 1)

	forward.Report("taken")

	hook.FreePre(device, memSize, ptr, 1)
	hook.FreePost(device, memSize, ptr, 1)

	forward.Exit()
	data, err := forward.Data()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(data.Used(), data.Peaked())

	summary, err := rec.Close()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(summary.Stats.Lost, "events lost")

	// Output:
	// △Used Peaked MB:     95      0 (forward: taken)
	// △Used Peaked MB:      0     95 (forward: exit)
	// 0 100000256
	// 0 events lost
}

// Do is the decorator: the scope of one call.
func ExampleRecorder_Do() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	rec, err := recorder.Open(recorder.Options{Output: filepath.Join(dir, "example.gpurec")})
	if err != nil {
		log.Fatal(err)
	}
	defer rec.Close()

	rec.Do("load", func() {
		rec.Hook().MallocPost(0, 3<<20, 3<<20, 0x1000, 1)
	})

	// Output:
	// △Used Peaked MB:      3      0 (load: exit)
}
