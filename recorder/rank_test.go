package recorder

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestRank reads environments as launchers leave them.
func TestRank(t *testing.T) {
	for _, row := range []struct {
		name, environ string
		want          int32
	}{
		{"none", "PATH=/bin HOME=/", format.Unknown},
		{"torchrun", "RANK=3 LOCAL_RANK=1 WORLD_SIZE=8 GROUP_RANK=1", 3},
		{"Slurm", "SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NTASKS=8", 5},
		{"Open MPI", "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=0", 2},
		{"MPICH", "PMI_RANK=6 PMI_SIZE=8", 6},
		{"MVAPICH", "MV2_COMM_WORLD_RANK=7", 7},
		{"PMIx", "PMIX_RANK=4 PMIX_NAMESPACE=x", 4},
		{"torchrun in Slurm's one task", "SLURM_PROCID=0 RANK=9", 9},
		{"mpirun in Slurm's one task", "SLURM_PROCID=0 OMPI_COMM_WORLD_RANK=1", 1},
		{"words", "RANK=none SLURM_PROCID=2", 2},
		{"negative", "RANK=-1", format.Unknown},
		{"too large", "RANK=99999999999", format.Unknown},
		{"empty", "RANK= ", format.Unknown},
		{"another's name", "MYRANK=1 RANK_=2", format.Unknown},
	} {
		if got := rankOf([]byte(strings.ReplaceAll(row.environ, " ", "\x00"))); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
}

func TestJob(t *testing.T) {
	for _, row := range []struct {
		name, environ string
		want          format.Job // but for whose it is
	}{
		{"torchrun", "RANK=3 LOCAL_RANK=1 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=none", format.Job{LocalRank: 1, WorldSize: 8}},
		{"torchrun in Slurm", "RANK=3 LOCAL_RANK=1 WORLD_SIZE=8 TORCHELASTIC_RUN_ID=x SLURM_JOB_ID=77 SLURM_LOCALID=0 SLURM_NTASKS=2", format.Job{LocalRank: 1, WorldSize: 8, ID: "77"}},
		{"Open MPI", "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_SIZE=4 PMIX_NAMESPACE=a@b", format.Job{LocalRank: 0, WorldSize: 4, ID: "a@b"}},
		{"MPICH", "PMI_RANK=6 PMI_SIZE=8", format.Job{LocalRank: -1, WorldSize: 8}},
		{"a rank alone", "RANK=6", format.Job{}},
		{"no rank", "LOCAL_RANK=1 WORLD_SIZE=8 SLURM_JOB_ID=77", format.Job{}},
		{"words", "RANK=1 LOCAL_RANK=one WORLD_SIZE=-8 SLURM_JOB_ID=77", format.Job{LocalRank: -1, WorldSize: -1, ID: "77"}},
	} {
		environ := []byte(strings.ReplaceAll(row.environ, " ", "\x00"))
		p := format.Process{PID: 7, StartTime: 9, Rank: rankOf(environ)}
		if row.want != (format.Job{}) {
			row.want.PID, row.want.StartTime = 7, 9
		}
		if got, ok := jobOf(&p, environ); got != row.want && ok || ok != (row.want != format.Job{}) {
			t.Errorf("%s: %+v %v, want %+v", row.name, got, ok, row.want)
		}
	}
}
