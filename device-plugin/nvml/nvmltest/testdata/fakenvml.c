// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0
//
// A libnvidia-ml.so.1 without a driver, for tests. It answers from the text file
// that FAKE_NVML names, or else from the one beside the library with ".state"
// added to its name, and reads that file again whenever it changes. Lines:
//
//   SCOPE KEY VALUE
//
// SCOPE is "sys", "gpu0".. or "mig0.1" (second MIG instance of the first GPU);
// a GPU exists if it has a uuid. A value that is absent is NOT_SUPPORTED.
// "ret.<function>" in any scope makes that function return a code; "lost 1"
// makes all calls for a GPU return GPU_IS_LOST, "hang 1" makes them wait until
// the line is gone. "sys event.<n> GPU TYPE DATA GI" are events, delivered in
// the order of n, each once; "sys init CODE" fails initialization, and with it
// every call. "sys crash 1" crashes the process at a call for a GPU. "sys call_us N" makes every call compute for N microseconds, so that
// the CPU time of an idle plugin is realistic.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <libgen.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, LOST = 15 };
enum { GPUS = 32, MIGS = 8, LINES = 4096 };
typedef unsigned long long u64;
typedef struct { int gpu, mig; } dev; // mig -1: the GPU itself

static dev devices[GPUS][MIGS + 1];
static struct line { char scope[16], key[64], value[96]; } lines[LINES];
static int nlines, inits;
static struct timespec stamp;
static off_t size_;
static ino_t inode;
static int delivered;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// state_file is the path of the state file; 0 without one.
static const char *state_file(void) {
	static char beside[4096];
	const char *path = getenv("FAKE_NVML");
	Dl_info me;
	if (path) return path;
	if (beside[0]) return beside;
	if (!dladdr(&inits, &me)) return 0;
	snprintf(beside, sizeof beside, "%s.state", me.dli_fname);
	return beside;
}

static int order(const void *a, const void *b) {
	int c = strcmp(((const struct line *)a)->scope, ((const struct line *)b)->scope);
	return c ? c : strcmp(((const struct line *)a)->key, ((const struct line *)b)->key);
}

static void load(void) {
	const char *path = state_file();
	struct stat st;
	if (!path || stat(path, &st) != 0) return;
	if (st.st_mtim.tv_sec == stamp.tv_sec && st.st_mtim.tv_nsec == stamp.tv_nsec && st.st_size == size_ && st.st_ino == inode) return;
	FILE *f = fopen(path, "r");
	if (!f) return;
	stamp = st.st_mtim; size_ = st.st_size; inode = st.st_ino; nlines = 0;
	char line[256];
	while (nlines < LINES && fgets(line, sizeof line, f))
		if (sscanf(line, "%15s %63s %95[^\n]", lines[nlines].scope, lines[nlines].key, lines[nlines].value) == 3) nlines++;
	fclose(f);
	qsort(lines, (size_t)nlines, sizeof lines[0], order);
}

// refresh reads the file if it has changed: once for each call that is answered.
static void refresh(void) {
	pthread_mutex_lock(&lock);
	load();
	pthread_mutex_unlock(&lock);
}

// find copies the value of a key; 0 when there is none.
static int find(const char *scope, const char *key, char *out, size_t n) {
	struct line want, *hit;
	snprintf(want.scope, sizeof want.scope, "%s", scope);
	snprintf(want.key, sizeof want.key, "%s", key);
	pthread_mutex_lock(&lock);
	hit = bsearch(&want, lines, (size_t)nlines, sizeof lines[0], order);
	if (hit) snprintf(out, n, "%s", hit->value);
	pthread_mutex_unlock(&lock);
	return hit != 0;
}

static void scope_of(const dev *d, char *out, size_t n) {
	if (d->mig < 0) snprintf(out, n, "gpu%d", d->gpu);
	else snprintf(out, n, "mig%d.%d", d->gpu, d->mig);
}

static int num(const char *scope, const char *key, u64 *v) {
	char s[96];
	if (!find(scope, key, s, sizeof s)) return NOT_SUPPORTED;
	*v = strtoull(s, 0, 0);
	return SUCCESS;
}

// count appends the function's name to the file that FAKE_NVML_CALLS names.
static void count(const char *function) {
	const char *path = getenv("FAKE_NVML_CALLS");
	FILE *f = path ? fopen(path, "a") : 0;
	if (!f) return;
	fprintf(f, "%s\n", function);
	fclose(f);
}

