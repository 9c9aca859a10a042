package nvml

import (
	"strings"
	"testing"
)

// Three whole GPUs, and three of which the middle one is split in two.
var (
	three = []Device{
		{NVML: 0, UUID: "GPU-aaaa1111-0", GPU: "GPU-aaaa1111-0", Name: "H200"},
		{NVML: 1, UUID: "GPU-aaaa2222-0", GPU: "GPU-aaaa2222-0", Name: "H200"},
		{NVML: 2, UUID: "GPU-bbbb3333-0", GPU: "GPU-bbbb3333-0", Name: "H200"},
	}
	split = []Device{
		{NVML: 0, UUID: "GPU-aaaa1111-0", GPU: "GPU-aaaa1111-0", Name: "H200"},
		{NVML: 1, UUID: "MIG-cccc0001-0", GPU: "GPU-aaaa2222-0", Name: "H200 MIG 3g", MIG: true, GI: 1, CI: 0},
		{NVML: 1, UUID: "MIG-cccc0002-0", GPU: "GPU-aaaa2222-0", Name: "H200 MIG 3g", MIG: true, GI: 2, CI: 0},
		{NVML: 2, UUID: "GPU-bbbb3333-0", GPU: "GPU-bbbb3333-0", Name: "H200"},
	}
	models = []Device{
		{NVML: 0, UUID: "GPU-aaaa1111-0", GPU: "GPU-aaaa1111-0", Name: "T4"},
		{NVML: 1, UUID: "GPU-aaaa2222-0", GPU: "GPU-aaaa2222-0", Name: "H200"},
	}
)

const unset = "(unset)"

// Case C2 of the list of other tools' faults, and its siblings.
func TestVisible(t *testing.T) {
	for _, tc := range []struct {
		name    string
		devices []Device
		value   string
		want    string // the UUIDs' first eight characters after the prefix
	}{
		{"unset is all", three, unset, "aaaa1111 aaaa2222 bbbb3333"},
		{"empty is none", three, "", ""},
		{"one", three, "1", "aaaa2222"},
		{"order is the program's", three, "2,0", "bbbb3333 aaaa1111"},
		{"list ends at a negative", three, "0,-1,1", "aaaa1111"},
		{"negative first is none", three, "-1", ""},
		{"list ends beyond the last", three, "1,3,0", "aaaa2222"},
		{"first beyond the last is none", three, "9,0", ""},
		{"list ends at an empty entry", three, "0,,1", "aaaa1111"},
		{"trailing comma", three, "0,1,", "aaaa1111 aaaa2222"},
		{"blanks", three, " 0, 2", "aaaa1111 bbbb3333"},
		{"letters after the number", three, "1x,2gpu", "aaaa2222 bbbb3333"},
		{"a word ends it", three, "0,none", "aaaa1111"},
		{"NoDevFiles", three, "NoDevFiles", ""},
		{"all is a word", three, "all", ""},
		{"twice is none", three, "0,1,0", ""},
		{"twice after the end counts once", three, "0,-1,0", "aaaa1111"},
		{"too large for an int", three, "99999999999999999999", ""},
		{"uuid", three, "GPU-bbbb3333-0", "bbbb3333"},
		{"uuids", three, "GPU-bbbb3333-0,GPU-aaaa1111-0", "bbbb3333 aaaa1111"},
		{"the beginning of a uuid", three, "GPU-b", "bbbb3333"},
		{"a beginning that two share", three, "GPU-aaaa", ""},
		{"one uuid two ways is twice", three, "GPU-bbbb3333-0,GPU-b", ""},
		{"unknown uuid ends it", three, "GPU-aaaa1111-0,GPU-dead,GPU-bbbb3333-0", "aaaa1111"},
		{"number after uuid ends it", three, "GPU-aaaa1111-0,1", "aaaa1111"},
		{"uuid after number ends it", three, "0,GPU-bbbb3333-0", "aaaa1111"},
		{"MIG uuid without MIG", three, "MIG-cccc0001-0", ""},
		{"instance", split, "MIG-cccc0002-0", "cccc0002"},
		{"only one instance is used", split, "MIG-cccc0002-0,MIG-cccc0001-0", "cccc0002"},
		{"older name of an instance", split, "MIG-GPU-aaaa2222-0/2/0", "cccc0002"},
		{"older name of no instance", split, "MIG-GPU-aaaa2222-0/3/0", ""},
		{"older name cut short", split, "MIG-GPU-aaaa2222-0/2", ""},
		{"split GPU by its uuid", split, "GPU-aaaa2222-0", "cccc0001"},
		{"split GPU by number", split, "1", "cccc0001"},
		{"GPU behind a split one", split, "2", "bbbb3333"},
		{"unset with a whole GPU first", split, unset, "aaaa1111"},
		{"several models, by uuid", models, "GPU-aaaa2222-0", "aaaa2222"},
		{"no device", nil, "0", ""},
		{"no device, unset", nil, unset, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := visible(tc.devices, tc.value, tc.value != unset, "")
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, d := range got {
				ids = append(ids, strings.Split(d.UUID, "-")[1])
			}
			if s := strings.Join(ids, " "); s != tc.want {
				t.Errorf("CUDA_VISIBLE_DEVICES=%q leaves %q, want %q", tc.value, s, tc.want)
			}
		})
	}
}

// CUDA's default order is fastest first, which nobody but CUDA knows.
func TestVisibleOrder(t *testing.T) {
	if got, err := visible(models, "1,0", true, ""); err == nil {
		t.Errorf("numbers among several models were guessed: %v", got)
	} else if !strings.Contains(err.Error(), "CUDA_DEVICE_ORDER=PCI_BUS_ID") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	got, err := visible(models, "1,0", true, "PCI_BUS_ID")
	if err != nil || len(got) != 2 || got[0].NVML != 1 || got[1].NVML != 0 {
		t.Errorf("with CUDA_DEVICE_ORDER=PCI_BUS_ID: %v, %v", got, err)
	}
}
