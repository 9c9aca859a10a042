package metrics

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/recorder"
)

// ContentType is of Prometheus' text format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// A metric is one name with its rows.
type metric struct {
	name string
	kind string // counter or gauge
	help string
	rows func(s *snapshot, put func(value string, labels ...label))
}

type label struct{ name, value string }

// metrics are all there are. Names follow Prometheus' conventions: base units,
// _total for what only grows. Sums of a device are rows of their own, because
// peaks cannot be added up.
var metrics = []metric{
	{"gpurec_used_bytes", "gauge", "Device memory that a process uses: handed out by its pool, or taken from the driver where it has none.",
		uses(func(u *use) int64 { return u.usedCurve().Now })},
	{"gpurec_used_peak_bytes", "gauge", "The most that gpurec_used_bytes has been since the process began, to the byte.",
		uses(func(u *use) int64 { return u.usedCurve().Peak })},
	{"gpurec_acquired_bytes", "gauge", "Device memory that a process has taken from the driver.",
		uses(func(u *use) int64 { return u.driver.Now })},
	{"gpurec_acquired_peak_bytes", "gauge", "The most that gpurec_acquired_bytes has been since the process began, to the byte.",
		uses(func(u *use) int64 { return u.driver.Peak })},
	{"gpurec_allocations_total", "counter", "Allocations of device memory, from the driver and from the pool.", layers(func(n, _ int64) int64 { return n })},
	{"gpurec_allocated_bytes_total", "counter", "Bytes of these allocations, nothing subtracted.", layers(func(_, bytes int64) int64 { return bytes })},

	{"gpurec_device_used_bytes", "gauge", "What all recorded processes use of a device.", devices(func(d *deviceState) int64 { return d.used.Now })},
	{"gpurec_device_used_peak_bytes", "gauge", "The most that gpurec_device_used_bytes has been.", devices(func(d *deviceState) int64 { return d.used.Peak })},
	{"gpurec_device_acquired_bytes", "gauge", "What all recorded processes have taken from a device's driver.", devices(func(d *deviceState) int64 { return d.Acquired.Now })},
	{"gpurec_device_acquired_peak_bytes", "gauge", "The most that gpurec_device_acquired_bytes has been.", devices(func(d *deviceState) int64 { return d.Acquired.Peak })},
	{"gpurec_device_nvml_total_bytes", "gauge", "The device's memory, by NVML.", readings(func(d *deviceState) int64 { return d.Reading.Total })},
	{"gpurec_device_nvml_used_bytes", "gauge", "Used on the device by everybody, by NVML.", readings(func(d *deviceState) int64 { return d.Reading.Used })},
	{"gpurec_device_nvml_used_peak_bytes", "gauge", "The most that NVML was seen to say is used.", readings(func(d *deviceState) int64 { return d.NVMLPeak })},
	{"gpurec_device_nvml_free_bytes", "gauge", "Free on the device, by NVML.", readings(func(d *deviceState) int64 { return d.Reading.Free })},
	{"gpurec_device_nvml_reserved_bytes", "gauge", "Reserved by the driver, by NVML; used, free and this make the total.", readings(func(d *deviceState) int64 { return d.Reading.Reserved })},
	{"gpurec_device_info", "gauge", "Always 1; the device's name.", func(s *snapshot, put func(string, ...label)) {
		for i := range s.devices {
			put("1", append(s.device(i), label{"name", s.devices[i].Name})...)
		}
	}},

	{"gpurec_process_live_allocations", "gauge", "Allocations that a process has not given back, at every layer.", processes(func(p *processState) int64 { return p.live })},
	{"gpurec_process_failed_allocations_total", "counter", "Requests for memory that failed, each attempt.", processes(func(p *processState) int64 { return p.failed })},
	{"gpurec_process_lost_events_total", "counter", "Events of a process that are missing from the trace.", processes(func(p *processState) int64 { return p.lost })},

	{"gpurec_out_of_memory_total", "counter", "Requests for device memory that failed, each once however often it was tried: the program was told.",
		one(func(s *snapshot) int64 { return s.told })},
	{"gpurec_out_of_memory_retried_total", "counter", "Requests for device memory that were refused, and that a retry then got.",
		one(func(s *snapshot) int64 { return s.retried })},
	{"gpurec_out_of_memory_undecided", "gauge", "Requests for device memory that were refused, and for which the program may still try again.",
		one(func(s *snapshot) int64 { return s.undecided })},
	{"gpurec_processes", "gauge", "Recorded processes that run.", one(func(s *snapshot) int64 { return int64(s.running) })},
	{"gpurec_events_total", "counter", "Events in the trace.", one(func(s *snapshot) int64 { return int64(s.stats.Events) })},
	{"gpurec_lost_events_total", "counter", "Events missing from the trace: above 0 it is partial.", one(func(s *snapshot) int64 { return int64(s.stats.Lost) })},
	{"gpurec_closed_lanes_total", "counter", "Threads whose buffer made no sense and is not read any more: above 0 the trace is partial.",
		one(func(s *snapshot) int64 { return int64(s.stats.ClosedLanes) })},
	{"gpurec_left_out_series", "gauge", "Devices, processes and pairs of them that are not shown, because there are too many.", one(func(s *snapshot) int64 { return int64(s.left) })},
	{"gpurec_recording", "gauge", "1 while it is recorded, 0 once writing has failed or the recording has ended.", func(s *snapshot, put func(string, ...label)) {
		if s.recording {
			put("1")
		} else {
			put("0")
		}
	}},

	// The recorder's own cost, by the names that every exporter has for it.
	{"process_cpu_seconds_total", "counter", "Processor time of the recorder itself.", func(_ *snapshot, put func(string, ...label)) {
		put(strconv.FormatFloat(float64(recorder.CPUTime())/1e9, 'f', -1, 64))
	}},
	{"process_resident_memory_bytes", "gauge", "Memory of the recorder itself.", func(_ *snapshot, put func(string, ...label)) {
		if n, ok := resident(); ok {
			put(strconv.FormatInt(n, 10))
		}
	}},
}

