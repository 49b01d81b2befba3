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

	"github.com/nomad-pal/nomad-pal/pal"
	"github.com/nomad-pal/nomad-pal/pal/reason"
)

// Tenant is the configuration of a tenant. Tenants form a tree: "research/vision" is a child of
// "research". The terms are Kueue's.
type Tenant struct {
	// Namespaces are the namespaces that belong to the tenant: names, or patterns with * and ?. If
	// the list is empty, the tenant has one namespace, whose name is the last part of the tenant's
	// name.
	Namespaces []string `json:"namespaces,omitempty" hcl:"namespaces,optional"`
	// Weight is the tenant's weight in fair share, relative to the other children of its parent. 0
	// means 1.
	Weight float64 `json:"weight,omitempty" hcl:"weight,optional"`
	// Quota is the tenant's nominal quota in GPUs. Other tenants can borrow these GPUs while they
	// are idle. If Quota is 0, a tenant with children has the sum of their quotas. If Quota is 0, a
	// tenant without children has no quota, and all GPUs that it holds count as borrowed.
	Quota int `json:"quota,omitempty" hcl:"quota,optional"`
	// BorrowingLimit is the maximum number of GPUs beyond Quota that the tenant can hold; nil means
	// no maximum.
	BorrowingLimit *int `json:"borrowing_limit,omitempty" hcl:"borrowing_limit,optional"`
	// MaxGPUsPerUser is the maximum number of GPUs of each user. MaxJobsPerUser is the maximum
	// number of running jobs of each user. 0 means no maximum.
	MaxGPUsPerUser int `json:"max_gpus_per_user,omitempty" hcl:"max_gpus_per_user,optional"`
	MaxJobsPerUser int `json:"max_jobs_per_user,omitempty" hcl:"max_jobs_per_user,optional"`
	// DefaultPreempt reports whether the tenant's batch jobs can be stopped for other jobs by
	// default. If DefaultPreempt is nil, the parent's default applies.
	DefaultPreempt *bool `json:"default_preempt,omitempty" hcl:"default_preempt,optional"`
}

// tenant is one node of the tree: a configured tenant, or a namespace that belongs to none.
type tenant struct {
	Tenant
	name   string
	parent *tenant   // nil at the top
	chain  []*tenant // its ancestors and itself, the top first
	// The following fields are counted again in each pass; see count.
	gpus     float64            // held by gangs that run or are about to run, and by jobs outside the Queue
	promised float64            // GPUs that are promised to the tenant's gangs; they count towards quotas and limits
	freeing  float64            // GPUs of gangs that are being stopped or shrunk
	users    map[string]UserUse // use of each user, with promised GPUs; only if users have limits
	used     float64            // decayed usage, in GPU seconds
}

// tenancy holds the tenants, their namespaces, and the counts for limits.
type tenancy struct {
	opt        *Options
	tree       tree
	namespaces map[string]*namespace
	usageFrom  time.Duration  // usage before this time was counted by an earlier Queue
	arrays     map[string]int // jobs that count towards each array's limit; counted again in each pass
	outside    map[Payer]Held // see Outside; replaced, never changed
}

func newTenancy(o *Options) tenancy {
	return tenancy{opt: o, tree: newTree(o.Tenants), namespaces: map[string]*namespace{}}
}

// clone returns a copy, without what each pass counts.
func (ts *tenancy) clone(o *Options) tenancy {
	c := newTenancy(o)
	c.usageFrom, c.outside = ts.usageFrom, ts.outside
	for name, n := range ts.namespaces {
		own := c.namespace(name)
		own.usage, own.stops = n.usage, n.stops
	}
	return c
}

