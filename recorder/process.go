package recorder

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// A process is one image of one process: exec keeps the pid and the start time,
// a fork's child the image, and a pid alone is reused (F1 in the cases).
type processKey struct {
	pid   int32
	start uint64
	image uint64
}

// process is drain's until its row is sent; fold has its own part in tables.
type process struct {
	key    processKey
	row    format.Process
	pidfd  int // -1: its death is found by polling /proc
	lanes  []*lane
	bytes  uint64 // of its lanes
	births int
	seen   format.Time // when it was last known to be alive
	ended  bool        // it died, or its image was replaced
	found  format.Time // when that was found out
	status int32

	tables tables // fold's
}

// describe fills a process's row from /proc, as far as it can be trusted: a pid
// whose start time is another's by now says nothing about ours.
// It returns the process's place in a distributed job, where it has one.
func describe(row *format.Process) (format.Job, bool) {
	dir := "/proc/" + strconv.Itoa(int(row.PID))
	parent, start, ok := readStat(dir)
	if !ok || start != row.StartTime {
		return format.Job{}, false
	}
	row.Parent = parent
	if exe, err := os.Readlink(dir + "/exe"); err == nil {
		row.Executable = valid(exe)
	}
	row.Command = valid(quoteArguments(readSome(dir+"/cmdline", 64<<10)))
	environ := readSome(dir+"/environ", 1<<20)
	row.Rank = rankOf(environ)
	return jobOf(row, environ)
}

// running asks /proc whether a process still runs: not gone, not a zombie, and
// its pid not another's. For kernels without pidfd.
func running(key processKey) bool {
	_, start, ok := readStat("/proc/" + strconv.Itoa(int(key.pid)))
	return ok && start == key.start
}

// readStat returns fields 4 and 22 of /proc/PID/stat, of a process that is no
// zombie. The second field is the program's name in parentheses, which may hold
// anything, parentheses too.
func readStat(dir string) (parent int32, start uint64, ok bool) {
	b := readSome(dir+"/stat", 4096)
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0, 0, false
	}
	fields := strings.Fields(string(b[i+1:])) // from field 3 on
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, 0, false
	}
	p, err1 := strconv.ParseInt(fields[1], 10, 32)
	s, err2 := strconv.ParseUint(fields[19], 10, 64)
	return int32(p), s, err1 == nil && err2 == nil
}

// readSome reads at most n bytes of a file, and nothing of one it cannot read:
// another user's, or a process that has gone.
func readSome(path string, n int) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, n)
	got := 0
	for got < n {
		k, err := f.Read(b[got:])
		got += k
		if err != nil || k == 0 {
			break
		}
	}
	return b[:got]
}

// quoteArguments joins a cmdline as a shell would need it typed. A process that
// is ending has none, which is not one empty argument.
func quoteArguments(cmdline []byte) string {
	var s strings.Builder
	if len(cmdline) == 0 {
		return ""
	}
	for i, a := range bytes.Split(bytes.TrimSuffix(cmdline, []byte{0}), []byte{0}) {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(quoteArgument(string(a)))
	}
	return s.String()
}

func quoteArgument(a string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("%+,-./:=@_", c) || c > 127
	}
	if a != "" && strings.IndexFunc(a, func(c rune) bool { return !plain(c) }) < 0 {
		return a
	}
	return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
}

// rankVariables are where launchers of distributed jobs say a process's rank, the
// nearest to the process first: torchrun below mpirun below srun sets all of them,
// and what is above may have one process for all that is below.
var rankVariables = []string{"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}

// What else launchers say, in the same order.
var (
	localRankVariables = []string{"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}
	worldSizeVariables = []string{"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"}
	jobVariables       = []string{"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"} // a cluster's own first
)

// mostJobs bounds what trace.json says of processes.
const mostJobs = 1024

// Rank is the rank that a launcher of distributed jobs gave a process with this
// environment, Unknown where none did: torchrun, Open MPI, MPICH and its kin, Slurm.
func Rank(lookup func(string) (string, bool)) int32 { return ordinalOf(lookup, rankVariables) }

// ordinalOf is the first of the variables that is a number from 0 up.
func ordinalOf(lookup func(string) (string, bool), names []string) int32 {
	for _, name := range names {
		value, ok := lookup(name)
		if n, err := strconv.ParseInt(value, 10, 32); ok && err == nil && n >= 0 {
			return int32(n)
		}
	}
	return format.Unknown
}

// rankOf is Rank of an environment as /proc shows it.
func rankOf(environ []byte) int32 { return Rank(variables(environ)) }

// jobOf is what an environment says of a process's place in a job besides its
// rank. Slurm names the job of every process on a node, also of those that are
// none of its tasks: without a rank there is no place.
func jobOf(p *format.Process, environ []byte) (format.Job, bool) {
	if p.Rank < 0 {
		return format.Job{}, false
	}
	lookup := variables(environ)
	j := format.Job{PID: p.PID, StartTime: p.StartTime, LocalRank: ordinalOf(lookup, localRankVariables), WorldSize: ordinalOf(lookup, worldSizeVariables)}
	for _, name := range jobVariables {
		if value, ok := lookup(name); ok && value != "" && value != "none" { // torchrun's word for a run without one
			j.ID = valid(value[:min(len(value), 256)])
			break
		}
	}
	return j, j.LocalRank >= 0 || j.WorldSize >= 0 || j.ID != ""
}

// variables looks up a name in an environment as /proc shows it.
func variables(environ []byte) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, v := range bytes.Split(environ, []byte{0}) {
			if n, value, ok := bytes.Cut(v, []byte("=")); ok && string(n) == name {
				return string(value), true
			}
		}
		return "", false
	}
}

// valid makes a text fit for a column of texts: UTF-8, whatever the program said.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// pythonVersion reads a hello's 0x030b0700 as 3.11.7.
func pythonVersion(v uint32) string {
	if v == 0 {
		return ""
	}
	return strconv.Itoa(int(v>>24)) + "." + strconv.Itoa(int(v>>16&0xff)) + "." + strconv.Itoa(int(v>>8&0xff))
}
