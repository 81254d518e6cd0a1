package ui_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/temporal-lockstep/lockstep/internal/cli/inspect"
	"github.com/temporal-lockstep/lockstep/internal/cli/ui"
	"github.com/temporal-lockstep/lockstep/internal/currentrun"
	"github.com/temporal-lockstep/lockstep/internal/tools/testenv"
	"github.com/temporal-lockstep/lockstep/internal/wire"
	"github.com/temporal-lockstep/lockstep/lockcore"
	"github.com/temporal-lockstep/lockstep/lockcore/lockcoretest"

	"github.com/temporal-lockstep/lockstep/internal/engine/rules"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// page serves a collection with one holder.
func page(t *testing.T, o ui.Options) http.Handler {
	t.Helper()
	l, err := lockcore.NewWithStore(lockcoretest.NewStore(time.Now), lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(t.Context())) })
	for _, resource := range []string{"salary/of/the/boss", "free", "Resources"} {
		req := lockcore.StepRequest{Caller: lockcore.Caller{LockID: "payroll"}, TTL: time.Hour, Resources: []lockcore.Resource{lockcore.Exclusive(resource)}}
		_, err = l.Steps().TryEnter(t.Context(), req)
		require.NoError(t, err)
	}
	require.NoError(t, l.SetPolicy(t.Context(), lockcore.Policy{Name: "salary/of/the/boss", Limit: 7, By: "ann", Reason: "for the boss"}))
	o.Site = inspect.Site{Locker: l.Steps()}
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

func TestHandler_NoToken_RefusesForeignHosts(t *testing.T) {
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

// Behind a proxy or in a container the server has names that it does not know. Other sites do not know the token, which may contain
// any character.
func TestHandler_Token_IsRequiredUnderAnyName(t *testing.T) {
	t.Parallel()
	const token = `a;b"c\d, é&+%`
	h := page(t, ui.Options{Token: token})
	for _, host := range []string{"locks.example", "[::]:8390", "127.0.0.1"} {
		named := func(r *http.Request) { r.Host = host }
		for _, address := range []string{"/", "/static/page.js", "/resource?name=free", "/?token=wrong"} {
			w := get(t, h, address, named)
			require.Equal(t, http.StatusUnauthorized, w.Code, address)
			require.NotContains(t, w.Body.String(), "payroll")
		}
		w := get(t, h, "/?token="+url.QueryEscape(token), named)
		require.Equal(t, http.StatusOK, w.Code)
		cookies := w.Result().Cookies()
		require.Len(t, cookies, 1)
		require.True(t, cookies[0].HttpOnly)
		require.NotContains(t, cookies[0].Value, "a;b", "the cookie has a hash")
		require.Equal(t, http.StatusOK, get(t, h, "/", func(r *http.Request) { r.AddCookie(cookies[0]) }).Code)
		require.Equal(t, http.StatusUnauthorized, get(t, h, "/?token="+cookies[0].Value, named).Code, "the hash is not a token")
	}
}

// Characters that are not printable could hide a part of the page or reverse it.
func TestHandler_HostileTexts_ArePlain(t *testing.T) {
	t.Parallel()
	const hostile = "a\u202e<b>\x1b\u2066\u200b\x7f\u0085z"
	s := newScene(t, inspect.Temporal{})
	enter := func(lockID, resource string, order uint32) {
		_, err := s.Enter(t.Context(), lockcore.StepRequest{
			Caller: lockcore.Caller{LockID: lockID + hostile, Part: hostile, Order: lockcore.Order{Schedule: order, Attempt: 1}}, Owner: hostile + lockID, Comment: hostile,
			TTL: time.Hour, Resources: []lockcore.Resource{lockcore.Exclusive(resource + hostile)},
		})
		if err != nil {
			require.ErrorIs(t, err, lockcore.ErrBusy)
		}
	}
	enter("x", "left", 1)
	enter("y", "right", 1)
	enter("z", "left", 1)
	enter("x", "right", 2)
	enter("y", "left", 2)
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{Name: hostile, Prefix: true, Limit: 3, By: hostile, Reason: hostile}))
	escaped := url.QueryEscape(hostile)
	for address, want := range map[string]string{
		"/": "left", "/?q=" + escaped: "left", "/resource?name=left" + escaped: "comment", "/why?workflow=" + escaped + "z": "waits for",
		"/waits": "<svg", "/why?workflow=nobody" + escaped: "No party", "/orphans": "not asked", "/policies": "limit 3", "/doctor": "database",
	} {
		_, text := s.get(address)
		require.Contains(t, text, want, address)
		require.Contains(t, text, "</html>", address)
		for _, r := range text {
			require.True(t, r == '\n' || unicode.IsPrint(r), "%s: %q in %s", address, r, text)
		}
	}
}