// count counts what each tenant, user and array holds now, and the tenants' usage.
func (q *Queue) count(now time.Duration) {
	for _, t := range q.tree.byName {
		t.gpus, t.promised = 0, 0
		t.freeing, t.used = 0, 0
		clear(t.users)
	}
	q.arrays = map[string]int{}
	for _, n := range q.sortedNamespaces() {
		used := n.usage.value(q.decay(), now)
		for t := n.tenant; t != nil; t = t.parent {
			t.used += used
		}
	}
	for _, by := range slices.SortedFunc(maps.Keys(q.outside), Payer.compare) {
		h := q.outside[by]
		n := q.namespace(by.Tenant)
		n.tenant.count(by.User, h.GPUs)
		n.tenant.countUser(by.User, 0, h.Jobs)
	}
	for _, e := range q.all {
		switch {
		case e.state != waiting:
			q.countHeld(e, 1)
		case e.promised != nil:
			q.promise(e, 1)
		}
		if e.state == stopping {
			q.countFreeing(e)
		}
	}
}

// namespace is a Nomad namespace that has or had jobs. Usage is also counted per namespace, because
// a later configuration can assign the namespace to another tenant.
type namespace struct {
	tenant *tenant
	usage  usage
	stops  Stops
}

// count adds GPUs to the counts of the tenant, its parents and one of its users. A negative number
// of GPUs is subtracted. A part of a shared GPU counts as a fraction.
func (t *tenant) count(user string, gpus float64) {
	t.countUser(user, gpus, 0)
	for ; t != nil; t = t.parent {
		t.gpus += gpus
	}
}

// Held counts the running jobs of a payer and their GPUs.
type Held struct {
	GPUs float64 // a part of a shared GPU counts as a fraction
	Jobs int
}

// Outside sets what each tenant and user holds in jobs that are not in the Queue. These jobs count
// towards limits and usage like jobs of the Queue, but the Queue cannot stop them.
func (ts *tenancy) Outside(now time.Duration, held map[Payer]Held) {
	if maps.Equal(held, ts.outside) {
		return
	}
	ts.bookOutside(now, ts.outside, -1)
	ts.outside = held
	ts.bookOutside(now, held, 1)
}

// Counts reports whether the GPUs of a gang count towards its tenant's limits.
func (q *Queue) Counts(id string) bool {
	e := q.entries[id]
	return e != nil && e.state != waiting
}

// weight returns the weight in fair share, which is 1 by default.
func (t *tenant) weight() float64 {
	return cmp.Or(t.Weight, 1)
}

// gpuBound returns the limit of the tenant, or of its user, that the additional GPUs would exceed;
// nil for none. If `never` is set, GPUs that are already held do not count. In that case, the
// result is a limit that the request exceeds by itself.
func (t *tenant) gpuBound(user string, gpus float64, never bool) *brokenLimit {
	user = ShownUser(user)
	held, his := t.gpus+t.promised, t.users[user].GPUs
	if never {
		held, his = 0, 0
	}
	if most, ok := t.limit(); ok && held+gpus > float64(most) {
		return &brokenLimit{tenant: t, held: held, most: most}
	}
	most := t.MaxGPUsPerUser
	if most > 0 && his+gpus > float64(most) {
		return &brokenLimit{tenant: t, user: user, held: his, most: most}
	}
	return nil
}

// limit returns the maximum number of GPUs that the tenant can hold; ok is false if there is no
// maximum.
func (t *tenant) limit() (gpus int, ok bool) {
	if t.BorrowingLimit == nil {
		return 0, false
	}
	return t.Quota + min(*t.BorrowingLimit, math.MaxInt-t.Quota), true
}

// tree holds the configured tenants, and a tenant for each namespace that belongs to none of them.
type tree struct {
	byName map[string]*tenant
	quotas bool // at least one tenant has a quota
	users  bool // at least one tenant has limits for users
	deep   bool // at least one tenant has children
}

