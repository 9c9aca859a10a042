package main

import (
	"fmt"
	"io"

	"github.com/gpurec/gpurec/recorder"
	"github.com/gpurec/gpurec/recorder/metrics"
)

const metricsUsage = "show used, peak and free bytes to Prometheus while it is recorded, at this port of 127.0.0.1 or at HOST:PORT; port 0 is any free one, and -v says which"

// An endpoint is where a recording is shown while it goes on; "" is nowhere.
type endpoint string

func (e *endpoint) Set(text string) error {
	if text == "" {
		*e = ""
		return nil
	}
	address, err := metrics.Address(text)
	if err == nil {
		*e = endpoint(address)
	}
	return err
}

func (e *endpoint) String() string { return string(*e) }
func (e *endpoint) Type() string   { return "port|host:port" }

// show serves a session until hide is called. A recording is worth more than its
// picture: what keeps it from being shown is said, and it goes on.
func (e *endpoint) show(s *recorder.Session, stderr io.Writer, say func(string)) (hide func()) {
	if *e == "" {
		return func() {}
	}
	m, err := metrics.Serve(s, string(*e))
	if err != nil {
		fmt.Fprintf(stderr, "gpurec: no metrics, the recording goes on: %s\n", printable(err.Error()))
		return func() {}
	}
	say("metrics at " + m.URL())
	return m.Close
}