var tag = regexp.MustCompile(`<[^>]*>`)

func withoutTags(html string) string { return tag.ReplaceAllString(html, "") }

func TestHandler_ResourceNamedLikeAPage_IsShown(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{})
	require.Contains(t, get(t, h, "/", nil).Body.String(), `class="filter"`)
	text := get(t, h, "/resource?name=Resources", nil).Body.String()
	require.Contains(t, withoutTags(text), "holds Resources")
	require.NotContains(t, text, `class="filter"`)
}

func TestHandler_HashNames_HidesResources(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{HashNames: true})
	list := get(t, h, "/", nil).Body.String()
	require.Contains(t, list, "payroll")
	for _, address := range []string{"/", "/resource?name=" + hashed(list), "/why?workflow=payroll", "/waits", "/orphans", "/policies", "/doctor"} {
		text := get(t, h, address, nil).Body.String()
		require.NotContains(t, text, "boss", address)
	}
	require.Contains(t, get(t, h, "/resource?name="+hashed(list), nil).Body.String(), "payroll")
}

// hashed returns the first name of a list.
func hashed(list string) string {
	const before = `href="/resource?name=`
	_, rest, _ := strings.Cut(list, before)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

func TestHandler_NothingFound_SaysSo(t *testing.T) {
	t.Parallel()
	h := page(t, ui.Options{})
	require.Contains(t, get(t, h, "/resource?name=nothing", nil).Body.String(), "No party holds this resource")
	require.Equal(t, http.StatusNotFound, get(t, h, "/why?workflow=unknown", nil).Code)
	require.Equal(t, http.StatusBadRequest, get(t, h, "/why", nil).Code)
	require.Equal(t, http.StatusNotFound, get(t, h, "/nothing", nil).Code)
	require.Contains(t, get(t, h, "/?q=nothing", nil).Body.String(), "of that name")
	require.Contains(t, get(t, h, "/waits", nil).Body.String(), "No party waits.")
}

// counted is a store that counts listings, and may be away.
type counted struct {
	lockcore.Store
	lists atomic.Int32
	away  atomic.Bool
}

func (c *counted) List(ctx context.Context, q rules.Query) iter.Seq2[rules.Document, error] {
	c.lists.Add(1)
	if c.away.Load() {
		return func(yield func(rules.Document, error) bool) {
			yield(rules.Document{}, errors.New("the database is away"))
		}
	}
	return c.Store.List(ctx, q)
}

// temporal counts its questions, and knows every workflow, in one status.
type temporal struct {
	inspect.Frontend
	status enumspb.WorkflowExecutionStatus
	asked  atomic.Int32
}

func (s *temporal) DescribeWorkflowExecution(_ context.Context, in *workflowservice.DescribeWorkflowExecutionRequest, _ ...grpc.CallOption) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	s.asked.Add(1)
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: in.GetExecution().GetWorkflowId(), RunId: "run"}, Type: &commonpb.WorkflowType{Name: "OrderSaga"},
		Status: cmp.Or(s.status, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING),
	}}, nil
}

