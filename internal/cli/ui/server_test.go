package ui_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/temporal-lockstep/lockstep/lockcore/party"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page serves what one holder stands on.
func page(t *testing.T, o ui.Options) http.Handler {
	t.Helper()
	l, err := party.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	for _, resource := range []string{"salary/of/the/boss", "free", "Resources"} {
		req := party.Request{LockID: "payroll", TTL: time.Hour, Resources: []lockcore.Resource{lockcore.Exclusive(resource)}}
		_, err = l.TryEnter(t.Context(), req)
		require.NoError(t, err)
	}
	o.Site = inspect.Site{Locker: l}
	return ui.Handler(o)
}

func get(t *testing.T, h http.Handler, address string, change func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	r.Host = "127.0.0.1:8390"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestThePageAnswersOnlyToItsOwnNames(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{})
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "LocalHost:8390": http.StatusOK, "127.0.0.1:8390": http.StatusOK, "[::1]:8390": http.StatusOK,
		"rebound.example": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
	} {
		require.Equal(t, want, get(t, h, "/", func(r *http.Request) { r.Host = host }).Code, host)
	}
	require.Equal(t, http.StatusMethodNotAllowed, get(t, h, "/", func(r *http.Request) { r.Method = http.MethodPost }).Code, "it is read-only")
}

func TestThePageAsksForItsToken(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{Token: "secret"})
	for _, address := range []string{"/", "/static/page.js", "/resource?name=free", "/?token=wrong"} {
		w := get(t, h, address, nil)
		require.Equal(t, http.StatusUnauthorized, w.Code, address)
		require.NotContains(t, w.Body.String(), "payroll")
	}
	w := get(t, h, "/?token=secret", nil)
	require.Equal(t, http.StatusOK, w.Code)
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	require.True(t, cookies[0].HttpOnly)
	require.Equal(t, http.StatusOK, get(t, h, "/", func(r *http.Request) { r.AddCookie(cookies[0]) }).Code)
}

// Behind a proxy, or in a container, it has names that it does not know. Other sites do not know the
// token.
func TestThePageWithATokenAnswersToAnyName(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{Token: "secret"})
	for _, host := range []string{"locks.example", "[::]:8390", "127.0.0.1"} {
		named := func(r *http.Request) { r.Host = host }
		require.Equal(t, http.StatusOK, get(t, h, "/?token=secret", named).Code, host)
		require.Equal(t, http.StatusUnauthorized, get(t, h, "/", named).Code, host)
	}
}

func TestTheTokenMayHaveAnyCharacters(t *testing.T) {
	t.Parallel()
	const token = `a;b"c\d, é&+%`
	h := page(t, ui.Options{Token: token})
	w := get(t, h, "/?token="+url.QueryEscape(token), nil)
	require.Equal(t, http.StatusOK, w.Code)
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	require.NotContains(t, cookies[0].Value, "a;b", "the browser keeps a hash")
	require.Equal(t, http.StatusOK, get(t, h, "/", func(r *http.Request) { r.AddCookie(cookies[0]) }).Code)
	require.Equal(t, http.StatusUnauthorized, get(t, h, "/?token="+cookies[0].Value, nil).Code, "the hash is no token")
}

func TestAResourceMayHaveTheNameOfAPage(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{})
	require.Contains(t, get(t, h, "/", nil).Body.String(), `class="filter"`)
	text := get(t, h, "/resource?name=Resources", nil).Body.String()
	require.Contains(t, text, "holds Resources")
	require.NotContains(t, text, `class="filter"`)
}

func TestNamesOfResourcesCanBeHidden(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{HashNames: true})
	list := get(t, h, "/", nil).Body.String()
	require.Contains(t, list, "payroll")
	for _, address := range []string{"/", "/resource?name=" + hashed(list), "/why?workflow=payroll", "/waits"} {
		text := get(t, h, address, nil).Body.String()
		require.NotContains(t, text, "boss", address)
	}
	require.Contains(t, get(t, h, "/resource?name="+hashed(list), nil).Body.String(), "payroll")
}

// hashed is the first name that a list shows.
func hashed(list string) string {
	const before = `href="/resource?name=`
	_, rest, _ := strings.Cut(list, before)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

func TestWhatIsNotThereIsSaidSo(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{})
	require.Contains(t, get(t, h, "/resource?name=nothing", nil).Body.String(), "No party holds this resource")
	require.Equal(t, http.StatusNotFound, get(t, h, "/why?workflow=unknown", nil).Code)
	require.Equal(t, http.StatusBadRequest, get(t, h, "/why", nil).Code)
	require.Equal(t, http.StatusNotFound, get(t, h, "/nothing", nil).Code)
	require.Contains(t, get(t, h, "/?q=nothing", nil).Body.String(), "of that name")
	require.Contains(t, get(t, h, "/waits", nil).Body.String(), "No party waits.")
}
