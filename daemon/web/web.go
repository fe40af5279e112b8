// Package web serves the page on which people read decisions: a list, one job's
// story with the picture of its memory, a report, and whether the daemon is
// well. It changes nothing, knows no script and no environment, and answers
// what it can answer in bounded time. Whoever reaches the address reads it:
// who that is, is a matter of the address.
package web

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gresize/gresize/daemon/decisionlog"
	"github.com/gresize/gresize/daemon/listen"
	"github.com/gresize/gresize/daemon/logview"
	"github.com/gresize/gresize/daemon/reader"
	"github.com/gresize/gresize/internal/printable"
)

// Limits of the page.
const (
	// rowsPerPage are listed at once.
	rowsPerPage = 50
	// maxConnections are open at once: for one more the oldest goes that asks nothing. maxRequests are in work; more are told to come again.
	maxConnections = 64
	maxRequests    = 16
	maxHeaderBytes = 16 << 10
	maxQueryBytes  = 2 << 10
	// pageTimeout is for everything but sums, which read every row of their time.
	pageTimeout = 10 * time.Second
	sumTimeout  = 30 * time.Second
	// writeTimeout leaves time to send the page that was made at the last moment.
	writeTimeout = sumTimeout + 10*time.Second
)

// Health is whether the daemon is well, and what it says of itself.
type Health struct {
	// Trouble says why it could not decide now; nil when it can.
	Trouble error
	Lines   []logview.StoryLine
}

// Draw draws from the record of a job's probe, which is found by the job's token; fs.ErrNotExist says that it is not kept.
type Draw func(ctx context.Context, token string, what reader.Draw) (*reader.Drawing, error)

// Config is everything that a Server needs.
type Config struct {
	// Log is for what is found at once, and Sums for what takes its time: the same file, opened twice, so that nobody waits for a report. The daemon's own
	// is neither of them: a page never stands in the way of a decision.
	Log, Sums *decisionlog.Log
	Draw      Draw
	// KeepsBundles says whether bundles of ended jobs are kept.
	KeepsBundles bool
	// Words are those with which the site tells its cards apart.
	Words  func() map[string]bool
	Health func(context.Context) Health
	// Hosts may stand in a request beside the names of this machine's loopback and Address.
	Hosts []string
	// Address is that of the listener.
	Address net.Addr
	Version string
	// Now is the clock; nil: that of the machine.
	Now    func() time.Time
	Logger *slog.Logger
}

// Server answers on one address.
type Server struct {
	config   Config
	hosts    map[string]bool
	names    logview.Names
	drawings drawings
	sums     summaries
	slots    chan struct{}
	handler  http.Handler
}

//go:embed pages
var files embed.FS

// New makes a server; it starts nothing.
func New(config Config) *Server {
	s := &Server{config: config, hosts: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}, slots: make(chan struct{}, maxRequests)}
	s.drawings.source = config.Draw
	if s.config.Now == nil {
		s.config.Now = time.Now
	}
	for _, name := range config.Hosts {
		s.hosts[strings.ToLower(name)] = true
	}
	if a, ok := config.Address.(*net.TCPAddr); ok && !a.IP.IsUnspecified() {
		s.hosts[a.IP.String()] = true
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", s.page(s.list))
	mux.Handle("GET /row/{id}", s.page(s.job))
	mux.Handle("GET /row/{id}/memory.svg", s.page(s.picture))
	mux.Handle("GET /report", s.page(s.report))
	mux.Handle("GET /health", s.page(s.health))
	mux.Handle("GET /style.css", s.page(s.asset("pages/style.css", "text/css; charset=utf-8")))
	mux.Handle("GET /icon.svg", s.page(s.asset("pages/icon.svg", "image/svg+xml")))
	mux.Handle("/", s.page(func(*http.Request) (answer, error) {
		return answer{}, fault{http.StatusNotFound, "There is no such page."}
	}))
	s.handler = mux
	return s
}

