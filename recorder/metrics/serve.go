package metrics

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gpurec/gpurec/recorder"
)

// Bounds for whoever asks. Prometheus comes every few seconds, over one
// connection, and gives up after ten.
const (
	leastBetween = 100 * time.Millisecond // of two looks: who comes sooner gets the one before
	longestLook  = 2 * time.Second        // the fold may wait for a disk
	longestCall  = 5 * time.Second        // to send a request, and to take the answer
	longestIdle  = 2 * time.Minute        // of a connection
	longestHold  = 3 * time.Second        // of a place by one request, where others wait
	mostCalls    = 32                     // connections at a time
	mostHeader   = 16 << 10               // bytes
)

// Address makes of a port, or of a host and a port, an address to listen at. No
// host is this machine alone.
func Address(text string) (string, error) {
	host, port := "", text
	if _, err := strconv.Atoi(text); err != nil {
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", fmt.Errorf("%q is neither a port nor HOST:PORT", text)
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q: want a port from 0 to 65535", text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// A Server answers GET /metrics.
type Server struct {
	session *recorder.Session
	http    *http.Server
	address net.Addr

	mu   sync.Mutex // held while the fold is asked: one at a time
	made time.Time
	text []byte
}

// Serve shows a session at an address that Address made, until Close. Port 0 is
// any that is free.
func Serve(s *recorder.Session, address string) (*Server, error) {
	return serve(s, address, longestHold)
}

func serve(s *recorder.Session, address string, hold time.Duration) (*Server, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	m := &Server{session: s, address: l.Addr()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", m.answer)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "gpurec: /metrics is for Prometheus\n")
	})
	places := newBounded(l, hold)
	m.http = &http.Server{
		ConnState:      places.changed,
		Handler:        mux,
		ReadTimeout:    longestCall,
		WriteTimeout:   longestCall,
		IdleTimeout:    longestIdle,
		MaxHeaderBytes: mostHeader,
		ErrorLog:       log.New(io.Discard, "", 0), // stderr is the command's
	}
	go m.http.Serve(places)
	return m, nil
}

// URL is where the text is.
func (m *Server) URL() string { return "http://" + m.address.String() + "/metrics" }

// Close ends it at once, whoever is asking.
func (m *Server) Close() { m.http.Close() }

func (m *Server) answer(w http.ResponseWriter, r *http.Request) {
	text, err := m.look(r.Context())
	if err != nil {
		http.Error(w, "gpurec: the recorder is behind, perhaps on a slow disk; ask again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Write(text)
}

// look is the text, at most leastBetween old.
func (m *Server) look(ctx context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.text != nil && time.Since(m.made) < leastBetween {
		return m.text, nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	made := time.Now()
	s, err := take(ctx, m.session)
	if err != nil {
		return nil, err
	}
	m.text, m.made = s.text(), made
	return m.text, nil
}

// bounded is a listener with so many connections open at a time. Who comes beyond
// that gets the place of the one that has waited longest for its next request, or
// of one whose request has been on the way for hold: so that nobody keeps others
// out, neither by being slow nor by staying.
type bounded struct {
	net.Listener
	hold   time.Duration
	freed  chan struct{} // a place is free, perhaps
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	open map[*held]time.Time // until when its place is its own
}

func newBounded(l net.Listener, hold time.Duration) *bounded {
	return &bounded{Listener: l, hold: hold, freed: make(chan struct{}, 1), closed: make(chan struct{}), open: map[*held]time.Time{}}
}

func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	h := &held{Conn: c, of: b}
	for {
		wait, worst := b.place(h)
		if worst == nil {
			return h, nil
		}
		if wait <= 0 {
			worst.Close()
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-b.freed:
			t.Stop()
		case <-b.closed:
			t.Stop()
			c.Close()
			return nil, net.ErrClosed
		}
	}
}

// place gives h a place, or says who is the next to lose one, and how soon.
func (b *bounded) place(h *held) (wait time.Duration, worst *held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) < mostCalls {
		b.open[h] = time.Now().Add(b.hold)
		return 0, nil
	}
	for o, until := range b.open {
		if worst == nil || until.Before(b.open[worst]) {
			worst = o
		}
	}
	return time.Until(b.open[worst]), worst
}

// changed is told by the server of each connection.
func (b *bounded) changed(c net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h, ok := c.(*held)
	if _, there := b.open[h]; !ok || !there {
		return
	}
	switch state {
	case http.StateActive:
		b.open[h] = time.Now().Add(b.hold)
	case http.StateIdle:
		b.open[h] = time.Now()
		b.tell()
	}
}

// tell wakes who waits for a place.
func (b *bounded) tell() {
	select {
	case b.freed <- struct{}{}:
	default:
	}
}

func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// held gives its place back when it is closed.
type held struct {
	net.Conn
	of *bounded
}

func (h *held) Close() error {
	err := h.Conn.Close()
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	delete(h.of.open, h)
	h.of.tell()
	return err
}