// scene is a page about an in-memory store.
type scene struct {
	*testing.T
	*lockcore.Steps
	database counted
	page     http.Handler
	orders   uint32
}

func newScene(t *testing.T, asks inspect.Temporal) *scene {
	t.Helper()
	s := &scene{T: t, database: counted{Store: lockcoretest.NewStore(time.Now)}}
	l, err := lockcore.NewWithStore(&s.database, lockcore.Config{})
	require.NoError(t, err)
	s.Steps = l.Steps()
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	s.page = ui.Handler(ui.Options{Site: inspect.Site{Locker: s.Steps, Temporal: asks}})
	return s
}

// ask makes one attempt for a party, which is a workflow if it has a run, and queues if the resource is busy.
func (s *scene) ask(lockID, run string, res lockcore.Resource) {
	s.Helper()
	s.orders++
	_, err := s.Enter(s.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: lockID, Run: run, Part: "p", Order: lockcore.Order{Schedule: s.orders, Attempt: 1}}, TTL: time.Hour, Resources: []lockcore.Resource{res},
	})
	if err != nil {
		require.ErrorIs(s, err, lockcore.ErrBusy)
	}
}

func (s *scene) get(address string) (code int, text string) {
	s.Helper()
	w := get(s.T, s.page, address, nil)
	return w.Code, w.Body.String()
}

func TestHandler_ManyViewers_ShareListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, inspect.Temporal{})
		s.ask("holder", "", lockcore.Exclusive("r"))
		s.ask("waiter", "", lockcore.Exclusive("r"))
		before := s.database.lists.Load()
		for range 10 {
			for address, want := range map[string]int{
				"/": http.StatusOK, "/resource?name=r": http.StatusOK, "/why?workflow=waiter": http.StatusOK, "/why?workflow=holder": http.StatusOK,
				"/why?workflow=unknown": http.StatusNotFound, "/waits": http.StatusOK,
			} {
				code, _ := s.get(address)
				require.Equal(t, want, code, address)
			}
		}
		require.LessOrEqual(t, s.database.lists.Load()-before, int32(3), "the resources, the deadlocks, and what cannot be decoded")

		s.ask("another", "", lockcore.Exclusive("r"))
		<-time.After(2 * time.Second)
		_, text := s.get("/why?workflow=another")
		require.Contains(t, withoutTags(text), "waits for r", "it is listed again after two seconds")
	})
}

func TestHandler_DatabaseAway_ViewersShareFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, inspect.Temporal{})
		before := s.database.lists.Load()
		s.database.away.Store(true)
		for _, address := range []string{"/", "/resource?name=r", "/why?workflow=w", "/waits"} {
			code, text := s.get(address)
			require.Equal(t, http.StatusBadGateway, code)
			require.Contains(t, text, "the database is away")
		}
		require.Equal(t, int32(1), s.database.lists.Load()-before)
		s.database.away.Store(false)
		<-time.After(2 * time.Second)
		code, _ := s.get("/")
		require.Equal(t, http.StatusOK, code, "it is back")
	})
}

const namespace = "0b6d4e1c-96d3-4cf6-b0bb-6f3f2d5c7a11"

