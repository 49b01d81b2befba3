// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0

package queue

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"
)

// Tenant is what a tenant may use. Tenants are a tree: "research/vision" is a part
// of "research". The words are Kueue's.
type Tenant struct {
	// Namespaces belong to it: names, or patterns with * and ?. None: the one of the
	// tenant's last name.
	Namespaces []string `json:"namespaces,omitempty" hcl:"namespaces,optional"`
	// Weight is that of its fair share among the tenants of its parent; 0: 1.
	Weight float64 `json:"weight,omitempty" hcl:"weight,optional"`
	// Quota is the nominal quota: GPUs that are its own. Others may borrow them while
	// they are idle. 0: of a tenant with children, the sum of theirs; else none, and
	// all that it holds is borrowed.
	Quota int `json:"quota,omitempty" hcl:"quota,optional"`
	// BorrowingLimit is how many GPUs beyond Quota it holds at most; nil: as many as
	// are idle.
	BorrowingLimit *int `json:"borrowing_limit,omitempty" hcl:"borrowing_limit,optional"`
	// MaxGPUsPerUser is how many GPUs each of its users holds at most, MaxJobsPerUser how many jobs of
	// each of them run at a time at most; 0: as many as the tenant may.
	MaxGPUsPerUser int `json:"max_gpus_per_user,omitempty" hcl:"max_gpus_per_user,optional"`
	MaxJobsPerUser int `json:"max_jobs_per_user,omitempty" hcl:"max_jobs_per_user,optional"`
	// DefaultPreempt reports whether its batch jobs may be stopped of which nobody says so; nil: as
	// the tenant says that it is a part of.
	DefaultPreempt *bool `json:"default_preempt,omitempty" hcl:"default_preempt,optional"`
}

// tenant is a node of the tree; the root is none.
type tenant struct {
	Tenant
	name   string
	parent *tenant   // nil at the top
	chain  []*tenant // the tenants it is a part of and itself, the top first
	gpus   int       // of gangs that run or are about to, and outside the Queue
	// promised are those of gangs that others are being stopped for. They count towards quotas and
	// limits.
	promised int
	users    map[string]UserUse // what each user has, with what is promised; kept where users have limits
	freeing  int                // of gangs that are being stopped, or made smaller
	usage    usage
	// saved is what its GPUs at work count less for in fair shares than as many of price 1.
	saved float64
	turn  tenantTurn
}

// tenantTurn is what a walk knows of a tenant, to choose who goes first.
type tenantTurn struct {
	pass    uint64    // of the walk
	buckets []*bucket // of its waiting gangs that are to be tried
	first   *entry    // of them
	claim   uint8     // of first, see claimOf
}

// tenancy is what a Queue knows of its tenants.
type tenancy struct {
	opt        *Options
	tree       tree
	namespaces map[string]*namespace
	usageFrom  time.Duration // usage before is from an earlier Queue
	arrays     map[string]int
	outside    map[Payer]int // see Outside; replaced, never changed
}

func newTenancy(o *Options) tenancy {
	return tenancy{opt: o, tree: newTree(o.Tenants), namespaces: map[string]*namespace{}, arrays: map[string]int{}}
}

// namespace is one that has jobs, or had. Usage is kept for it as well as for its tenant:
// whoever reads it back may have other tenants.
type namespace struct {
	tenant *tenant
	usage  usage
	stops  Stops
}

// count counts GPUs as those of the tenant, its parents and one of its users, or (negative) no longer.
func (t *tenant) count(user string, gpus int) {
	t.countUser(user, gpus, 0)
	for ; t != nil; t = t.parent {
		t.gpus += gpus
	}
}

// Outside says how many GPUs jobs of each tenant and user hold that the Queue does not count: those
// that nobody could read, or that cannot be served any more as they are written. They
// are a part of what their tenants and users may use.
func (ts *tenancy) Outside(gpus map[Payer]int) {
	for by, held := range ts.outside {
		ts.namespace(by.Tenant).tenant.count(by.User, -held)
	}
	for by, held := range gpus {
		ts.namespace(by.Tenant).tenant.count(by.User, held)
	}
	ts.outside = gpus
}

// Counts reports whether the GPUs of a gang are counted: it runs, is about to, or is being stopped.
func (q *Queue) Counts(id string) bool {
	e := q.entries[id]
	return e != nil && e.state != waiting
}

func (t *tenant) weight() float64 {
	if t.Weight == 0 {
		return 1
	}
	return t.Weight
}