// uses are rows by device and process.
func uses(value func(*use) int64) func(*snapshot, func(string, ...label)) {
	return func(s *snapshot, put func(string, ...label)) {
		for i := range s.uses {
			put(strconv.FormatInt(value(&s.uses[i]), 10), s.use(i)...)
		}
	}
}

// layers are rows by device, process and layer.
func layers(value func(n, bytes int64) int64) func(*snapshot, func(string, ...label)) {
	return func(s *snapshot, put func(string, ...label)) {
		for i := range s.uses {
			u := &s.uses[i]
			put(strconv.FormatInt(value(u.driver.Count, u.driver.Total), 10), append(s.use(i), label{"layer", format.LayerDriver.String()})...)
			put(strconv.FormatInt(value(u.pool.Count, u.pool.Total), 10), append(s.use(i), label{"layer", format.LayerPool.String()})...)
		}
	}
}

func devices(value func(*deviceState) int64) func(*snapshot, func(string, ...label)) {
	return func(s *snapshot, put func(string, ...label)) {
		for i := range s.devices {
			put(strconv.FormatInt(value(&s.devices[i]), 10), s.device(i)...)
		}
	}
}

// readings are rows of the devices that NVML has said something of, and only of
// what it said.
func readings(value func(*deviceState) int64) func(*snapshot, func(string, ...label)) {
	return func(s *snapshot, put func(string, ...label)) {
		for i := range s.devices {
			if n := value(&s.devices[i]); s.devices[i].Sampled && n != format.Unknown {
				put(strconv.FormatInt(n, 10), s.device(i)...)
			}
		}
	}
}

func processes(value func(*processState) int64) func(*snapshot, func(string, ...label)) {
	return func(s *snapshot, put func(string, ...label)) {
		for i := range s.processes {
			put(strconv.FormatInt(value(&s.processes[i]), 10), s.process(i)...)
		}
	}
}

// one is a row of the whole recording.
func one(value func(*snapshot) int64) func(*snapshot, func(string, ...label)) {
	return func(s *snapshot, put func(string, ...label)) {
		if s.recording {
			put(strconv.FormatInt(value(s), 10))
		}
	}
}

func (s *snapshot) device(i int) []label {
	d := &s.devices[i]
	return []label{{"device", strconv.Itoa(int(d.DeviceRow.ID))}, {"uuid", d.UUID}}
}

// process is told from others by its pid, as gpuanalyze --process has it: of
// those that run only one has it.
func (s *snapshot) process(i int) []label {
	row := &s.processes[i].row
	l := []label{{"process", strconv.Itoa(int(row.PID))}, {"rank", ""}}
	if row.Rank != format.Unknown {
		l[1].value = strconv.Itoa(int(row.Rank))
	}
	return l
}

func (s *snapshot) use(i int) []label {
	return append(s.device(s.uses[i].device), s.process(s.uses[i].process)...)
}

// text is what is scraped. A metric without rows is not mentioned.
func (s *snapshot) text() []byte {
	var b bytes.Buffer
	for i := range metrics {
		m, said := &metrics[i], false
		m.rows(s, func(value string, labels ...label) {
			if !said {
				said = true
				b.WriteString("# HELP " + m.name + " " + m.help + "\n# TYPE " + m.name + " " + m.kind + "\n")
			}
			b.WriteString(m.name)
			for i, l := range labels {
				if i == 0 {
					b.WriteByte('{')
				} else {
					b.WriteByte(',')
				}
				b.WriteString(l.name + `="` + quoted.Replace(strings.ToValidUTF8(l.value, "\uFFFD")) + `"`)
			}
			if len(labels) > 0 {
				b.WriteByte('}')
			}
			b.WriteString(" " + value + "\n")
		})
	}
	return b.Bytes()
}

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// resident is this process's memory.
func resident() (int64, bool) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}