func TestHandler_ManyRootBlockers_AsksAboutTen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &temporal{}
		s := newScene(t, inspect.Temporal{Service: service, Namespace: "default", NamespaceID: namespace})
		for i := range 40 {
			s.ask(wire.Run{Namespace: namespace, WorkflowID: fmt.Sprintf("reader-%02d", i)}.LockID(), fmt.Sprint("run-", i), lockcore.Shared("r"))
		}
		s.ask(wire.Run{Namespace: namespace, WorkflowID: "writer"}.LockID(), "run", lockcore.Exclusive("r"))
		_, text := s.get("/why?workflow=writer")
		require.Equal(t, 16, strings.Count(withoutTags(text), "holds r (shared)"), "a few of them are shown")
		require.Equal(t, 10, strings.Count(text, "OrderSaga, Running"))
		require.Equal(t, int32(20+1), service.asked.Swap(0), "the types of twenty holders, ten root blockers among them, and the workflow")

		for _, want := range []int{20, 40, 40} {
			for range 3 {
				_, text = s.get("/resource?name=r")
				require.Equal(t, want, strings.Count(text, `class="type">OrderSaga<`))
				require.Equal(t, 10, strings.Count(text, "OrderSaga, Running"))
			}
			<-time.After(2 * time.Second)
		}
		require.Equal(t, int32(20+2*10), service.asked.Load(), "each type is asked for once, and viewers share the answers about ten holders")
	})
}

func TestHandler_InternalLocks_AreHiddenUntilSearched(t *testing.T) {
	t.Parallel()
	s := newScene(t, inspect.Temporal{})
	s.ask("order-1042", "", lockcore.Exclusive("stock/sku-7"))
	s.ask("a janitor", "", lockcore.Exclusive("lockstep.janitor/"+namespace))
	s.ask("a doctor", "", lockcore.Exclusive("lockstep/doctor"))
	_, text := s.get("/")
	require.Contains(t, text, "order-1042")
	require.NotContains(t, text, "a janitor")
	require.NotContains(t, text, "a doctor")
	_, text = s.get("/?q=lockstep.janitor")
	require.Contains(t, text, "a janitor")
}

func TestHandler_Orphans_AreListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &temporal{status: enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED}
		s := newScene(t, inspect.Temporal{Service: service, Namespace: "default", NamespaceID: namespace})
		s.ask(wire.Run{Namespace: namespace, WorkflowID: "order-1042"}.LockID(), "run", lockcore.Exclusive("stock/sku-7"))
		s.ask(wire.Run{Namespace: namespace, WorkflowID: "order-1043"}.LockID(), "run", lockcore.Exclusive("stock/sku-7"))
		for range 10 {
			_, text := s.get("/orphans")
			require.Contains(t, text, `href="/why?workflow=order-1043"`)
			require.Contains(t, text, `href="/resource?name=stock%2Fsku-7"`)
			require.Contains(t, text, "a queued request")
			<-time.After(400 * time.Millisecond)
		}
		require.Equal(t, int32(2), service.asked.Load(), "viewers share the answers for five seconds")
		<-time.After(2 * time.Second)
		s.get("/orphans")
		require.Equal(t, int32(4), service.asked.Load())
	})
	code, text := newScene(t, inspect.Temporal{}).get("/orphans")
	require.Equal(t, http.StatusBadGateway, code)
	require.Contains(t, text, "Temporal is not asked")
}

// The doctor's checks, on real servers.
func TestHandler_Doctor_WritesNothing(t *testing.T) {
	t.Parallel()
	collection := testenv.Mongo(t).Collection("locks")
	l, err := lockcore.New(collection, lockcore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	require.NoError(t, l.CreateIndexes(t.Context()))
	service := testenv.Temporal(t).WorkflowService()
	id, err := currentrun.NamespaceID(t.Context(), service, "default")
	require.NoError(t, err)
	site := inspect.Site{Locker: l.Steps(), Collection: collection, Temporal: inspect.Temporal{Service: service, Namespace: "default", NamespaceID: id}}
	before, err := collection.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	h := ui.Handler(ui.Options{Site: site})
	first := get(t, h, "/doctor", nil).Body.String()
	require.Equal(t, first, get(t, h, "/doctor", nil).Body.String(), "viewers share the findings")
	for _, want := range []string{"ok database", "ok collection", "unknown writing not tried", "lockstep doctor tries it", "ok Temporal", "warning janitor none works", "ok orphans", "ok deadlocks"} {
		require.Contains(t, strings.Join(strings.Fields(withoutTags(first)), " "), want)
	}
	after, err := collection.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Equal(t, before, after, "the doctor has locked its resource")
}

func TestHandler_Policies_AreListed(t *testing.T) {
	t.Parallel()
	s := newScene(t, inspect.Temporal{})
	_, text := s.get("/policies")
	require.Contains(t, text, "There is no policy.")
	s = newScene(t, inspect.Temporal{})
	s.ask("holder", "", lockcore.SharedLimit("partner/acme", 3))
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{Name: "partner/", Prefix: true, Limit: 5, By: "ann", Reason: "more orders"}))
	_, text = s.get("/policies")
	require.Regexp(t, `partner/\*.*limit 5.*ann.*more orders`, text)
	_, text = s.get("/resource?name=partner/acme")
	require.Contains(t, strings.ReplaceAll(withoutTags(text), "&nbsp;", " "), "shared with limit 5 by policy partner/*; the request asked for 3")
}