// limit is how many GPUs the tenant holds at most; ok is false where that is not
// bounded.
func (t *tenant) limit() (gpus int, ok bool) {
	if t.BorrowingLimit == nil {
		return 0, false
	}
	return t.Quota + min(*t.BorrowingLimit, math.MaxInt-t.Quota), true
}

// tree are the tenants that are configured, and those of namespaces that belong to
// none of them.
type tree struct {
	byName map[string]*tenant
	quotas bool // somebody has a quota
	users  bool // somebody has limits for users
	deep   bool // somebody has children
}

// newTree builds the tree of valid tenants. A name sorts before all names that begin with
// it, so parents come before their children, and backwards after them: by then the
// children's quotas are known of which a parent without one has the sum.
func newTree(tenants map[string]Tenant) tree {
	t := tree{byName: map[string]*tenant{}}
	for _, name := range slices.Sorted(maps.Keys(tenants)) { // parents before children
		t.add(name).Tenant = tenants[name]
		t.quotas = t.quotas || tenants[name].Quota > 0
		t.users = t.users || tenants[name].MaxGPUsPerUser > 0 || tenants[name].MaxJobsPerUser > 0
	}
	names := slices.Sorted(maps.Keys(t.byName))
	for _, name := range slices.Backward(names) { // children before parents
		if n := t.byName[name]; n.parent != nil {
			t.deep = true
			if tenants[n.parent.name].Quota == 0 {
				n.parent.Quota += n.Quota
			}
		}
	}
	return t
}

// single adds a tenant that is a part of none.
func (t *tree) single(name string) *tenant {
	n := &tenant{name: name}
	n.chain = []*tenant{n}
	t.byName[name] = n
	return n
}

// add adds a tenant and those that it is a part of.
func (t *tree) add(name string) *tenant {
	if n := t.byName[name]; n != nil {
		return n
	}
	n := t.single(name)
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		n.parent = t.add(name[:i])
		n.chain = append(slices.Clone(n.parent.chain), n)
	}
	return n
}

// namespace is the namespace of that name. One that belongs to no tenant is a tenant
// of its own, without a quota.
func (ts *tenancy) namespace(name string) *namespace {
	n := ts.namespaces[name]
	if n == nil {
		owner := ts.opt.TenantOf(name)
		n = &namespace{tenant: ts.tree.byName[owner]}
		if n.tenant == nil || owner == "" {
			n.tenant = ts.tree.single(" " + name) // no tenant of the configuration has such a name
		}
		ts.namespaces[name] = n
	}
	return n
}

// sortedNamespaces are those of the jobs that the Queue has heard of, by name.
func (ts *tenancy) sortedNamespaces() (all []*namespace) {
	for _, name := range slices.Sorted(maps.Keys(ts.namespaces)) {
		all = append(all, ts.namespaces[name])
	}
	return all
}

// TenantOf is the tenant that a namespace belongs to: one that names it, else the one
// with the longest pattern that matches it; "" if there is none.
func (o Options) TenantOf(namespace string) string {
	owner, longest := "", -1
	for _, name := range slices.Sorted(maps.Keys(o.Tenants)) {
		for _, pattern := range o.Tenants[name].patterns(name) {
			if pattern == namespace {
				return name
			}
			if ok, _ := path.Match(pattern, namespace); ok && len(pattern) > longest {
				owner, longest = name, len(pattern)
			}
		}
	}
	return owner
}

func (t Tenant) patterns(name string) []string {
	if len(t.Namespaces) == 0 {
		return []string{name[strings.LastIndexByte(name, '/')+1:]}
	}
	return t.Namespaces
}

// checkTenants says what is wrong with the tree.
func (o Options) checkTenants() error {
	claimed := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Tenants)) {
		t := o.Tenants[name]
		if slices.Contains(strings.Split(name, "/"), "") || strings.ContainsRune(name, ' ') {
			return fmt.Errorf("queue: tenant %q: a name is words between slashes, such as research/vision", name)
		}
		switch {
		case t.Quota < 0:
			return fmt.Errorf("queue: tenant %q: quota %d is negative", name, t.Quota)
		case !(t.Weight >= 0):
			return fmt.Errorf("queue: tenant %q: weight %v is not a number of at least 0", name, t.Weight)
		case t.BorrowingLimit != nil && *t.BorrowingLimit < 0:
			return fmt.Errorf("queue: tenant %q: borrowing_limit %d is negative", name, *t.BorrowingLimit)
		case t.MaxGPUsPerUser < 0 || t.MaxJobsPerUser < 0:
			return fmt.Errorf("queue: tenant %q: max_gpus_per_user %d and max_jobs_per_user %d must not be negative", name, t.MaxGPUsPerUser, t.MaxJobsPerUser)
		}
		for _, pattern := range t.patterns(name) {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fmt.Errorf("queue: tenant %q: %q is no pattern of namespaces", name, pattern)
			}
			if other, ok := claimed[pattern]; ok {
				return fmt.Errorf("queue: namespace %q belongs to both tenant %q and tenant %q", pattern, other, name)
			}
			claimed[pattern] = name
		}
	}
	return o.checkQuotas()
}

