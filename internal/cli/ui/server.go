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
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
)

// Options are what the page is about.
type Options struct {
	inspect.Site
	// TemporalUI is the address of Temporal's web UI, for links; empty if it is not known.
	TemporalUI string
	// Token is asked for before anything is shown. If it is empty, any client that can connect may look.
	Token string
	// HashNames has names of resources shown as hashes.
	HashNames bool
}

//go:embed static
var static embed.FS

//go:embed page.html
var pageHTML string

type server struct {
	Options
	pages     *template.Template
	list      shared[[]inspect.Resource]
	deadlocks shared[[]party.Deadlock]
	seen      seen
}

// Handler serves the page.
func Handler(o Options) http.Handler {
	o.Discreet = o.HashNames
	s := &server{Options: o}
	s.list.read, s.deadlocks.read = s.readResources, s.Deadlocks
	s.pages = template.Must(template.New("page").Funcs(template.FuncMap{
		"short": inspect.Short, "resource": s.name, "says": s.says, "why": whyLink, "show": s.showLink, "temporal": s.temporalLink, "owner": s.OwnerName, "ring": s.ringOf,
	}).Parse(pageHTML))
	mux := http.NewServeMux()
	files, _ := fs.Sub(static, "static") // it is embedded
	mux.Handle("GET /static/", http.StripPrefix("/static/", http.FileServerFS(files)))
	mux.HandleFunc("GET /{$}", s.showResources)
	mux.HandleFunc("GET /resource", s.showResource)
	mux.HandleFunc("GET /why", s.showWhy)
	mux.HandleFunc("GET /waits", s.showWaits)
	return s.guarded(mux)
}

// cookie is where a browser keeps the hash of the token, which may have characters that no cookie
// can.
const cookie = "lockstep-token"

// guarded refuses requests without the token, or if there is none, under names other than those of
// the loopback.
func (s *server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		switch {
		case s.Token == "":
			// A page of another site must not read this one through a name of its own.
			if !isLoopback(r.Host) {
				http.Error(w, "lockstep ui is not served under this name", http.StatusMisdirectedRequest)
				return
			}
		case same(r.URL.Query().Get("token"), s.Token): // under any name: other sites do not know it
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: hashOf(s.Token), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}) //nolint:gosec // it is served without TLS
		default:
			if c, err := r.Cookie(cookie); err != nil || !same(c.Value, hashOf(s.Token)) {
				http.Error(w, "lockstep ui wants its token: open the address that it printed", http.StatusUnauthorized)
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

// view is what a page shows.
type view struct {
	Title string
	// List says that it is the list of resources, and Query is what that was narrowed to.
	List      bool
	Query     string
	All       int
	Resources []inspect.Resource
	Resource  *inspect.Resource
	// Recent is what the page saw end on the resource, from Since on.
	Recent    []ended
	Since     time.Time
	Why       *inspect.Why
	Forest    []*inspect.Node
	Deadlocks []party.Deadlock
	// Problem is why there is nothing to see.
	Problem string
	At      time.Time
}

// mostResources is how many are listed: the others are found by their names.
const mostResources = 200

func (s *server) showResources(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Resources", List: true, Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	all, at, err := s.list.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	if v.Query != "" {
		all = slices.DeleteFunc(slices.Clone(all), func(r inspect.Resource) bool { return !s.found(&r, v.Query) })
	}
	v.All, v.Resources, v.At = len(all), all[:min(len(all), mostResources)], at
	s.write(w, http.StatusOK, v)
}

// found reports whether a resource, or a party on it, has a name with the text.
func (s *server) found(r *inspect.Resource, text string) bool {
	if strings.Contains(s.name(r.Name), text) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(r.Holders, r.Waiters), func(e inspect.Entry) bool { return strings.Contains(e.Party.Name, text) })
}

func (s *server) showResource(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	v := view{Title: name}
	all, at, err := s.list.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	if i := slices.IndexFunc(all, func(r inspect.Resource) bool { return s.name(r.Name) == name }); i >= 0 {
		v.Resource = &all[i]
	} else {
		v.Problem = "No party holds this resource, and none waits for it."
	}
	v.At = at
	v.Recent, v.Since = s.seen.on(func(resource string) bool { return s.name(resource) == name })
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
	all, at, err := s.list.get(r.Context())
	if err != nil {
		s.fail(w, v, err)
		return
	}
	why, err := s.WhyIn(r.Context(), name, all)
	if err != nil {
		s.fail(w, v, err)
		return
	}
	v.At = at
	if !why.Known() {
		v.Problem = "No party of this name holds a lock or waits for one, and Temporal knows no such workflow."
		if s.Temporal.Service == nil {
			v.Problem = "No party of this name holds a lock or waits for one. Temporal was not asked."
		}
		s.write(w, http.StatusNotFound, v)
		return
	}
	v.Why = &why
	s.write(w, http.StatusOK, v)
}

func (s *server) showWaits(w http.ResponseWriter, r *http.Request) {
	v := view{Title: "Who waits for whom"}
	all, at, err := s.list.get(r.Context())
	if err == nil {
		v.Forest, v.At = s.ForestIn(all), at
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

func (s *server) fail(w http.ResponseWriter, v view, err error) {
	if errors.Is(err, context.Canceled) {
		return // the browser has gone
	}
	v.Problem = err.Error()
	s.write(w, http.StatusBadGateway, v)
}

func (s *server) write(w http.ResponseWriter, status int, v view) {
	if v.At.IsZero() {
		v.At = time.Now()
	}
	var page bytes.Buffer
	if err := s.pages.Execute(&page, v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the browser may have gone
}

// name is a resource's as it is shown.
func (s *server) name(resource string) string {
	if !s.HashNames {
		return resource
	}
	return hashOf(resource)[:12]
}

// says is what an entry is, with the name of its resource as it is shown.
func (s *server) says(e inspect.Entry) string {
	e.Resource = s.name(e.Resource)
	return e.String()
}

func (s *server) showLink(resource string) string {
	return "/resource?name=" + url.QueryEscape(s.name(resource))
}

func whyLink(p inspect.Party) string { return "/why?workflow=" + url.QueryEscape(p.Name) }

// temporalLink is that of a workflow in Temporal's UI; empty if there is none.
func (s *server) temporalLink(p inspect.Party, run string) string {
	if s.TemporalUI == "" || p.Workflow == "" || p.Namespace != s.Temporal.NamespaceID {
		return ""
	}
	link := strings.TrimSuffix(s.TemporalUI, "/") + "/namespaces/" + url.PathEscape(s.Temporal.Namespace) + "/workflows/" + url.PathEscape(p.Workflow)
	if run != "" {
		link += "/" + url.PathEscape(run)
	}
	return link
}
