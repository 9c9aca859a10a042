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