// Serve answers on a listener until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: writeTimeout, IdleTimeout: 30 * time.Second, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug), ConnContext: listen.WithConnection, DisableGeneralOptionsHandler: true}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listen.Guarded(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// contentPolicy lets a page load its own sheet and pictures, and send its form to itself; nothing else.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler: what holds for every page, before any is looked for.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case !s.known(r.Host):
		// A name that another site has bound to this address would make the reader's browser read the page for that site.
		plain(w, http.StatusMisdirectedRequest, fmt.Sprintf("This page is not asked for as %.100q: name it in web.hosts of gresize.toml.", printable.Clip(r.Host, 100)))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		plain(w, http.StatusMethodNotAllowed, "This page can be read and nothing else.")
	case r.ContentLength != 0:
		// A proxy that sees another end of the body than we do would take what follows for somebody else's request.
		h.Set("Connection", "close")
		plain(w, http.StatusBadRequest, "No question here has a body.")
	default:
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
			defer listen.Trust(r)()
			s.handler.ServeHTTP(w, r)
		default:
			h.Set("Retry-After", "2")
			plain(w, http.StatusServiceUnavailable, "Too many people read this at once. Try again.")
		}
	}
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// known says whether a Host header names this page.
func (s *Server) known(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	return s.hosts[strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))]
}

// answer is what a page is made of.
type answer struct {
	// template of the page, its title, and what fills it; or, where template is empty, body.
	template, title string
	data            any
	status          int
	body            []byte
	contentType     string
	// policy replaces the one of pages.
	policy string
	// cached: it is the same for as long as the daemon runs.
	cached   bool
	redirect string
}

// fault is a page that says what is wrong with the question.
type fault struct {
	status int
	text   string
}

func (f fault) Error() string { return f.text }

// page answers with what a function makes, in bounded time.
func (s *Server) page(make func(*http.Request) (answer, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, err := make(r)
		if err != nil {
			a = s.sorry(r, err)
		}
		if a.redirect != "" {
			w.Header().Set("Location", a.redirect)
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		if a.template != "" {
			a.contentType = "text/html; charset=utf-8"
			if a.body, err = s.render(a); err != nil {
				s.config.Logger.Error("page not made", "path", r.URL.Path, "error", err)
				plain(w, http.StatusInternalServerError, "This page could not be made; the log of gresized says why.")
				return
			}
		}
		h := w.Header()
		h.Set("Content-Type", a.contentType)
		h.Set("Content-Length", fmt.Sprint(len(a.body)))
		if a.policy != "" {
			h.Set("Content-Security-Policy", a.policy)
		}
		if a.cached {
			h.Set("Cache-Control", "private, max-age=3600")
		}
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		if r.Method != http.MethodHead {
			_, _ = w.Write(a.body) // who does not wait for it does not want it
		}
	})
}

// sorry is the page of an error. What a stranger may not know of it goes to the log alone.
func (s *Server) sorry(r *http.Request, err error) answer {
	var f fault
	switch {
	case errors.As(err, &f):
	case errors.Is(err, decisionlog.ErrNotFound):
		f = fault{http.StatusNotFound, "The decision log has no such job. Rows of ended jobs are deleted after log.keep_days."}
	case errors.Is(err, context.DeadlineExceeded):
		f = fault{http.StatusServiceUnavailable, "That took too long. Choose a shorter period, or use gresize log and gresize report, which wait."}
	case r.Context().Err() != nil:
		f = fault{http.StatusServiceUnavailable, "Nobody waited."}
	default:
		s.config.Logger.Error("page not answered", "path", printable.Clip(r.URL.Path, 100), "error", err)
		f = fault{http.StatusInternalServerError, "The decision log cannot be read; the log of gresized says why."}
	}
	return answer{template: "sorry.html", title: http.StatusText(f.status), data: f.text, status: f.status}
}

// asset is a file that goes with the pages.
func (s *Server) asset(name, contentType string) func(*http.Request) (answer, error) {
	return func(*http.Request) (answer, error) {
		body, err := files.ReadFile(name)
		return answer{body: body, contentType: contentType, cached: true}, err
	}
}

// onlyFields refuses a query that is too long, that is broken, or that names what this page does not know, each of which is somebody's mistake.
func onlyFields(r *http.Request, names ...string) (map[string]string, error) {
	bad := func(format string, args ...any) error {
		return fault{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
	if len(r.URL.RawQuery) > maxQueryBytes {
		return nil, bad("The question has more than %d bytes.", maxQueryBytes)
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad("The question cannot be read: %s.", printable.Clip(err.Error(), 200))
	}
	fields := map[string]string{}
	for name, all := range values {
		switch {
		case !slices.Contains(names, name):
			return nil, bad("There is no field %.40q here, only %s.", printable.Clip(name, 40), strings.Join(names, ", "))
		case len(all) != 1:
			return nil, bad("The field %s is given %d times.", name, len(all))
		}
		value := strings.TrimSpace(all[0])
		if value != printable.Clip(value, maxQueryBytes) {
			return nil, bad("The field %s has characters that cannot be shown.", name)
		}
		fields[name] = value
	}
	return fields, nil
}
