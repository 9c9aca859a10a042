package devices

import (
	"bufio"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gpurec/gpurec/analyze"
)

// WriteText writes r for people: who was freest when, then each device's
// curves. Bytes are exact.
func (r *Report) WriteText(w io.Writer) error {
	b := bufio.NewWriter(w)
	for i, t := range r.Traces {
		if i > 0 {
			fmt.Fprintln(b)
		}
		if len(r.Traces) > 1 {
			fmt.Fprintf(b, "%s\n\n", analyze.Line(t.Path))
		}
		t.writeText(b)
	}
	return b.Flush()
}

func (r *Trace) writeText(b io.Writer) {
	if len(r.Runs) > 0 {
		what := "as NVML sampled them"
		if r.Source == "acquired" {
			what = "total less acquired: there are no samples"
		}
		fmt.Fprintf(b, "freest device over time (free bytes, %s)\n\n", what)
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "from\tto\tdevice\tfree at start\tmin\tmax\t\n")
		for _, u := range r.Runs {
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t\n", analyze.Seconds(u.From), analyze.Seconds(u.To), u.Device, u.At, u.Min, u.Max)
		}
		t.Flush()
		fmt.Fprintln(b)
	}
	for i := range r.Devices {
		if i > 0 {
			fmt.Fprintln(b)
		}
		r.Devices[i].writeText(b)
	}
}

func (d *DeviceRow) writeText(w io.Writer) {
	fmt.Fprintf(w, "device %d", d.Device)
	for _, s := range []string{d.Name, d.UUID} {
		if s != "" {
			fmt.Fprintf(w, "  %s", analyze.Short(s))
		}
	}
	if d.NVML != nil {
		fmt.Fprintf(w, "  nvml %d", *d.NVML)
	}
	if d.Total >= 0 {
		fmt.Fprintf(w, "  total %d", d.Total)
	} else {
		fmt.Fprint(w, "  total unknown")
	}
	fmt.Fprintln(w)
	if d.Samples == 0 {
		fmt.Fprintln(w, "no samples")
	} else {
		fmt.Fprintf(w, "%d sample%s, the last at %s%s\n", d.Samples, analyze.Plural(d.Samples), analyze.Seconds(*d.LastSample), d.apiText())
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "bytes\tmin\tmean\tmax\tmax at\t\n")
	sampled := "sampled"
	if d.Samples == 0 {
		sampled = "total less acquired"
	}
	for _, c := range []struct {
		name, how string
		c         *CurveRow
	}{{"used", sampled, d.Used}, {"free", sampled, d.Free}, {"reserved", sampled, d.Reserved}, {"acquired", d.How, d.Acquired}} {
		if c.c == nil {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t  unknown\n", c.name)
		} else {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t  %s\n", c.name, c.c.Min, c.c.Mean, c.c.Max, analyze.Seconds(c.c.MaxAt), c.how)
		}
	}
	t.Flush()
}

// apiText says which memory call the readings came from, since the first
// version hides reserved bytes in used.
func (d *DeviceRow) apiText() string {
	switch {
	case len(d.API) == 2:
		return ", NVML's memory calls v1 (used contains reserved) and v2"
	case len(d.API) == 1 && d.API[0] == 1:
		return ", NVML's memory call v1: used contains reserved"
	case len(d.API) == 1:
		return fmt.Sprintf(", NVML's memory call v%d", d.API[0])
	}
	return ""
}
