package creation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/crossplane-graft/graft/pkg/internal/seam"
)

// The model's times. A request reaches the cloud before its timeout, and the cloud shows what
// it created after less than the grace period.
const (
	modelTimeout = 60 * time.Second
	modelLag     = 25 * time.Second
)

func modelLimits() Limits {
	return Limits{Announced: 2 * modelTimeout, Grace: 30 * time.Second}
}

// A model is one managed resource, one cloud, and two processes that reconcile it, each with a
// clock of its own.
type model struct {
	async bool
	can   Can

	now       time.Time
	versions  []map[string]string // Annotations on the API server. A stale cache has the last but one.
	requests  []request           // On their way to the cloud.
	resources []resource
	results   map[string]result // The result of each operation with a handle that has ended, by its token.
	processes [2]process
	holders   int
	created   int
	stopped   Reason
	problem   string

	// deleting is true once the user has deleted the managed resource, gone once its
	// finalizer is removed.
	deleting, gone bool
}

type request struct {
	process, holder int
	token           string
	began           time.Time
	ends            State // The state in which the request was made.
	exists          bool  // The cloud refuses it, because the external resource exists.
}

type result struct {
	id     string // It is empty if nothing was created.
	exists bool
}

type resource struct {
	id, token string
	created   time.Time
}

type process struct {
	clock   time.Duration
	holder  int
	running bool
	seen    string
	seenAt  time.Time
	deleted bool // A Delete of this process has succeeded.
}

func (m *model) clone() *model {
	c := *m
	c.versions = slices.Clone(m.versions)
	c.requests = slices.Clone(m.requests)
	c.resources = slices.Clone(m.resources)
	c.results = maps.Clone(m.results)
	return &c
}

// key identifies everything that decides how the model goes on.
func (m *model) key() string {
	var b strings.Builder
	fmt.Fprintln(&b, m.now.Unix(), m.processes, m.deleting, m.gone)
	for _, v := range m.versions {
		for _, k := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(v[k] + "|")
		}
	}
	for _, r := range m.requests {
		fmt.Fprintln(&b, r.process, r.holder, r.token, r.began.Unix())
	}
	for _, r := range m.resources {
		fmt.Fprintln(&b, r.id, r.token, r.created.Unix())
	}
	fmt.Fprintln(&b, m.results)
	return b.String()
}

func (m *model) object(annotations map[string]string) client.Object {
	return &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "uid", Annotations: maps.Clone(annotations)},
	}
}

func (m *model) live() map[string]string { return m.versions[len(m.versions)-1] }

// write changes to the API server, which refuses a decision that was made from an older object.
func (m *model) write(c Changes, read map[string]string, rule seam.Rule) bool {
	live := m.object(m.live())
	if rule == seam.Decided && !maps.Equal(live.GetAnnotations(), read) {
		return false
	}
	left, err := c.Left(live, rule, nil)
	if err != nil {
		left = left.Only(meta.AnnotationKeyExternalName)
	}
	left.Apply(live)
	if name := meta.GetExternalName(m.object(m.live())); name != "" && meta.GetExternalName(live) == "" {
		m.problem = "the external name was dropped"
	}
	if !maps.Equal(live.GetAnnotations(), m.live()) {
		m.versions = []map[string]string{m.live(), live.GetAnnotations()}
	}
	return err == nil
}

func (m *model) clock(p int) time.Time { return m.now.Add(m.processes[p].clock) }

// visible returns the resource that the cloud shows.
func (m *model) visible(match func(r resource) bool) (resource, bool) {
	for _, r := range m.resources {
		if match(r) && m.now.Sub(r.created) >= modelLag {
			return r, true
		}
	}
	return resource{}, false
}