// hang waits until the scope's "hang" is gone.
static void hang(const char *scope) {
	u64 v;
	for (; num(scope, "hang", &v) == SUCCESS && v; refresh()) usleep(20000);
}

// busy computes for that time, as a driver does. Sleeping would add wakeups that a driver does
// not cause.
static void busy(u64 us) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	u64 end = (u64)t.tv_sec * 1000000 + (u64)t.tv_nsec / 1000 + us;
	do clock_gettime(CLOCK_MONOTONIC, &t);
	while ((u64)t.tv_sec * 1000000 + (u64)t.tv_nsec / 1000 < end);
}

// Every function calls gate first. It returns the code that the file sets for the function.
static int gate(const char *function, const dev *d) {
	u64 v; char scope[16], key[96], gpu[16];
	count(function);
	refresh();
	if (inits == 0) return UNINITIALIZED;
	if (num("sys", "init", &v) == SUCCESS && v) return (int)v;
	snprintf(key, sizeof key, "ret.%s", function);
	if (num("sys", key, &v) == SUCCESS) return (int)v;
	hang("sys");
	if (num("sys", "call_us", &v) == SUCCESS) busy(v);
	if (!d) return SUCCESS;
	if (num("sys", "crash", &v) == SUCCESS) raise(SIGSEGV);
	snprintf(gpu, sizeof gpu, "gpu%d", d->gpu);
	hang(gpu);
	if (num(gpu, "lost", &v) == SUCCESS && v) return LOST;
	scope_of(d, scope, sizeof scope);
	if (num(scope, key, &v) == SUCCESS) return (int)v;
	return SUCCESS;
}
#define GATE(d) do { int r_ = gate(__func__, d); if (r_) return r_; } while (0)

static int text(const char *function, const dev *d, const char *key, char *out, unsigned n) {
	char scope[16], v[96];
	int r = gate(function, d);
	if (r) return r;
	scope_of(d, scope, sizeof scope);
	if (!find(scope, key, v, sizeof v)) return NOT_SUPPORTED;
	snprintf(out, n, "%s", v);
	return SUCCESS;
}

static int value(const char *function, const dev *d, const char *key, u64 *v) {
	char scope[16];
	int r = gate(function, d);
	if (r) return r;
	scope_of(d, scope, sizeof scope);
	return num(scope, key, v);
}
#define UINT(name, key) int name(dev *d, unsigned *out) { u64 v = 0; int r = value(__func__, d, key, &v); if (!r) *out = (unsigned)v; return r; }
#define ULL(name, key) int name(dev *d, u64 *out) { return value(__func__, d, key, out); }

int nvmlInit_v2(void) {
	u64 v;
	count(__func__);
	refresh();
	if (num("sys", "init", &v) == SUCCESS && v) return (int)v;
	hang("sys");
	inits++;
	for (int g = 0; g < GPUS; g++) for (int m = 0; m <= MIGS; m++) { devices[g][m].gpu = g; devices[g][m].mig = m - 1; }
	return SUCCESS;
}
int nvmlInitWithFlags(unsigned f) { (void)f; return nvmlInit_v2(); }
int nvmlShutdown(void) { count(__func__); refresh(); hang("sys"); if (inits) inits--; return SUCCESS; }
const char *nvmlErrorString(int r) { return r ? "fake error" : "Success"; }
int nvmlSystemGetDriverVersion(char *b, unsigned n) { GATE(0); return find("sys", "driver", b, n) ? SUCCESS : NOT_SUPPORTED; }
int nvmlSystemGetCudaDriverVersion(int *v) { u64 x; GATE(0); int r = num("sys", "cuda", &x); if (!r) *v = (int)x; return r; }