// newTree returns the tree of the tenants, which must be valid. A parent without a quota gets the
// sum of its children's quotas.
func newTree(tenants map[string]Tenant) tree {
	t := tree{byName: map[string]*tenant{}}
	for _, name := range slices.Sorted(maps.Keys(tenants)) { // parents before children
		t.add(name).Tenant = tenants[name]
		t.quotas = t.quotas || tenants[name].Quota > 0
		t.users = t.users || tenants[name].MaxGPUsPerUser > 0 || tenants[name].MaxJobsPerUser > 0
	}
	names := slices.Sorted(maps.Keys(t.byName))
	for _, name := range slices.Backward(names) { // children before parents
		n := t.byName[name]
		if n.parent != nil {
			t.deep = true
			if tenants[n.parent.name].Quota == 0 {
				n.parent.Quota += n.Quota
			}
		}
	}
	return t
}

// single adds a tenant without a parent, and returns it.
func (t *tree) single(name string) *tenant {
	n := &tenant{name: name, users: map[string]UserUse{}}
	n.chain = []*tenant{n}
	t.byName[name] = n
	return n
}

// add returns the tenant of that name. If the tree does not have this tenant, add adds the tenant
// and its parents.
func (t *tree) add(name string) *tenant {
	if n, ok := t.byName[name]; ok {
		return n
	}
	n := t.single(name)
	i := strings.LastIndexByte(name, '/')
	if i >= 0 {
		n.parent = t.add(name[:i])
		n.chain = append(slices.Clone(n.parent.chain), n)
	}
	return n
}

// namespace returns the namespace of that name, and adds it if it is new. A namespace that belongs
// to no tenant gets a tenant of its own, without a quota.
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

// sortedNamespaces returns all namespaces that the Queue has seen, sorted by name.
func (ts *tenancy) sortedNamespaces() (all []*namespace) {
	for _, name := range slices.Sorted(maps.Keys(ts.namespaces)) {
		all = append(all, ts.namespaces[name])
	}
	return all
}

// TenantOf returns the name of the tenant to which a namespace belongs. This is the tenant that
// names the namespace or, if there is none, the tenant with the longest matching pattern. It
// returns "" if no tenant matches.
func (o Options) TenantOf(namespace string) string {
	owner, longest := "", -1
	for _, name := range slices.Sorted(maps.Keys(o.Tenants)) {
		for _, pattern := range o.Tenants[name].patterns(name) {
			if pattern == namespace {
				return name
			}
			ok, _ := path.Match(pattern, namespace)
			if ok && len(pattern) > longest {
				owner, longest = name, len(pattern)
			}
		}
	}
	return owner
}

// patterns returns the names and patterns of the namespaces of the tenant with this name.
func (t Tenant) patterns(name string) []string {
	if len(t.Namespaces) == 0 {
		return []string{name[strings.LastIndexByte(name, '/')+1:]}
	}
	return t.Namespaces
}

// checkTenants returns an error if the tree of tenants is invalid.
func (o Options) checkTenants() error {
	claimed := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o.Tenants)) {
		t := o.Tenants[name]
		if slices.Contains(strings.Split(name, "/"), "") || strings.ContainsRune(name, ' ') {
			return fmt.Errorf("queue: tenant %q: a name consists of words separated by slashes, such as research/vision", name)
		}
		switch {
		case t.Quota < 0:
			return fmt.Errorf("queue: tenant %q: quota %d is negative", name, t.Quota)
		case !(t.Weight >= 0):
			return fmt.Errorf("queue: tenant %q: weight %v is neither 0 nor a positive number", name, t.Weight)
		case t.BorrowingLimit != nil && *t.BorrowingLimit < 0:
			return fmt.Errorf("queue: tenant %q: borrowing_limit %d is negative", name, *t.BorrowingLimit)
		case t.MaxGPUsPerUser < 0 || t.MaxJobsPerUser < 0:
			return fmt.Errorf("queue: tenant %q: max_gpus_per_user %d and max_jobs_per_user %d must not be negative", name, t.MaxGPUsPerUser, t.MaxJobsPerUser)
		}
		for _, pattern := range t.patterns(name) {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fmt.Errorf("queue: tenant %q: %q is not a pattern of namespaces", name, pattern)
			}
			if other, ok := claimed[pattern]; ok {
				return fmt.Errorf("queue: namespace %q belongs to both tenant %q and tenant %q", pattern, other, name)
			}
			claimed[pattern] = name
		}
	}
	return o.checkQuotas()
}