// reconcile behaves as upstream's reconciler with Graft does, in one process. The read may be stale.
func (m *model) reconcile(p int, stale bool) {
	me := &m.processes[p]
	if me.running || m.gone {
		return
	}
	read := m.live()
	if stale {
		read = m.versions[0]
	}
	o := m.object(read)
	s, _ := Of(o)
	now := m.clock(p)
	if id := s.ID(); me.seen != id {
		me.seen, me.seenAt = id, now
	}
	if s.Settled {
		m.write(On(o).WithoutRecord(), read, seam.Decided)
		return
	}
	q := Question{
		State: s, Can: m.can, Limits: modelLimits(), Now: now, FirstSeen: me.seenAt,
		Deleting: m.deleting, DeleteSucceeded: me.deleted,
	}
	var found resource
	m.stopped = ""
	if m.continuesUnresolved() {
		m.proceed(p, q, o, read)
		return
	}
	for range 6 {
		step := Next(q)
		switch step.Action {
		case LookUp:
			var ok bool
			found, ok = m.visible(func(resource) bool { return true })
			q.Lookup = ObservedAs(ok)
			continue
		case Observe:
			_, ok := m.visible(func(r resource) bool { return r.id == s.Name })
			q.Observed = ObservedAs(ok)
			continue
		case Adopt:
			m.write(On(o).Found(q, now).Named(found.id), read, seam.Decided)
		case Confirm:
			m.write(On(o).Found(q, now), read, seam.Decided)
		case BelieveAbsent:
			c := On(o).Absent()
			if r := s.Record; r != nil {
				if r.Phase == RecordRunning {
					r = r.WithFailure(Failure{At: now, Class: "interrupted"})
				}
				c = On(o).AbsentWith(r)
			}
			m.write(c, read, seam.Decided)
		case Repeat, Resume:
			r := *s.Record
			began := metav1.NewTime(now)
			r.Holder, r.Phase, r.Ended, r.Abandoned = fmt.Sprint(me.holder), RecordRunning, nil, false
			if step.Action == Repeat {
				r.Repeated, r.OpenUntil = true, &metav1.Time{Time: q.BelievedFrom().Add(-q.Limits.Grace)}
			}
			r.RepeatedAt, r.Deadline = &began, metav1.NewTime(now.Add(modelTimeout))
			m.begin(p, On(o).WithRecord(&r), read, r.Token)
		case Wait:
		case Stop:
			m.stopped = step.Reason
		case Proceed:
			m.proceed(p, q, o, read)
		}
		return
	}
	m.problem = "the account of the create never says what to do"
}

// continuesUnresolved reports whether upstream continues although the outcome of a create is
// unknown, and leaves it open.
func (m *model) continuesUnresolved() bool { return m.can.Names && !m.async }

// proceed observes the external resource by its name, and creates it if it is absent.
func (m *model) proceed(p int, q Question, o client.Object, read map[string]string) {
	_, exists := m.visible(func(r resource) bool { return r.id == q.Name })
	q.Observed = ObservedAs(exists)
	if m.deleting && exists && Next(q).Action == Wait {
		return
	}
	if m.deleting && exists {
		m.resources = slices.DeleteFunc(slices.Clone(m.resources), func(r resource) bool { return r.id == q.Name })
		m.processes[p].deleted = true
		return
	}
	if exists {
		if q.Record != nil {
			m.write(On(o).OperationSucceeded(q.Record, m.clock(p)), read, seam.Decided)
		}
		return
	}
	q.Observed = Absent
	now := m.clock(p)
	if Next(q).Action == Wait {
		return
	}
	if m.deleting {
		// The API server removes the finalizer only from the object that was read.
		m.gone = maps.Equal(read, m.live())
		return
	}
	if now.Before(q.NextCreate()) {
		return
	}
	announced := m.object(read)
	meta.SetExternalCreatePending(announced, now)
	var repeated time.Duration
	if m.continuesUnresolved() && q.Phase == Announced {
		repeated = modelTimeout
	}
	Announce(announced, o, repeated, now)
	c := On(o)
	for k, v := range announced.GetAnnotations() {
		if read[k] != v {
			c = c.set(k, v)
		}
	}
	token := fmt.Sprint("t", len(m.requests), m.now.Unix(), m.holders)
	if m.async {
		r := NewRecord(announced, Create, fmt.Sprint(m.processes[p].holder), token, now, modelTimeout)
		if m.can.Resume {
			r.Handle = "operation"
		}
		c = c.WithRecord(r)
	}
	m.begin(p, c, read, token)
}

func (m *model) begin(p int, c Changes, read map[string]string, token string) {
	if m.write(c, read, seam.Decided) {
		s, _ := Of(m.object(m.live()))
		m.processes[p].running = true
		m.requests = append(m.requests, request{
			process: p,
			holder:  m.processes[p].holder,
			token:   token,
			began:   m.now,
			ends:    s,
		})
	}
}

// end the oldest request.
func (m *model) end(creates, named, answered bool) {
	if len(m.requests) > 0 {
		m.endRequest(0, creates, named, answered)
	}
}

// exist refuses the oldest request, because the external resource exists.
func (m *model) exist() {
	if len(m.requests) > 0 {
		m.requests[0].exists = true
		m.endRequest(0, false, false, true)
	}
}

// overtake ends the newest request while an older one is on its way.
func (m *model) overtake() {
	if len(m.requests) > 1 {
		m.endRequest(len(m.requests)-1, true, false, true)
	}
}