static int exists(int g) {
	char scope[16], v[96];
	snprintf(scope, sizeof scope, "gpu%d", g);
	return find(scope, "uuid", v, sizeof v);
}
int nvmlDeviceGetCount_v2(unsigned *n) { GATE(0); for (*n = 0; *n < GPUS && exists((int)*n); (*n)++); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, dev **d) {
	if (i >= GPUS) return INVALID;
	refresh();
	if (!exists((int)i)) return INVALID;
	GATE(&devices[i][0]);
	*d = &devices[i][0];
	return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, dev **d) {
	char scope[16], v[96];
	GATE(0);
	for (int g = 0; g < GPUS && exists(g); g++) for (int m = 0; m <= MIGS; m++) {
		scope_of(&devices[g][m], scope, sizeof scope);
		if (!find(scope, "uuid", v, sizeof v) || strcmp(v, uuid)) continue;
		GATE(&devices[g][m]);
		*d = &devices[g][m];
		return SUCCESS;
	}
	return NOT_FOUND;
}
int nvmlDeviceGetUUID(dev *d, char *b, unsigned n) { return text(__func__, d, "uuid", b, n); }
int nvmlDeviceGetName(dev *d, char *b, unsigned n) { return text(__func__, d, "name", b, n); }

typedef struct { u64 total, free, used; } memory; // the same order in both structures
int nvmlDeviceGetMemoryInfo(dev *d, memory *m) {
	u64 t, u = 0, kept = 0; char scope[16];
	int r = value(__func__, d, "memory_mib", &t);
	if (r) return r;
	scope_of(d, scope, sizeof scope);
	num(scope, "used_mib", &u);
	num(scope, "reserved_mib", &kept);
	m->total = t << 20; m->used = (u + kept) << 20; m->free = m->total - m->used;
	return SUCCESS;
}
typedef struct { unsigned version; u64 total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(dev *d, memory2 *m) {
	u64 t, u = 0, kept = 0; char scope[16];
	int r = value(__func__, d, "memory_mib", &t);
	if (r) return r;
	if (m->version != (sizeof *m | 2 << 24)) return 25; // ARGUMENT_VERSION_MISMATCH
	scope_of(d, scope, sizeof scope);
	num(scope, "used_mib", &u);
	num(scope, "reserved_mib", &kept);
	m->total = t << 20; m->used = u << 20; m->reserved = kept << 20; m->free = m->total - m->used - m->reserved;
	return SUCCESS;
}
UINT(nvmlDeviceGetNumaNodeId, "numa")
UINT(nvmlDeviceGetVirtualizationMode, "virtualization")
int nvmlDeviceGetBAR1MemoryInfo(dev *d, memory *m) {
	u64 t; int r = value(__func__, d, "bar1_mib", &t);
	if (r) return r;
	m->total = t << 20; m->free = t << 20; m->used = 1 << 20;
	return SUCCESS;
}
UINT(nvmlDeviceGetEnforcedPowerLimit, "limit_mw")
UINT(nvmlDeviceGetPowerManagementLimit, "limit_mw")
UINT(nvmlDeviceGetPowerUsage, "power_mw")
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width")
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen")
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width_now")
UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
UINT(nvmlDeviceGetDisplayMode, "display")
UINT(nvmlDeviceGetPersistenceMode, "persistence")
UINT(nvmlDeviceGetArchitecture, "architecture")
UINT(nvmlDeviceGetMinorNumber, "minor")
UINT(nvmlDeviceGetMaxMigDeviceCount, "mig_max")
UINT(nvmlDeviceGetGpuInstanceId, "gi")
UINT(nvmlDeviceGetComputeInstanceId, "ci")
UINT(nvmlDeviceGetPcieReplayCounter, "replays")
ULL(nvmlDeviceGetCurrentClocksEventReasons, "reasons")
ULL(nvmlDeviceGetSupportedEventTypes, "events")
int nvmlDeviceGetMaxClockInfo(dev *d, int t, unsigned *c) { u64 v; int r = value(__func__, d, t == 2 ? "max_mem_mhz" : "max_sm_mhz", &v); if (!r) *c = (unsigned)v; return r; }
int nvmlDeviceGetClockInfo(dev *d, int t, unsigned *c) { u64 v; int r = value(__func__, d, t == 2 ? "mem_mhz" : "sm_mhz", &v); if (!r) *c = (unsigned)v; return r; }
int nvmlDeviceGetTemperature(dev *d, int t, unsigned *c) { u64 v; (void)t; int r = value(__func__, d, "temperature", &v); if (!r) *c = (unsigned)v; return r; }
int nvmlDeviceGetEccMode(dev *d, unsigned *now, unsigned *pending) { u64 v; int r = value(__func__, d, "ecc", &v); if (!r) *now = *pending = (unsigned)v; return r; }
// "mig_pending" is the mode after the next reset, if it differs.
int nvmlDeviceGetMigMode(dev *d, unsigned *now, unsigned *pending) {
	u64 v; char scope[16];
	int r = value(__func__, d, "mig", &v);
	if (r) return r;
	*now = *pending = (unsigned)v;
	scope_of(d, scope, sizeof scope);
	if (num(scope, "mig_pending", &v) == SUCCESS) *pending = (unsigned)v;
	return SUCCESS;
}
UINT(nvmlDeviceGetRetiredPagesPendingStatus, "retirement")
int nvmlDeviceGetRetiredPages(dev *d, int cause, unsigned *n, u64 *addresses) {
	u64 v; int r = value(__func__, d, cause ? "retired_double" : "retired_single", &v);
	if (r) return r;
	int fits = *n >= v;
	*n = (unsigned)v;
	if (!fits) return INSUFFICIENT_SIZE;
	memset(addresses, 0, v * sizeof *addresses);
	return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(dev *d, int *major, int *minor) { u64 v; int r = value(__func__, d, "capability", &v); if (!r) { *major = (int)v / 10; *minor = (int)v % 10; } return r; }
int nvmlDeviceGetMemoryErrorCounter(dev *d, int kind, int counter, int where, u64 *n) { (void)kind; (void)counter; return value(__func__, d, where == 0 ? "ecc_l1" : where == 1 ? "ecc_l2" : "ecc_memory", n); }
typedef struct { u64 l1, l2, memory, registers; } ecc;
int nvmlDeviceGetDetailedEccErrors(dev *d, int kind, int counter, ecc *e) {
	char scope[16]; (void)kind; (void)counter;
	memset(e, 0, sizeof *e);
	int r = value(__func__, d, "ecc_l1", &e->l1);
	if (r) return r;
	scope_of(d, scope, sizeof scope);
	num(scope, "ecc_l2", &e->l2);
	num(scope, "ecc_memory", &e->memory);
	return SUCCESS;
}
int nvmlDeviceGetEncoderUtilization(dev *d, unsigned *u, unsigned *period) { u64 v; int r = value(__func__, d, "encoder", &v); if (!r) { *u = (unsigned)v; *period = 1; } return r; }
int nvmlDeviceGetDecoderUtilization(dev *d, unsigned *u, unsigned *period) { u64 v; int r = value(__func__, d, "decoder", &v); if (!r) { *u = (unsigned)v; *period = 1; } return r; }
typedef struct { unsigned gpu, memory; } utilization;
int nvmlDeviceGetUtilizationRates(dev *d, utilization *u) { u64 v; int r = value(__func__, d, "utilization", &v); if (!r) u->gpu = (unsigned)v, u->memory = (unsigned)v / 2; return r; }
int nvmlDeviceGetRemappedRows(dev *d, unsigned *c, unsigned *u, unsigned *pending, unsigned *failed) {
	u64 v; int r = value(__func__, d, "remap", &v); // 0 fine, 1 pending, 2 failed
	if (r) return r;
	*c = 0; *u = v != 0; *pending = v == 1; *failed = v == 2;
	return SUCCESS;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } pci;
static void fill(pci *p, unsigned bus) {
	memset(p, 0, sizeof *p);
	p->bus = bus;
	snprintf(p->legacy, sizeof p->legacy, "0000:%02X:00.0", bus);
	snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", bus);
}
// "bus N" in PCI domain "domain N" (0 if it is absent).
int nvmlDeviceGetPciInfo_v3(dev *d, pci *p) {
	u64 v, domain = 0; char scope[16];
	int r = value(__func__, d, "bus", &v);
	if (r) return r;
	fill(p, (unsigned)v);
	scope_of(d, scope, sizeof scope);
	num(scope, "domain", &domain);
	p->domain = (unsigned)domain;
	snprintf(p->busId, sizeof p->busId, "%08X:%02X:00.0", p->domain, p->bus);
	return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(dev *d, unsigned i, dev **out) {
	char scope[16], v[96];
	GATE(d);
	snprintf(scope, sizeof scope, "mig%d.%u", d->gpu, i);
	if (i >= MIGS || !find(scope, "uuid", v, sizeof v)) return NOT_FOUND;
	*out = &devices[d->gpu][i + 1];
	return SUCCESS;
}
// A driver's answer for a GPU that is not a MIG instance.
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(dev *d, dev **out) { GATE(d); if (d->mig < 0) return INVALID; *out = &devices[d->gpu][0]; return SUCCESS; }
int nvmlDeviceIsMigDeviceHandle(dev *d, unsigned *is) { GATE(d); *is = d->mig >= 0; return SUCCESS; }

typedef struct { unsigned field, scope; long long at, took; unsigned type, ret; union { u64 ull; } v; } fieldvalue;
int nvmlDeviceGetFieldValues(dev *d, int n, fieldvalue *f) {
	char scope[16], key[32];
	GATE(d);
	scope_of(d, scope, sizeof scope);
	for (int i = 0; i < n; i++) {
		snprintf(key, sizeof key, "field.%u", f[i].field);
		f[i].type = 3;
		f[i].ret = (unsigned)num(scope, key, &f[i].v.ull);
	}
	return SUCCESS;
}

// "nvlinks N" links are up of "nvlinks_max"; "nvlink_to" is "switch" or a bus number.
int nvmlDeviceGetNvLinkState(dev *d, unsigned link, unsigned *on) {
	u64 most, up = 0; char scope[16];
	int r = value(__func__, d, "nvlinks_max", &most);
	if (r) return r;
	if (link >= most) return INVALID;
	scope_of(d, scope, sizeof scope);
	num(scope, "nvlinks", &up);
	*on = link < up;
	return SUCCESS;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(dev *d, unsigned link, int *type) {
	char v[96]; (void)link;
	int r = text(__func__, d, "nvlink_to", v, sizeof v);
	if (!r) *type = strcmp(v, "switch") == 0 ? 2 : 0;
	return r;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(dev *d, unsigned link, pci *p) {
	char v[96]; (void)link;
	int r = text(__func__, d, "nvlink_to", v, sizeof v);
	if (!r) fill(p, (unsigned)strtoul(v, 0, 0));
	return r;
}

typedef struct { unsigned version; unsigned char cluster[16]; unsigned status, clique; unsigned char state; unsigned health; } fabric;
int nvmlDeviceGetGpuFabricInfoV(dev *d, fabric *f) {
	u64 v; char scope[16];
	int r = value(__func__, d, "fabric_state", &v);
	if (r) return r;
	scope_of(d, scope, sizeof scope);
	memset(f->cluster, 0, 16); f->status = 0; f->clique = 7; f->state = (unsigned char)v; f->health = 0;
	if (num(scope, "fabric_status", &v) == SUCCESS) f->status = (unsigned)v;
	if (num(scope, "fabric_health", &v) == SUCCESS) f->health = (unsigned)v;
	if (num(scope, "fabric_cluster", &v) == SUCCESS) f->cluster[15] = (unsigned char)v;
	return SUCCESS;
}

// Events.
static int set;
typedef struct { dev *device; u64 type, data; unsigned gi, ci; } event;
int nvmlEventSetCreate(int **s) { GATE(0); *s = &set; return SUCCESS; }
int nvmlEventSetFree(int *s) { (void)s; count(__func__); return SUCCESS; }
int nvmlDeviceRegisterEvents(dev *d, u64 mask, int *s) { (void)mask; (void)s; GATE(d); return SUCCESS; }
static u64 now_ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (u64)t.tv_sec * 1000 + (u64)t.tv_nsec / 1000000; }

// wait_event delivers the next event of the file, which changes when watch is readable.
static int wait_event(int watch, event *e, unsigned ms) {
	for (u64 end = now_ms() + ms;;) {
		u64 v, now; char key[32], line[96], junk[4096];
		refresh();
		if (num("sys", "init", &v) == SUCCESS && v) return (int)v;
		snprintf(key, sizeof key, "event.%d", delivered + 1);
		if (find("sys", key, line, sizeof line)) {
			int g = 0, gi = -1; u64 type = 8, data = 0;
			sscanf(line, "%d %llu %llu %d", &g, &type, &data, &gi);
			delivered++;
			e->device = &devices[g][0]; e->type = type; e->data = data; e->gi = (unsigned)gi; e->ci = 0xFFFFFFFFu;
			return SUCCESS;
		}
		if ((now = now_ms()) >= end) return TIMEOUT;
		struct pollfd p = { watch, POLLIN, 0 };
		poll(&p, 1, (int)(end - now));
		while (read(watch, junk, sizeof junk) > 0);
	}
}
int nvmlEventSetWait_v2(int *s, event *e, unsigned ms) {
	// Like a driver's, this wait sleeps until there is an event: it reads the file when something
	// in the file's folder changes.
	char folder[4096];
	const char *path = state_file();
	(void)s;
	count(__func__);
	if (!path) { usleep(ms * 1000); return TIMEOUT; }
	if (!ms) return wait_event(-1, e, 0); // making and closing a watch takes the kernel up to 40 ms
	snprintf(folder, sizeof folder, "%s", path);
	int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (watch < 0) return 999;
	inotify_add_watch(watch, dirname(folder), IN_MOVED_TO | IN_CLOSE_WRITE);
	int r = wait_event(watch, e, ms);
	close(watch);
	return r;
}

// "processes 4711,4712" compute on a GPU, "graphics 4713" draws. "sys pids DIR" adds living processes that have a file
// DIR/UUID.PID, which the fake CUDA driver writes. "sys process_bytes 32" selects the record size
// of drivers 535.43 to 535.86.
typedef struct { unsigned pid; u64 used; unsigned gi, ci; } process;
static void put(process *out, unsigned at, int pid) {
	u64 bytes = sizeof *out;
	num("sys", "process_bytes", &bytes);
	memset((char *)out + at * bytes, 0, bytes);
	*(unsigned *)((char *)out + at * bytes) = (unsigned)pid;
}
int nvmlDeviceGetComputeRunningProcesses_v3(dev *d, unsigned *n, process *out) {
	char scope[16], v[96], dir[96], id[96];
	unsigned most = *n, found = 0;
	GATE(d);
	scope_of(d, scope, sizeof scope);
	if (find(scope, "processes", v, sizeof v))
		for (char *save, *p = strtok_r(v, ",", &save); p; p = strtok_r(0, ",", &save), found++)
			if (found < most) put(out, found, atoi(p));
	DIR *files = find("sys", "pids", dir, sizeof dir) && find(scope, "uuid", id, sizeof id) ? opendir(dir) : 0;
	for (struct dirent *e; files && (e = readdir(files));) {
		size_t k = strlen(id);
		if (strncmp(e->d_name, id, k) || e->d_name[k] != '.' || kill(atoi(e->d_name + k + 1), 0)) continue;
		if (found < most) put(out, found, atoi(e->d_name + k + 1));
		found++;
	}
	if (files) closedir(files);
	*n = found;
	return found > most ? 7 : SUCCESS; // INSUFFICIENT_SIZE
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(dev *d, unsigned *n, process *out) {
	char scope[16], v[96];
	unsigned most = *n, found = 0;
	GATE(d);
	scope_of(d, scope, sizeof scope);
	if (find(scope, "graphics", v, sizeof v))
		for (char *save, *p = strtok_r(v, ",", &save); p; p = strtok_r(0, ",", &save), found++)
			if (found < most) put(out, found, atoi(p));
	*n = found;
	return found > most ? 7 : SUCCESS; // INSUFFICIENT_SIZE
}

// GPM: the metrics are the keys gpm.<id>.
typedef struct { unsigned version, supported; } gpmsupport;
typedef struct { unsigned id, ret; double value; const char *names[3]; } gpmmetric;
typedef struct { unsigned version, n; void *a, *b; gpmmetric m[333]; } gpmget;
int nvmlGpmQueryDeviceSupport(dev *d, gpmsupport *s) { u64 v = 0; int r = value(__func__, d, "gpm", &v); s->supported = (unsigned)v; return r; }
int nvmlGpmSampleAlloc(void **s) { *s = malloc(sizeof(dev)); return *s ? SUCCESS : INVALID; }
int nvmlGpmSampleFree(void *s) { free(s); return SUCCESS; }
int nvmlGpmSampleGet(dev *d, dev *s) { GATE(d); *s = *d; return SUCCESS; }
int nvmlGpmMigSampleGet(dev *d, unsigned gi, dev *s) { (void)gi; GATE(d); *s = *d; return SUCCESS; }
int nvmlGpmMetricsGet(gpmget *g) {
	char scope[16], key[32], v[96];
	scope_of((dev *)g->b, scope, sizeof scope);
	for (unsigned i = 0; i < g->n; i++) {
		snprintf(key, sizeof key, "gpm.%u", g->m[i].id);
		g->m[i].ret = NOT_SUPPORTED;
		if (find(scope, key, v, sizeof v)) { g->m[i].value = strtod(v, 0); g->m[i].ret = SUCCESS; }
	}
	return SUCCESS;
}