// pooled is a scene with a pool: one member is held, one is out of service, and two requests wait.
func pooled(t *testing.T) *scene {
	t.Helper()
	s := newScene(t, inspect.Temporal{})
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{
		Name: "phones", Members: []string{"phone-1", "phone-2"}, Out: map[string]string{"phone-2": "display broken"}, By: "ann", Reason: "repair",
	}))
	s.ask("holder", "", lockcore.Pool("phones"))
	s.ask("usual", "", lockcore.Pool("phones"))
	s.orders++
	_, err := s.Enter(t.Context(), lockcore.StepRequest{
		Caller: lockcore.Caller{LockID: "urgent", Part: "p", Order: lockcore.Order{Schedule: s.orders, Attempt: 1}}, TTL: time.Hour, Priority: 1,
		Resources: []lockcore.Resource{lockcore.Pool("phones")},
	})
	require.ErrorIs(t, err, lockcore.ErrBusy)
	return s
}

func TestHandler_Pool_ShowsMembersAndQueue(t *testing.T) {
	t.Parallel()
	s := pooled(t)
	get := func(address string) string {
		_, text := s.get(address)
		return strings.Join(strings.Fields(strings.ReplaceAll(tag.ReplaceAllString(text, " "), "&nbsp;", " ")), " ")
	}
	require.Contains(t, get("/policies"), "phones pool of 2: phone-1, phone-2 (out: display broken)")
	_, text := s.get("/policies")
	require.Contains(t, text, `href="/resource?name=phones"`)
	text = get("/resource?name=phones")
	require.Regexp(t, `a pool of 2: .*phone-1 held holder for .* phone-2 out of service \(display broken\)`, text)
	require.Regexp(t, `urgent waits for phones \(any member, priority 1\) .*, position 1 usual waits for phones \(any member\) .*, position 2`, text)
	require.Contains(t, get("/why?workflow=usual"), "phones: its only member in service is held by holder; phone-2 is out of service (display broken)")
	require.Contains(t, get("/"), "member phone-1")

	s = newScene(t, inspect.Temporal{})
	require.NoError(t, s.SetPolicy(t.Context(), lockcore.Policy{Name: "desks", Members: []string{"desk-1"}}))
	require.Contains(t, get("/resource?name=desks"), "desk-1 free")
}

func TestHandler_HashNames_HidesMembers(t *testing.T) {
	t.Parallel()
	s := pooled(t)
	s.page = ui.Handler(ui.Options{Site: inspect.Site{Locker: s.Steps}, HashNames: true})
	_, list := s.get("/")
	for _, address := range []string{"/", "/resource?name=" + hashed(list), "/why?workflow=usual", "/waits", "/policies", "/doctor"} {
		_, text := s.get(address)
		require.NotContains(t, text, "phone", address)
		require.NotContains(t, text, "display", address)
	}
	_, text := s.get("/resource?name=" + hashed(list))
	require.Contains(t, text, "a pool of 2")
}