// endRequest ends a request: the cloud creates a resource or not, and the process, if it still
// lives, stores the outcome.
func (m *model) endRequest(i int, creates, named, answered bool) {
	r := m.requests[i]
	m.requests = slices.Delete(slices.Clone(m.requests), i, i+1)
	res := m.result(r, creates)
	id := res.id
	creates, named = id != "", named && id != ""
	err := errors.New("refused")
	if res.exists {
		err = errors.New("already exists")
	}
	if m.isOrphaned(r) {
		return
	}
	m.processes[r.process].running = false
	now, o := m.clock(r.process), m.object(m.live())
	c := On(o)
	if m.gone {
		return
	}
	if rec := r.ends.Record; rec != nil {
		if live, _ := RecordOf(o); live == nil || live.Holder != rec.Holder || live.Token != rec.Token {
			return
		}
		switch {
		case creates && answered:
			c = c.CreateSucceeded(rec, now).Named(id)
		default:
			ended := *rec
			if named {
				ended.Name = id
			}
			e := ended.WithFailure(Failure{At: now, Class: "error", Unknown: creates && !named})
			if e.Phase == RecordFailed {
				c = c.FailedWith(e, err, now)
			} else {
				c = c.WithRecord(e)
			}
			if named {
				c = c.Named(id)
			}
		}
	} else {
		switch {
		case creates && (answered || named):
			c = c.Named(id).Succeeded(now)
		case creates && !m.continuesUnresolved():
			return // Its outcome is unknown: the announcement stays.
		case pendingOf(o) != r.ends.Announcement:
			return // Another process has announced another create since.
		case creates:
			c = c.Failed(now).Open(now, modelTimeout)
		default:
			c = c.Failed(now)
		}
	}
	m.write(c, nil, seam.Result)
}

// result returns the result of a request. All requests of an operation with a handle have the same.
func (m *model) result(r request, creates bool) result {
	if had, ended := m.results[r.token]; ended {
		return had
	}
	res := result{id: m.create(r, creates), exists: r.exists}
	if m.can.Resume {
		m.results[r.token] = res
	}
	return res
}

// create a resource in the cloud, which creates one for each token or name if it can.
func (m *model) create(r request, creates bool) string {
	if !creates {
		return ""
	}
	for _, had := range m.resources {
		if m.can.Names || m.can.Tokens && had.token == r.token {
			return had.id
		}
	}
	m.created++
	id := fmt.Sprint("id-", m.created)
	if m.can.Names {
		id = "db"
	}
	m.resources = append(slices.Clone(m.resources), resource{id: id, token: r.token, created: m.now})
	if len(m.resources) > 1 {
		m.problem = "a second external resource was created"
	}
	return id
}

// arrive ends the oldest request. With late, requests of dead processes end only when the managed
// resource is gone.
func (m *model) arrive(late bool) {
	i := slices.IndexFunc(m.requests, func(r request) bool {
		return !late || m.gone || !m.isOrphaned(r)
	})
	if i >= 0 {
		m.endRequest(i, true, false, true)
	}
}

// isOrphaned reports whether the process that made a request no longer lives.
func (m *model) isOrphaned(r request) bool { return m.processes[r.process].holder != r.holder }

func (m *model) kill(p int) {
	m.holders++
	m.processes[p] = process{clock: m.processes[p].clock, holder: 10 * m.holders}
}

// pass time. A request that is older than its timeout has not reached the cloud.
func (m *model) pass(d time.Duration) {
	m.now = m.now.Add(d)
	for len(m.requests) > 0 && m.now.Sub(m.requests[0].began) >= modelTimeout {
		m.end(false, false, false)
	}
}

type modelEvent struct {
	name string
	do   func(m *model)
}

func modelEvents() []modelEvent {
	return []modelEvent{
		{"A", func(m *model) { m.reconcile(0, false) }},
		{"a(stale)", func(m *model) { m.reconcile(0, true) }},
		{"B", func(m *model) { m.reconcile(1, false) }},
		{"b(stale)", func(m *model) { m.reconcile(1, true) }},
		{"created", func(m *model) { m.end(true, false, true) }},
		{"created, before an older request", func(m *model) { m.overtake() }},
		{"answer lost", func(m *model) { m.end(true, false, false) }},
		{"named, then failed", func(m *model) { m.end(true, true, false) }},
		{"refused", func(m *model) { m.end(false, false, true) }},
		{"already exists", func(m *model) { m.exist() }},
		{"kill A", func(m *model) { m.kill(0) }},
		{"delete", func(m *model) { m.deleting = true }},
		{"1s", func(m *model) { m.pass(time.Second) }},
		{"30s", func(m *model) { m.pass(30 * time.Second) }},
		{"2m", func(m *model) { m.pass(2 * time.Minute) }},
	}
}

// depth is the length of the sequences: go test -run TestSequences -depth 7 takes minutes.
var depth = flag.Int("depth", 5, "the length of the sequences of events")