// checkQuotas says whose children have more than it has.
func (o Options) checkQuotas() error {
	children := map[string]int{}
	for _, n := range newTree(o.Tenants).byName {
		if n.parent != nil {
			children[n.parent.name] += n.Quota
		}
	}
	for _, name := range slices.Sorted(maps.Keys(children)) {
		if q := o.Tenants[name].Quota; q > 0 && children[name] > q {
			return fmt.Errorf("queue: tenant %q: its parts have quotas of %d GPUs in all, it has %d", name, children[name], q)
		}
	}
	return nil
}

// countHeld counts an entry, and its GPUs with all tenants above it, as running or about to
// (1), or no longer (-1). Each entry that is not waiting is counted once, with the GPUs that
// it asks for, or has, if those are more: where Nomad has not told yet of all members that it
// placed, one gang may be known to have a GPU that was meant for another one.
func (ts *tenancy) countHeld(e *entry, sign int) {
	if sign > 0 {
		if e.counted = e.gpus; e.state != waiting {
			has := 0
			for _, m := range e.placement.Members {
				has += len(m.GPUs)
			}
			e.counted = max(e.gpus, has)
		}
	}
	e.of.tenant.count(e.job.User, sign*e.counted)
	if sign > 0 && e.state != waiting {
		e.saved = float64(e.counted) * (1 - ts.worth(e.placement))
	}
	for t := e.of.tenant; t != nil && e.saved != 0; t = t.parent {
		t.saved += float64(sign) * e.saved
	}
	if sign < 0 {
		e.saved = 0
	}
	ts.countJob(e, sign)
}

// overQuota reports whether the gang would take a tenant, its user, or its array, above a limit.
func (ts *tenancy) overQuota(e *entry) bool {
	return ts.overArray(e) || e.overJobs() != nil || e.limiting(e.least()) != nil
}

// limiting is the limit that the gang would break with so many GPUs more; nil for none.
func (e *entry) limiting(gpus int) *brokenLimit { return e.gpuBound(gpus, false) }

// tooLargeFor is the limit below what the gang needs beside so many GPUs that it has; nil for none.
func (e *entry) tooLargeFor(has int) *brokenLimit { return e.gpuBound(has+e.least(), true) }

// gpuBound is the first limit on the way up the tree, see [tenant.gpuBound].
func (e *entry) gpuBound(gpus int, never bool) *brokenLimit {
	for t := e.of.tenant; t != nil; t = t.parent {
		if b := t.gpuBound(e.job.User, gpus, never); b != nil {
			return b
		}
	}
	return nil
}

// byTenant reports whether who goes first depends on the tenant.
func (ts *tenancy) byTenant() bool { return ts.opt.FairShare || ts.tree.quotas }

// firstByTenant is the bucket that goes first: of each tenant the one that the order
// says, and of those the one of the tenant whose turn it is. A step of the walk changes
// one bucket, that of the first tenant, and decisions change whose quota is used: so tenants
// are sorted once, after each decision anew, and the first moves back in between.
func (p *pass) firstByTenant() *bucket {
	compare := func(a, b *tenant) int {
		return p.compare(p.now, a.turn.first, b.turn.first, a.turn.claim, b.turn.claim)
	}
	switch {
	case p.heads == nil:
		for _, b := range p.live {
			if p.doneWith(b) {
				continue
			}
			t := b.es[0].e.of.tenant
			if t.turn.pass != p.passes {
				t.turn = tenantTurn{pass: p.passes, buckets: t.turn.buckets[:0]}
				p.heads = append(p.heads, t)
			}
			t.turn.buckets = append(t.turn.buckets, b)
		}
		p.sorted = -1
	case len(p.heads) > 0 && !p.renew(p.heads[0]):
		p.heads = slices.Delete(p.heads, 0, 1)
	case len(p.heads) > 0 && p.sorted == p.decided:
		t, rest := p.heads[0], p.heads[1:]
		i, _ := slices.BinarySearchFunc(rest, t, compare)
		copy(p.heads, rest[:i])
		p.heads[i] = t
	}
	if p.sorted != p.decided {
		p.sorted = p.decided
		for _, t := range p.heads {
			p.renew(t)
		}
		slices.SortFunc(p.heads, compare)
	}
	if len(p.heads) == 0 {
		return nil
	}
	return p.heads[0].turn.first.bucket
}