// checkQuotas returns an error if children have more quota than their parent.
func (o Options) checkQuotas() error {
	children := map[string]int{}
	for _, n := range newTree(o.Tenants).byName {
		if n.parent != nil {
			children[n.parent.name] += n.Quota
		}
	}
	for _, name := range slices.Sorted(maps.Keys(children)) {
		q := o.Tenants[name].Quota
		if q > 0 && children[name] > q {
			return fmt.Errorf("queue: tenant %q: the quotas of its children add up to %d GPUs, more than its own quota of %d", name, children[name], q)
		}
	}
	return nil
}

// countHeld adds a gang and its GPUs to the counts of its tenants, user and array (sign 1), or
// subtracts them (-1).
func (ts *tenancy) countHeld(e *entry, sign int) {
	e.of.tenant.count(e.job.User, float64(sign)*e.held())
	ts.countJob(e, sign)
}

// held returns the number of GPUs for which a gang counts: the requested number or the number in the
// placement, whichever is larger. The placement can have more GPUs for a short time, before Nomad has
// reported all new members on a node. A gang that grows counts with its new size.
func (e *entry) held() float64 {
	on, gpus := e.placement, e.gpus
	switch {
	case e.state == waiting:
		return e.amount(gpus)
	case e.state == moving && e.elastic() && len(e.target.Members) > len(on.Members):
		on, gpus = e.target, 0
	}
	has := 0
	for _, m := range on.Members {
		has += len(m.GPUs)
	}
	return e.amount(max(0, gpus-has)) + e.has(on)
}

// promise adds the GPUs that are promised to a gang to the counts of its tenants, user and array (sign
// 1), or subtracts them (-1).
func (ts *tenancy) promise(e *entry, sign int) {
	gpus := float64(sign) * e.amount(e.least())
	for t := e.of.tenant; t != nil; t = t.parent {
		t.promised += gpus
	}
	e.of.tenant.countUser(e.job.User, gpus, 0)
	ts.countJob(e, sign)
}

// amount converts a number of requested GPUs to whole GPUs. A part of a shared GPU counts as a
// fraction of a GPU.
func (e *entry) amount(gpus int) float64 { return e.job.Gang.Amount(gpus) }

// has returns the size of a placement of the gang in whole GPUs.
func (e *entry) has(p pal.Placement) float64 {
	if p.Amount == 0 {
		return e.amount(len(p.GPUs()))
	}
	return p.Amount
}

// overQuota reports whether the gang would exceed a limit of one of its tenants, its user or its
// array if it started now.
func (ts *tenancy) overQuota(e *entry) bool {
	return ts.overArray(e) || e.overJobs() != nil || e.limiting(e.least()) != nil
}

// limiting returns the limit that the gang would exceed if it got this number of additional GPUs
// now. If there is no such limit, limiting returns nil.
func (e *entry) limiting(gpus int) *brokenLimit { return e.gpuBound(e.amount(gpus), false) }

// tooLarge returns a limit that the gang exceeds by itself, so that waiting does not help. If there
// is no such limit, tooLarge returns nil.
func (e *entry) tooLarge() *brokenLimit { return e.gpuBound(e.amount(e.least()), true) }

// gpuBound calls [tenant.gpuBound] for the gang's tenant and then for each parent, and returns the
// first result that is not nil.
func (e *entry) gpuBound(gpus float64, never bool) *brokenLimit {
	for t := e.of.tenant; t != nil; t = t.parent {
		b := t.gpuBound(e.job.User, gpus, never)
		if b != nil {
			return b
		}
	}
	return nil
}