// TestSequences leads a create through every sequence of events up to a length, and then to its
// end.
func TestSequences(t *testing.T) {
	cases := map[string]struct {
		async bool
		can   Can
	}{
		"Async/Finder":           {async: true, can: Can{Find: true, Create: true}},
		"Async/FinderAndHandles": {async: true, can: Can{Find: true, Resume: true, Create: true}},
		"Async/Tokens":           {async: true, can: Can{Tokens: true, Create: true}},
		"Async/TokensAndFinder":  {async: true, can: Can{Tokens: true, Find: true, Create: true}},
		"Async/Names":            {async: true, can: Can{Names: true, Create: true}},
		"Async/Nothing":          {async: true, can: Can{Create: true}},
		"Sync/Finder":            {can: Can{Find: true, Create: true}},
		"Sync/Names":             {can: Can{Names: true, Create: true}},
		"Sync/Nothing":           {can: Can{Create: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := &model{
				async:    tc.async,
				can:      tc.can,
				now:      time.Unix(1_000_000, 0).UTC(),
				versions: []map[string]string{{}, {}},
			}
			if tc.can.Names {
				start.versions = []map[string]string{
					{meta.AnnotationKeyExternalName: "db"}, {meta.AnnotationKeyExternalName: "db"},
				}
			}
			if tc.can.Resume {
				// The external resource of an earlier create was deleted by another client.
				earlier := map[string]string{
					meta.AnnotationKeyExternalName:            "earlier",
					meta.AnnotationKeyExternalCreatePending:   "1970-01-01T00:00:00Z",
					meta.AnnotationKeyExternalCreateSucceeded: "1970-01-01T00:00:00Z",
				}
				start.versions, start.results = []map[string]string{earlier, earlier}, map[string]result{}
			}
			start.processes = [2]process{{clock: time.Second, holder: 1}, {clock: -time.Second, holder: 2}}
			seen := map[string]int{}
			explore(t, start, nil, *depth, seen)
			t.Logf("%d states", len(seen))
		})
	}
}

func explore(t *testing.T, m *model, path []string, left int, seen map[string]int) {
	t.Helper()
	key := m.key()
	if seen[key] > left {
		return
	}
	seen[key] = left + 1
	if m.problem == "" {
		conclude(m.clone(), m, false)
	}
	if m.problem == "" && slices.ContainsFunc(m.requests, m.isOrphaned) {
		conclude(m.clone(), m, true)
	}
	if m.problem != "" {
		t.Fatalf("%s: %s", strings.Join(path, ", "), m.problem)
	}
	if left == 0 {
		return
	}
	for _, e := range modelEvents() {
		next := m.clone()
		e.do(next)
		explore(t, next, append(path[:len(path):len(path)], e.name), left-1, seen)
	}
}

// conclude leads a model to its end: one process reconciles, requests succeed, and a person
// follows the condition's message. It reports a problem if the create is not settled then. With
// late, requests of dead processes arrive when the managed resource is gone.
func conclude(m, report *model, late bool) {
	interval := 41 * time.Second
	if late {
		interval = 14 * time.Second
	}
	for end := m.now.Add(11 * time.Minute); m.now.Before(end) && (!m.gone || len(m.requests) > 0); {
		m.reconcile(1, false)
		if m.stopped == NoLookUp && len(m.requests) == 0 {
			m.settle()
		}
		m.pass(time.Second)
		m.arrive(late)
		m.pass(interval - time.Second)
	}
	s, err := Of(m.object(m.live()))
	_, exists := m.visible(func(r resource) bool { return r.id == s.Name })
	switch {
	case m.deleting && m.problem == "" && m.gone && len(m.resources) > 0:
		report.problem = fmt.Sprintf("an external resource was leaked: %v", m.resources)
	case m.deleting && m.problem == "" && !m.gone:
		report.problem = fmt.Sprintf(
			"the managed resource is never deleted: %s, named %q, %v", s.Phase, s.Name, m.live(),
		)
	case m.deleting && m.problem == "":
	case err != nil:
		report.problem = err.Error()
	case m.problem != "":
		report.problem = "in the end " + m.problem
	case s.Phase != Created && !m.continuesUnresolved() || !exists || len(m.resources) != 1:
		report.problem = fmt.Sprintf(
			"there is no way out: %s, named %q, %d resources, %v", s.Phase, s.Name, len(m.resources), m.live(),
		)
	}
}

// settle follows the message of a create that the provider cannot look up.
func (m *model) settle() {
	o := m.object(m.live())
	meta.RemoveAnnotations(o, AnnotationKeyRecord, meta.AnnotationKeyExternalCreatePending)
	if len(m.resources) > 0 {
		meta.SetExternalName(o, m.resources[0].id)
		meta.SetExternalCreateSucceeded(o, m.now)
	}
	m.versions = []map[string]string{m.live(), o.GetAnnotations()}
}