// renew works out which of the tenant's gangs goes first, and its claim; it is false if
// none is left.
func (p *pass) renew(t *tenant) bool {
	r := &t.turn
	r.first = nil
	r.buckets = slices.DeleteFunc(r.buckets, func(b *bucket) bool {
		if len(b.es) == 0 || p.doneWith(b) {
			return true
		}
		if e := p.next(b); r.first == nil || e.key.compare(r.first.key) < 0 {
			r.first = e
		}
		return false
	})
	if r.first == nil {
		return false
	}
	r.claim = p.claimOf(r.first)
	return true
}

// compare compares the first gangs of two tenants, with their claims: one that stays
// within its quota goes before one that would borrow, then the tenant that had less for
// its weight.
func (ts *tenancy) compare(now time.Duration, a, b *entry, claimA, claimB uint8) int {
	if c := cmp.Compare(claimB, claimA); c != 0 {
		return c
	}
	if ts.opt.FairShare {
		if c := ts.compareShares(now, a.of.tenant, b.of.tenant); c != 0 {
			return c
		}
	}
	return a.key.compare(b.key)
}

// compareShares compares tenants as parts of the tenant that both belong to, as Slurm's
// Fair Tree does: what research has used counts when it is compared with sales, not when
// research/vision is with research/speech.
func (ts *tenancy) compareShares(now time.Duration, a, b *tenant) int {
	a, b = apart(a, b)
	if a == nil || b == nil { // one is a part of the other
		return 0
	}
	if c := cmp.Compare(ts.fair(a, now), ts.fair(b, now)); c != 0 || !ts.tree.deep {
		return c
	}
	// Equal parts compare by name. By their gangs, two tenants of one part and one of
	// another could each come before the next, in a circle.
	return cmp.Compare(a.name, b.name)
}

// claimOf says at which levels of the tree the gang stays within quota, a bit each, the
// top in the highest: the greater number has the better claim, and the top decides
// first. A level without a quota, or below the gang's tenant, has the bit of the one
// above it. Levels beyond the eighth do not count.
func (ts *tenancy) claimOf(e *entry) uint8 {
	if !ts.tree.quotas {
		return 0
	}
	var claim uint8
	within := false
	chain, more := e.of.tenant.chain, e.least()
	if e.claim != nil {
		more -= e.claim.gpus // which are promised
	}
	for level := range 8 {
		if level < len(chain) {
			if t := chain[level]; t.Quota > 0 {
				within = t.gpus+t.promised+more <= t.Quota
			}
		}
		if claim <<= 1; within {
			claim |= 1
		}
	}
	return claim
}

// inTurns sorts waiting gangs, which are in order of their keys, as the tenants take
// turns. Each that is in its place counts as if it ran when the next is chosen, as it
// will when its turn comes; afterwards none does. It is for lists, which show the whole
// queue; a pass asks firstByTenant step by step.
func (ts *tenancy) inTurns(now time.Duration, es []*entry) {
	if !ts.byTenant() {
		return
	}
	count := func(e *entry, sign int) {
		ts.countHeld(e, sign)
		if e.claim != nil {
			ts.promise(e.claim, -sign)
		}
	}
	var heads []*tenant
	rest := map[*tenant][]*entry{}
	for _, e := range es {
		if rest[e.of.tenant] == nil {
			heads = append(heads, e.of.tenant)
		}
		rest[e.of.tenant] = append(rest[e.of.tenant], e)
	}
	for i := range es {
		t := slices.MinFunc(heads, func(a, b *tenant) int {
			return ts.compare(now, rest[a][0], rest[b][0], ts.claimOf(rest[a][0]), ts.claimOf(rest[b][0]))
		})
		es[i] = rest[t][0]
		count(es[i], 1)
		if rest[t] = rest[t][1:]; len(rest[t]) == 0 {
			heads = slices.DeleteFunc(heads, func(h *tenant) bool { return h == t })
		}
	}
	for _, e := range es {
		count(e, -1)
	}
}

