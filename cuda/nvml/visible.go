package nvml

import (
	"fmt"
	"strconv"
	"strings"
)

// Visible lists the devices that a program started with this value of
// CUDA_VISIBLE_DEVICES sees, in its own order: the first is its device 0. With
// set false (the variable is absent) it sees all of them.
//
// Integers count in CUDA's order, which is NVML's when CUDA_DEVICE_ORDER is
// PCI_BUS_ID or all devices are of one model; order is that variable's value.
// Otherwise only CUDA knows, and the result is an error: joining by a guess
// would put one GPU's bytes on another.
func (n *NVML) Visible(value string, set bool, order string) ([]Device, error) {
	return visible(n.devices, value, set, order)
}

// visible reads the value as CUDA does:
//
//  1. The list ends at the first entry that names no device: what is before it
//     counts. So "" is none, and "0,-1,1" is device 0.
//  2. An entry that begins with a digit or a sign is read as strtol reads it:
//     blanks before it and letters after the number are passed over.
//  3. GPU-… and MIG-… are UUIDs or the beginning of one that no other device
//     shares. MIG-GPU-UUID/GI/CI is the older way to name an instance.
//  4. A list is of the sort of its first entry; an entry of another sort ends it.
//  5. A device named twice leaves none at all.
//
// Where GPUs are split, an integer is the place among GPUs, and a split one
// gives its first instance; CUDA lets a process use one instance only.
func visible(devices []Device, value string, set bool, order string) ([]Device, error) {
	if !set {
		return oneInstance(append([]Device(nil), devices...)), nil
	}
	var out []Device
	seen := map[string]bool{}
	sort := ""
	for _, entry := range strings.Split(value, ",") {
		s := entrySort(entry)
		if sort == "" {
			sort = s
		}
		if s != sort {
			break
		}
		var d Device
		var ok bool
		switch s {
		case "number":
			gpus := wholes(devices)
			i := leadingInt(entry)
			if ok = i >= 0 && i < len(gpus); ok {
				if mixed(devices) && order != "PCI_BUS_ID" {
					return nil, fmt.Errorf("CUDA_VISIBLE_DEVICES=%q counts in CUDA's own order and the devices here are of several models: set CUDA_DEVICE_ORDER=PCI_BUS_ID or name them by UUID", value)
				}
				d = gpus[i]
			}
		case "GPU-", "MIG-":
			d, ok = byUUID(devices, strings.TrimSpace(entry))
		}
		if !ok {
			break
		}
		if seen[d.UUID] {
			return nil, nil
		}
		seen[d.UUID] = true
		out = append(out, d)
	}
	return oneInstance(out), nil
}

func entrySort(entry string) string {
	e := strings.TrimSpace(entry)
	switch {
	case strings.HasPrefix(e, "GPU-"):
		return "GPU-"
	case strings.HasPrefix(e, "MIG-"):
		return "MIG-"
	}
	return "number"
}

// leadingInt is the number s begins with, or -1.
func leadingInt(s string) int {
	s = strings.TrimLeft(s, " \t")
	end := 0
	for end < len(s) && (s[end] >= '0' && s[end] <= '9' || end == 0 && (s[end] == '+' || s[end] == '-')) {
		end++
	}
	n, err := strconv.Atoi(s[:end])
	if err != nil {
		return -1
	}
	return n
}

// wholes is one device for each GPU, a split one's first instance.
func wholes(devices []Device) []Device {
	var out []Device
	for _, d := range devices {
		if len(out) == 0 || out[len(out)-1].GPU != d.GPU {
			out = append(out, d)
		}
	}
	return out
}

func mixed(devices []Device) bool {
	for _, d := range devices {
		if !d.MIG && d.Name != devices[0].Name {
			return true
		}
	}
	return false
}

func byUUID(devices []Device, entry string) (Device, bool) {
	if rest, ok := strings.CutPrefix(entry, "MIG-GPU-"); ok {
		part := strings.Split(rest, "/")
		if len(part) != 3 {
			return Device{}, false
		}
		for _, d := range devices {
			if d.MIG && d.GPU == "GPU-"+part[0] && strconv.Itoa(d.GI) == part[1] && strconv.Itoa(d.CI) == part[2] {
				return d, true
			}
		}
		return Device{}, false
	}
	var found []Device
	for _, d := range devices {
		if strings.HasPrefix(d.UUID, entry) {
			found = append(found, d)
		}
		// A split GPU's own UUID stands for its first instance.
		if d.MIG && strings.HasPrefix(d.GPU, entry) && (len(found) == 0 || found[len(found)-1].GPU != d.GPU) {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		return Device{}, false
	}
	return found[0], true
}

// oneInstance cuts a list after its first device where that is an instance, and
// before the first instance where it is not.
func oneInstance(list []Device) []Device {
	for i, d := range list {
		if d.MIG {
			return list[:max(i, 1)]
		}
	}
	return list
}