// inTurns returns a function that returns the waiting gangs one after the other, in the order in which
// the Queue tries them, and nil at the end. It leaves out gangs for which `try` returns false when it
// is their turn. Within a tenant, the order of the queue decides. Among tenants, compare decides again
// each time, because each start changes what tenants hold.
func (q *Queue) inTurns(try func(*entry) bool) (next func() *entry) {
	var heads [][]*entry // the gangs of each tenant; of all tenants, if tenants do not count
	at := map[*tenant]int{}
	for _, e := range q.line {
		t := e.of.tenant
		if !q.opt.FairShare && !q.tree.quotas {
			t = nil
		}
		if _, ok := at[t]; !ok {
			at[t], heads = len(heads), append(heads, nil)
		}
		heads[at[t]] = append(heads[at[t]], e)
	}
	return func() *entry {
		for i, es := range heads {
			for len(es) > 0 && (es[0].state != waiting || !try(es[0])) {
				es = es[1:]
			}
			heads[i] = es
		}
		heads = slices.DeleteFunc(heads, func(es []*entry) bool { return len(es) == 0 })
		if len(heads) == 0 {
			return nil
		}
		first := 0
		for i := range heads {
			if q.compare(heads[i][0], heads[first][0]) < 0 {
				first = i
			}
		}
		e := heads[first][0]
		heads[first] = heads[first][1:]
		return e
	}
}

// compare decides which of the gangs a and b goes first, the first gangs of two tenants. A gang that stays within its
// tenant's quota goes before a gang that would borrow. If the quotas make no difference, FairShare
// puts the gang first whose tenant has the lower usage relative to its weight. Last, the keys
// decide.
func (ts *tenancy) compare(a, b *entry) int {
	if a == b {
		return 0
	}
	c := cmp.Compare(ts.claimOf(b), ts.claimOf(a))
	if c != 0 {
		return c
	}
	if ts.opt.FairShare {
		c := ts.compareShares(a.of.tenant, b.of.tenant)
		if c != 0 {
			return c
		}
	}
	return a.memo.key.compare(b.memo.key)
}

// compareShares compares the usage of two tenants at the level below their common parent, as
// Slurm's Fair Tree does. For example, the usage of research counts in a comparison with sales, but
// not in a comparison of research/vision with research/speech.
func (ts *tenancy) compareShares(a, b *tenant) int {
	a, b = apart(a, b)
	if a == nil || b == nil { // the tenants are equal, or one contains the other
		return 0
	}
	c := cmp.Compare(ts.fair(a), ts.fair(b))
	if c != 0 || !ts.tree.deep {
		return c
	}
	// Branches with equal usage are compared by name. If the keys of the gangs decided, the order
	// of three tenants in two branches could be a cycle.
	return cmp.Compare(a.name, b.name)
}

// claimOf says at which levels of the tree the gang stays within its tenants' quotas. The result
// has one bit for each level. The top of the tree has the highest bit. A gang with a greater result
// goes first. A level that has no quota, or that is below the gang's tenant, has the same bit as
// the level above it.
func (ts *tenancy) claimOf(e *entry) uint8 {
	if !ts.tree.quotas {
		return 0
	}
	var claim uint8
	within := false
	chain, more := e.of.tenant.chain, e.amount(e.least())
	if e.promised != nil {
		more = 0 // t.promised already counts these
	}
	for level := range 8 {
		if level < len(chain) {
			t := chain[level]
			if t.Quota > 0 {
				within = t.gpus+t.promised+more <= float64(t.Quota)
			}
		}
		claim <<= 1
		if within {
			claim |= 1
		}
	}
	return claim
}