// TenantUse is what a tenant has, uses and has used.
type TenantUse struct {
	Tenant string `json:"tenant"`
	// Namespaces are those of its own and of its parts that have jobs or have used GPUs.
	Namespaces []string `json:"namespaces"`
	GPUs       int      `json:"gpus"` // of gangs that run or are about to, whether they can be served or not
	Weight     float64  `json:"weight"`
	// Awaited are GPUs beyond those that count as its, too: members of its running jobs wait
	// for them. Only a caller who knows who holds what tells them from GPUs.
	Awaited int `json:"awaited,omitempty"`
	// Quota and Limit are GPUs; Limit is nil where nothing bounds it.
	Quota int  `json:"quota,omitempty"`
	Limit *int `json:"limit,omitempty"`
	// MaxGPUsPerUser and MaxJobsPerUser are the limits of each of its users, Users those that have
	// GPUs; nil where users have no limits.
	MaxGPUsPerUser int       `json:"max_gpus_per_user,omitempty"`
	MaxJobsPerUser int       `json:"max_jobs_per_user,omitempty"`
	Users          []UserUse `json:"users,omitempty"`
	// GPUHours is what it has used, decayed; 0 where nothing is remembered.
	GPUHours float64 `json:"gpu_hours"`
	// Priced reports whether GPU hours count by the price of their model.
	Priced bool `json:"priced,omitempty"`
	// Share is the part of all GPU time that is its by its weight and those above,
	// among the tenants that have used or want any; Times how many times that it has
	// used. 0: nobody has used any.
	Share float64 `json:"share"`
	Times float64 `json:"times"`
	// Stops is what it came to that its gangs were stopped, or others for its gangs.
	Stops Stops `json:"stopped"`
}

// Borrowed is how many of its GPUs are not its own.
func (u TenantUse) Borrowed() int { return max(0, u.GPUs-u.Quota) }

// shown is what a tenant is called: that of a namespace that belongs to none, as the namespace, unless a
// tenant is called so.
func (t tree) shown(name string) string {
	namespace, own := strings.CutPrefix(name, " ")
	if own && t.byName[namespace] != nil {
		return namespace + " (namespace)"
	}
	return namespace
}

// Tenants is how all tenants stand that are configured or have used or want GPUs, by
// name (see shown). A tenant that neither wants nor has used any leaves its share to the
// other parts of its parent.
func (q *Queue) Tenants(now time.Duration) []TenantUse {
	wants := map[*tenant]bool{}
	for _, e := range q.entries {
		for t := e.of.tenant; t != nil; t = t.parent {
			wants[t] = true
		}
	}
	weights, total := map[*tenant]float64{}, 0.0 // of the parts of each that take part
	for _, name := range slices.Sorted(maps.Keys(q.tree.byName)) {
		t := q.tree.byName[name]
		used := t.usage.value(q.decay(), now)
		if wants[t] || used >= leastUsage {
			wants[t] = true
			weights[t.parent] += t.weight()
		}
		if t.parent == nil {
			total += used
		}
	}
	names := map[*tenant][]string{}
	for _, name := range slices.Sorted(maps.Keys(q.namespaces)) {
		for t := q.namespaces[name].tenant; t != nil; t = t.parent {
			names[t] = append(names[t], name)
		}
	}
	var out []TenantUse
	for _, name := range slices.Sorted(maps.Keys(q.tree.byName)) {
		t := q.tree.byName[name]
		u := TenantUse{Tenant: q.tree.shown(name), Namespaces: names[t], GPUs: t.gpus, Weight: t.weight(), Quota: t.Quota, GPUHours: t.usage.value(q.decay(), now) / 3600, Priced: q.opt.Usage == UsagePriced,
			MaxGPUsPerUser: t.MaxGPUsPerUser, MaxJobsPerUser: t.MaxJobsPerUser, Users: t.sortedUsers()}
		if most, ok := t.limit(); ok {
			u.Limit = &most
		}
		for _, namespace := range names[t] {
			u.Stops.add(q.namespaces[namespace].stops)
		}
		if wants[t] {
			u.Share = 1
			for a := t; a != nil; a = a.parent {
				u.Share *= a.weight() / weights[a.parent]
			}
		}
		if total > 0 && u.Share > 0 {
			u.Times = u.GPUHours * 3600 / (total * u.Share)
		}
		out = append(out, u)
	}
	return out
}

// TenantUse is how the tenant stands that a namespace belongs to.
func (q *Queue) TenantUse(namespace string, now time.Duration) TenantUse {
	t := q.namespace(namespace).tenant // which is in the tree
	i, _ := slices.BinarySearch(slices.Sorted(maps.Keys(q.tree.byName)), t.name)
	return q.Tenants(now)[i] // by the names in the tree: two may be shown by the same
}
