package ui

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	sdklog "go.temporal.io/sdk/log"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/table"
	"github.com/temporal-lockstep/lockstep/lockcore"
)

// Options configure the page.
type Options struct {
	inspect.Site
	// TemporalUI is the address of Temporal's web UI, for links; empty if it is not known.
	TemporalUI string
	// Token is required from clients. If it is empty, every client that can connect sees the page.
	Token string
	// HashNames shows the names of resources as hashes.
	HashNames bool
}

//go:embed static
var static embed.FS

//go:embed page.html
var pageHTML string

type server struct {
	Options
	pages     *template.Template
	list      cached[listing]
	deadlocks cached[[]lockcore.Deadlock]
	orphans   cached[[]inspect.Orphan]
	stuck     cached[[]*inspect.Node]
	findings  cached[[]inspect.Finding]
	policies  cached[inspect.Policies]
}

// Handler serves the page.
func Handler(o Options) http.Handler {
	o.Discreet = o.HashNames
	if o.Temporal.Service != nil {
		o.Temporal.Service = &answers{Frontend: o.Temporal.Service, known: map[execution]answer{}}
	}
	s := &server{Options: o}
	s.list = cached[listing]{read: s.readResources, minPause: listPause}
	s.deadlocks = cached[[]lockcore.Deadlock]{read: s.Deadlocks, minPause: listPause}
	s.orphans = cached[[]inspect.Orphan]{read: s.readOrphans, minPause: checkPause}
	s.stuck = cached[[]*inspect.Node]{read: s.readStuck, minPause: checkPause}
	s.findings = cached[[]inspect.Finding]{read: s.examine, minPause: checkPause}
	s.policies = cached[inspect.Policies]{read: s.Policies, minPause: checkPause}
	s.pages = template.Must(template.New("page").Funcs(s.functions()).Parse(pageHTML))
	mux := http.NewServeMux()
	files, _ := fs.Sub(static, "static") // it is embedded
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(files)))
	mux.HandleFunc("GET /{$}", s.showResources)
	mux.HandleFunc("GET /resource", s.showResource)
	mux.HandleFunc("GET /why", s.showWhy)
	mux.HandleFunc("GET /waits", s.showWaits)
	mux.HandleFunc("GET /orphans", s.showOrphans)
	mux.HandleFunc("GET /policies", s.showPolicies)
	mux.HandleFunc("GET /doctor", s.showDoctor)
	return s.guarded(mux)
}

// cookie is the name of the cookie with the token's hash. The token itself may contain characters that no cookie can.
const cookie = "lockstep-token"

// guarded refuses requests without the token. Without a token, it refuses hosts other than the loopback.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		switch {
		case s.Token == "":
			// Otherwise another site could read this page through a DNS name that it points here.
			if !isLoopback(r.Host) {
				http.Error(w, "lockstep ui is not served under this name", http.StatusMisdirectedRequest)
				return
			}
		case same(r.URL.Query().Get("token"), s.Token): // under any name, because other sites do not know it
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: hashOf(s.Token), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // it is served without TLS
		default:
			if c, err := r.Cookie(cookie); err != nil || !same(c.Value, hashOf(s.Token)) {
				http.Error(w, "lockstep ui needs its token: open the address that it printed", http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func same(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}

// maxResources is the number of listed resources. Others are found by name.
const maxResources = 200

func (s *server) showResources(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Resources", Page: "/", Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	l, at, err := s.list.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	all := slices.DeleteFunc(slices.Clone(l.all), func(r inspect.Resource) bool {
		if v.Query == "" {
			return r.Internal // it is found by its name
		}
		return !s.matches(&r, v.Query)
	})
	v.All, v.Resources, v.Types, v.At = len(all), all[:min(len(all), maxResources)], l.types, at
	if v.Query == "" {
		v.Alarms = s.alarmsIn(r.Context(), l.all)
	}
	s.write(w, http.StatusOK, v)
}

// matches reports whether the name of a resource, or of a party on it, contains the text.
func (s *server) matches(r *inspect.Resource, text string) bool {
	if strings.Contains(s.ResourceName(r.Name), text) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(r.Holders, r.Waiters), func(e inspect.Entry) bool { return strings.Contains(e.Party.Name, text) })
}