// TenantUse describes a tenant's limits, its current GPUs and its usage.
type TenantUse struct {
	Tenant string `json:"tenant"` // the tenant's name; for a namespace without a tenant, the namespace
	// Namespaces are the namespaces of the tenant and its children that have jobs or have used
	// GPUs.
	Namespaces []string `json:"namespaces"`
	// GPUs is the number of GPUs of jobs that run or are about to run, with the gate or without it.
	// A part of a shared GPU counts as a fraction of a GPU, as in all comparisons with Quota and
	// Limit.
	GPUs float64 `json:"gpus"`
	// Ungated is the part of GPUs that jobs without the gate hold. Nomad starts such jobs without
	// asking the queue, so the tenant's limits do not bind them.
	Ungated float64 `json:"ungated,omitempty"`
	Weight  float64 `json:"weight"` // the tenant's weight in fair share, relative to the other children of its parent
	// Awaited is the number of GPUs that members of the tenant's running jobs still wait for.
	// Limits include these GPUs, but the field GPUs does not.
	Awaited float64 `json:"awaited,omitempty"`
	Quota   int     `json:"quota,omitempty"` // in GPUs; 0: none
	Limit   *int    `json:"limit,omitempty"` // in GPUs; nil: none
	// MaxGPUsPerUser and MaxJobsPerUser are the limits of each user. Users lists the users that
	// have GPUs or jobs; nil if users have no limits.
	MaxGPUsPerUser int       `json:"max_gpus_per_user,omitempty"`
	MaxJobsPerUser int       `json:"max_jobs_per_user,omitempty"`
	Users          []UserUse `json:"users,omitempty"`
	// GPUHours is the tenant's decayed usage; 0 if usage is not kept.
	GPUHours float64 `json:"gpu_hours"`
	// HalfLifeSeconds is the time after which used GPU hours count only half.
	HalfLifeSeconds float64 `json:"half_life_seconds,omitempty"`
	// Share is the fraction of all GPU time to which the tenant's weight entitles it. Only tenants
	// that have jobs or have used GPU time have a share. Times is the tenant's fraction of the used
	// GPU time divided by Share; 0 if no tenant has used GPU time.
	Share float64 `json:"share"`
	Times float64 `json:"times"`
	// Stops sums up the stops of the tenant's gangs, and the time that stops of other gangs saved
	// its gangs.
	Stops Stops `json:"stopped"`
}

// Borrowed returns how many of the tenant's GPUs are beyond its quota.
func (u TenantUse) Borrowed() float64 { return max(0, u.GPUs-float64(u.Quota)) }

// shown returns the displayed name of a tenant. For a namespace without a tenant, shown returns the
// namespace. If a tenant has the same name, the addition "(namespace)" follows.
func (t tree) shown(name string) string {
	namespace, own := strings.CutPrefix(name, " ")
	if own && t.byName[namespace] != nil {
		return namespace + " (namespace)"
	}
	return namespace
}

// Tenants returns all configured tenants, and a tenant for each namespace that the Queue has seen
// and that belongs to no tenant. The result is sorted by name. If a tenant neither has jobs nor has
// used GPUs, its siblings get its share.
func (q *Queue) Tenants(now time.Duration) []TenantUse {
	q.count(now)
	wants := map[*tenant]bool{}
	for _, e := range q.all {
		for t := e.of.tenant; t != nil; t = t.parent {
			wants[t] = true
		}
	}
	for by := range q.outside {
		for t := q.namespace(by.Tenant).tenant; t != nil; t = t.parent {
			wants[t] = true
		}
	}
	weights, total := map[*tenant]float64{}, 0.0 // for each parent, the total weight of its children that take part
	for _, name := range slices.Sorted(maps.Keys(q.tree.byName)) {
		t := q.tree.byName[name]
		if wants[t] || t.used >= leastUsage {
			wants[t] = true
			weights[t.parent] += t.weight()
		}
		if t.parent == nil {
			total += t.used
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
		u := TenantUse{Tenant: q.tree.shown(name), Namespaces: names[t], GPUs: reason.Rounded(t.gpus), Weight: t.weight(), Quota: t.Quota, GPUHours: t.used / 3600, HalfLifeSeconds: q.opt.HalfLife.Seconds(),
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

// TenantUse returns the entry of [Queue.Tenants] for the tenant of a namespace.
func (q *Queue) TenantUse(namespace string, now time.Duration) TenantUse {
	t := q.namespace(namespace).tenant // adds a tenant for a namespace that the Queue has not seen
	i, _ := slices.BinarySearch(slices.Sorted(maps.Keys(q.tree.byName)), t.name)
	return q.Tenants(now)[i] // look it up by its name in the tree, which is unique; shown names may not be
}
