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
	m.http = &http.Server{
		Handler:        mux,
		ReadTimeout:    longestCall,
		WriteTimeout:   longestCall,
		IdleTimeout:    longestIdle,
		MaxHeaderBytes: mostHeader,
		ErrorLog:       log.New(io.Discard, "", 0), // stderr is the command's
	}
	go m.http.Serve(&bounded{Listener: l, free: make(chan struct{}, mostCalls)})
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

// bounded is a listener with so many connections open at a time. Who comes
// beyond that waits in the kernel's queue.
type bounded struct {
	net.Listener
	free chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	b.free <- struct{}{}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &held{Conn: c, free: b.free}, nil
}

// held gives its place back when it is closed.
type held struct {
	net.Conn
	free chan struct{}
	once sync.Once
}

func (h *held) Close() error {
	err := h.Conn.Close()
	h.once.Do(func() { <-h.free })
	return err
}