func (s *server) showResource(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	v := view{Title: name}
	l, at, err := s.list.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	if i := slices.IndexFunc(l.all, func(r inspect.Resource) bool { return s.ResourceName(r.Name) == name }); i >= 0 {
		v.Resource, v.Types = &l.all[i], l.types
		var above []*inspect.Node
		if v.Holders, above, err = s.HoldersIn(r.Context(), v.Resource, l.all); err != nil {
			v.Problem = err.Error() // the page shows everything else
		}
		v.Above = s.Groups(above)
	}
	policies, _, err := s.policies.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	switch p := policies.Pool(name); {
	case p != nil && v.Resource != nil:
		v.Pool = inspect.PoolOf(p, v.Resource)
	case p != nil:
		v.Pool = inspect.PoolOf(p, &inspect.Resource{})
	case v.Resource == nil:
		v.Problem = "No party holds this resource, and none waits for it."
	}
	v.Policy, v.At = policies.For(name), at
	s.write(w, http.StatusOK, v)
}

func (s *server) showWhy(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimSpace(r.URL.Query().Get("workflow"))
	v := view{Title: "Why does " + name + " wait?"}
	if name == "" {
		v.Title, v.Problem = "Why does it wait?", "Name a workflow: by its ID."
		s.write(w, http.StatusBadRequest, v)
		return
	}
	l, at, err := s.list.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	why, err := s.WhyIn(r.Context(), name, l.all)
	if err != nil {
		s.fail(w, v, err)
		return
	}
	v.At = at
	if !why.Known() {
		v.Problem = "No party of this name holds a lock or waits for one" + why.Temporal() + "."
		s.write(w, http.StatusNotFound, v)
		return
	}
	v.Why, v.Above = &why, s.Groups(why.Roots)
	s.write(w, http.StatusOK, v)
}

func (s *server) showWaits(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Who waits for whom", Page: "/waits"}
	l, at, err := s.list.get(r.Context())
	if err == nil {
		v.Forest, v.At = s.Groups(s.Forest(l.all)), at
		v.Deadlocks, _, err = s.deadlocks.get(r.Context())
	}
	if err != nil {
		s.fail(w, v, err)
		return
	}
	if len(v.Forest) == 0 {
		v.Problem = "No party waits."
	}
	s.write(w, http.StatusOK, v)
}

// errNoTemporal is the reason that is shown without the address of a Temporal server.
var errNoTemporal = errors.New("Temporal is not asked: lockstep ui runs with --no-temporal")

func (s *server) readOrphans(ctx context.Context) ([]inspect.Orphan, error) {
	if s.Temporal.Service == nil {
		return nil, errNoTemporal
	}
	return s.Orphans(ctx, sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
}

func (s *server) showOrphans(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Orphans", Page: "/orphans"}
	var err error
	if v.Orphans, v.At, err = s.orphans.get(r.Context()); err != nil {
		s.fail(w, v, err)
		return
	}
	s.write(w, http.StatusOK, v)
}

func (s *server) showPolicies(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Policies", Page: "/policies"}
	found, at, err := s.policies.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	v.Policies, v.At = &found, at
	s.write(w, http.StatusOK, v)
}

// examine makes the doctor's checks, without writing.
func (s *server) examine(ctx context.Context) ([]inspect.Finding, error) {
	d := inspect.Doctor{Site: s.Site, ReadOnly: true, Logger: sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler))}
	if s.Temporal.Service == nil {
		d.NoTemporal = errNoTemporal
	}
	if s.Collection == nil {
		d.NoDatabase = errors.New("the locks are not in a database")
	}
	return d.Examine(ctx), nil
}

func (s *server) showDoctor(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Doctor", Page: "/doctor"}
	v.Findings, v.At, _ = s.findings.get(r.Context()) // it does not fail
	s.write(w, http.StatusOK, v)
}

func (s *server) fail(w http.ResponseWriter, v view, err error) {
	if errors.Is(err, context.Canceled) {
		return // the browser has gone
	}
	v.Problem = err.Error()
	status := http.StatusBadGateway
	if errors.Is(err, lockcore.ErrDamaged) { // the page shows everything else
		status = http.StatusOK
	}
	s.write(w, status, v)
}

func (s *server) write(w http.ResponseWriter, status int, v view) {
	if v.At.IsZero() {
		v.At = time.Now()
	}
	var page bytes.Buffer
	// The names and comments of others may contain characters that change the order of the text around them.
	if err := s.pages.Execute(table.NewWriter(&page), v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the browser may have gone
}
