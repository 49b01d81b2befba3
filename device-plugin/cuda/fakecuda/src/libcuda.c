// Copyright (c) The nomad-pal Authors
// SPDX-License-Identifier: MPL-2.0
//
// A CUDA driver without a GPU. A kernel takes the time that its work takes on a
// nominal GPU, times the GPU's slowness. The driver sleeps for a fraction of that
// time, so tests are short. Its settings are lines "key=value" in the file that
// FAKECUDA names; otherwise in the file beside the library with ".settings" added
// to its name. It reads the file again when it changes:
//
//   gpus=4              GPUs (default 2)
//   uuid.1=GPU-…        GPU 1's uuid (default 02020202-…, of GPU 0 01010101-…)
//   arch=90             70, 80, 89, 90 (default) or 100
//   name=NVIDIA H20     the model (default by arch)
//   sms=78              multiprocessors (default by arch)
//   attr.36=8533000     attribute 36 of cuDeviceGetAttribute (default by arch)
//   rate.pal_mma=2e14   a kernel's work per second (default by arch)
//   slow.1=1.8          GPU 1 takes 1.8 times as long
//   noise=0.002         relative noise of a launch
//   scale=0.001         real seconds per simulated second
//   wrong.1=1           GPU 1 computes a wrong result, always the same
//   ptxas=/usr/bin/ptxas  this program assembles each module; if it fails, so does loading the module
//   jit.hang=pal_mma    compiling this kernel never ends; jit.crash kills the process; jit.refuse is an error
//   xid=FILE            a write to an invalid address adds Xid 31 to this state file of the fake NVML
//   pids=DIR            a process with a context shows as DIR/UUID.PID
//   fail=oom|hang|lost|ecc|corrupt|jit|too-new|no-binary|busy|no-device|not-ready|no-jit|mismatch|no-compat
//   fail.gpu=1          only on GPU 1 (default all)
//   fail.after=20       only from the 20th launch of a process on
//   fail.kernel=pal_mma only once this kernel has been launched
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int R;
enum { OOM = 2, BUSY = 46, NO_DEVICE = 100, NO_BINARY = 209, ECC = 214, INVALID_PTX = 218, PTX_TOO_NEW = 222, ILLEGAL = 700, LOST = 719, NOT_READY = 802, NO_JIT = 221, MISMATCH = 803, NO_COMPAT = 804 };

static int visible[64], nvisible, current, launches, illegal;
static char launched[256];   // kernels so far
static double clock_ms;      // simulated time
static double slept_ms;      // the part of it for which the driver has slept
static uint64_t rng = 88172645463325252ULL;
struct function { char name[32]; };

static char text[4096];      // the settings, read again when the file changes
static struct stat read_at;

static const char *setting(const char *key) {
  static char value[256];
  const char *path = getenv("FAKECUDA");
  static char beside[4096];
  Dl_info me;
  struct stat now;
  if (!path && dladdr(&launches, &me)) {
    snprintf(beside, sizeof beside, "%s.settings", me.dli_fname);
    path = beside;
  }
  size_t n = strlen(key);
  if (!path || stat(path, &now)) return NULL;
  if (now.st_mtim.tv_nsec != read_at.st_mtim.tv_nsec || now.st_mtim.tv_sec != read_at.st_mtim.tv_sec || now.st_size != read_at.st_size) {
    FILE *f = fopen(path, "r");
    if (!f) return NULL;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    read_at = now;
  }
  for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (!strncmp(line, key, n) && line[n] == '=') {
      snprintf(value, sizeof value, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
      return value;
    }
  return NULL;
}
static double number(const char *key, double otherwise) { const char *v = setting(key); return v ? atof(v) : otherwise; }
static int failing(const char *how) {
  const char *v = setting("fail");
  if (!v || strcmp(v, how)) return 0;
  int gpu = (int)number("fail.gpu", -1);
  if (gpu >= 0 && gpu != current) return 0;
  v = setting("fail.kernel");
  if (v && !strstr(launched, v)) return 0;
  return launches >= (int)number("fail.after", 0);
}
static int arch(void) { return (int)number("arch", 90); }

static void uuid_of(int gpu, unsigned char *u) {
  char key[16];
  const char *v;
  int n = 0;
  memset(u, gpu + 1, 16);
  snprintf(key, sizeof key, "uuid.%d", gpu);
  if (!(v = setting(key))) return;
  for (v += 4; *v && n < 16; v++)
    if (*v != '-') {
      char hex[3] = {v[0], v[1], 0};
      u[n++] = (unsigned char)strtol(hex, NULL, 16);
      v++;
    }
}
static void id_of(int gpu, char *id, size_t n) {
  unsigned char b[16];
  uuid_of(gpu, b);
  snprintf(id, n, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5], b[6],
           b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}
static void list_visible(void) {
  int n = (int)number("gpus", 2);
  const char *only = getenv("CUDA_VISIBLE_DEVICES");
  nvisible = 0;
  for (int i = 0; i < n && i < 64; i++) {
    char id[64];
    id_of(i, id, sizeof id);
    if (!only || strstr(only, id)) visible[nvisible++] = i;
  }
}

R cuInit(unsigned f) { list_visible(); if (nvisible == 1) current = visible[0]; if (setting("init")) return (int)number("init", 0); return failing("no-device") ? NO_DEVICE : failing("not-ready") ? NOT_READY : failing("mismatch") ? MISMATCH : failing("no-compat") ? NO_COMPAT : 0; }
R cuDriverGetVersion(int *v) { *v = 13000; return 0; }
R cuGetErrorName(int code, const char **name) {
  switch (code) {
  case OOM: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
  case BUSY: *name = "CUDA_ERROR_DEVICE_UNAVAILABLE"; break;
  case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
  case NO_BINARY: *name = "CUDA_ERROR_NO_BINARY_FOR_GPU"; break;
  case ECC: *name = "CUDA_ERROR_ECC_UNCORRECTABLE"; break;
  case INVALID_PTX: *name = "CUDA_ERROR_INVALID_PTX"; break;
  case PTX_TOO_NEW: *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; break;
  case ILLEGAL: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
  case LOST: *name = "CUDA_ERROR_LAUNCH_FAILED"; break;
  case NOT_READY: *name = "CUDA_ERROR_SYSTEM_NOT_READY"; break;
  case NO_JIT: *name = "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"; break;
  case MISMATCH: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
  case NO_COMPAT: *name = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"; break;
  default: return 1;
  }
  return 0;
}
R cuDeviceGetCount(int *n) { *n = nvisible; return 0; }
R cuDeviceGet(int *d, int i) { *d = visible[i]; return 0; }
R cuDeviceGetName(char *b, int n, int d) {
  const char *name = setting("name");
  snprintf(b, n, "%s", name ? name : arch() >= 120 ? "NVIDIA RTX PRO 6000 Blackwell Server Edition" : arch() >= 100 ? "NVIDIA B200" : arch() == 90 ? "NVIDIA H200" : arch() == 89 ? "NVIDIA L40S" : arch() == 80 ? "NVIDIA A100-SXM4-80GB" : "Tesla V100-SXM2-16GB");
  return 0;
}
R cuDeviceGetUuid_v2(unsigned char *u, int d) { uuid_of(d, u); return 0; }
R cuDeviceTotalMem_v2(uint64_t *n, int d) { *n = (arch() == 90 ? 140ULL : arch() == 80 ? 80ULL : 16ULL) << 30; return 0; }
R cuDeviceGetAttribute(int *v, int a, int d) {
  int h = arch() == 90, ampere = arch() == 80, l40 = arch() == 89 || arch() == 120;
  char key[32];
  snprintf(key, sizeof key, "attr.%d", a);
  if (setting(key)) {
    *v = (int)number(key, 0);
    return 0;
  }
  switch (a) {
  case 13: *v = h ? 1980000 : ampere ? 1410000 : l40 ? 2520000 : 1530000; break;
  case 16: *v = number("sms", 0) ? (int)number("sms", 0) : h ? 132 : ampere ? 108 : l40 ? 142 : 80; break;
  case 36: *v = h ? 3201000 : ampere ? 1593000 : l40 ? 9001000 : 877000; break;
  case 37: *v = h ? 6144 : ampere ? 5120 : l40 ? 384 : 4096; break;
  case 38: *v = h ? 60 << 20 : ampere ? 40 << 20 : l40 ? 96 << 20 : 6 << 20; break;
  case 75: *v = arch() / 10; break;
  case 76: *v = arch() % 10; break;
  default: *v = 0;
  }
  return 0;
}
static void pid_file(int d, char *path, size_t n) {
  char id[64];
  id_of(d, id, sizeof id);
  const char *dir = setting("pids"); // until the next call
  path[0] = 0;
  if (!dir) return;
  snprintf(path, n, "%s/%s.%d", dir, id, (int)getpid());
}
R cuDevicePrimaryCtxRetain(void **c, int d) {
  char path[4096];
  FILE *f;
  current = d;
  *c = &current;
  pid_file(d, path, sizeof path);
  if (*path && (f = fopen(path, "w"))) fclose(f);
  return failing("busy") ? BUSY : 0;
}
R cuDevicePrimaryCtxRelease_v2(int d) {
  char path[4096];
  pid_file(d, path, sizeof path);
  if (*path) unlink(path);
  return 0;
}
R cuCtxSetCurrent(void *c) { return 0; }
R cuMemGetInfo_v2(uint64_t *free, uint64_t *total) { cuDeviceTotalMem_v2(total, 0); *free = *total; return 0; }
// assemble runs ptxas for the module's own target. It returns 0 if ptxas accepts the module.
static int assemble(const char *ptxas, const char *img) {
  char command[8192], target[16] = "", file[] = "/tmp/fakecuda-XXXXXX";
  sscanf(strstr(img, ".target ") + 8, "%15[a-z0-9_]", target);
  int fd = mkstemp(file);
  if (fd < 0 || write(fd, img, strlen(img)) < 0) return 1;
  close(fd);
  snprintf(command, sizeof command, "'%s' -arch=%s -o /dev/null %s", ptxas, target, file);
  int r = system(command);
  unlink(file);
  return r;
}
R cuModuleLoadDataEx(void **m, const void *img, unsigned n, int *options, void **values) {
  for (unsigned i = 0; i < n; i++)
    if (options[i] == 5 && failing("jit")) snprintf((char *)values[i], 100, "ptxas: line 7;\n fatal: syntax error");
  if (failing("no-jit")) return NO_JIT;
  if (failing("jit") || strstr(img, "nonsense")) return INVALID_PTX;
  if (failing("too-new")) return PTX_TOO_NEW;
  if (failing("no-binary")) return NO_BINARY;
  const char *t = strstr(img, ".target sm_");
  if (!t) return INVALID_PTX;
  int need = atoi(t + 11);
  if (need > arch() || (need == 90 && t[13] == 'a' && arch() != 90)) return NO_BINARY;
  const char *v = setting("jit.hang");
  if (v && strstr(img, v)) for (;;) pause();
  v = setting("jit.crash");
  if (v && strstr(img, v)) abort();
  v = setting("jit.refuse");
  if (v && strstr(img, v)) return INVALID_PTX;
  v = setting("ptxas");
  if (v && assemble(v, img)) return INVALID_PTX;
  *m = strdup(img);
  return 0;
}
R cuModuleGetFunction(void **f, void *m, const char *name) {
  if (!strstr(m, name)) return 500;
  struct function *fn = calloc(1, sizeof *fn);
  snprintf(fn->name, sizeof fn->name, "%s", name);
  *f = fn;
  return 0;
}
// GPU memory is host memory. Of large allocations only the first MiB exists, because nothing uses the rest.
R cuMemAlloc_v2(uint64_t *p, uint64_t n) {
  if (failing("oom") && n > 1 << 20) return OOM;
  uint64_t all;
  cuDeviceTotalMem_v2(&all, current);
  if (n > all) return OOM;
  *p = (uint64_t)calloc(1, n < 64 << 20 ? n : 1 << 20);
  return *p ? 0 : OOM;
}
R cuMemFree_v2(uint64_t p) { free((void *)p); return 0; }
R cuMemsetD32_v2(uint64_t p, unsigned v, uint64_t n) {
  for (unsigned *w = (unsigned *)p; n && n <= 1024; n--) *w++ = v;
  return 0;
}
R cuMemcpyHtoD_v2(uint64_t d, const void *s, uint64_t n) { return 0; }
R cuMemcpyDtoH_v2(void *d, uint64_t s, uint64_t n) { memcpy(d, (void *)s, n); return failing("lost") ? LOST : 0; }

static double rate(const char *kernel) {
  char key[64];
  snprintf(key, sizeof key, "rate.%s", kernel);
  if (number(key, 0) > 0) return number(key, 0);
  int h = arch() == 90, ampere = arch() == 80, l40 = arch() == 89 || arch() == 120;
  if (!strcmp(kernel, "pal_wgmma")) return 780e12;
  if (!strcmp(kernel, "pal_mma")) return h ? 600e12 : ampere ? 280e12 : 330e12;
  if (!strcmp(kernel, "pal_ffma")) return h ? 60e12 : ampere ? 18e12 : l40 ? 80e12 : 14.5e12;
  if (!strcmp(kernel, "pal_triad")) return h ? 4.3e12 : ampere ? 1.8e12 : 0.8e12;
  return (h ? 4.3e12 : ampere ? 1.8e12 : 0.8e12) / 32 * 0.3;  // gather, loads
}
static double work(const char *kernel, unsigned grid, unsigned block, void **a) {
  double threads = (double)grid * block;
  if (!strcmp(kernel, "pal_wgmma")) return threads / 128 * *(unsigned *)a[1] * 4194304;
  if (!strcmp(kernel, "pal_mma")) return threads / 32 * *(unsigned *)a[1] * 65536;
  if (!strcmp(kernel, "pal_ffma")) return threads * *(unsigned *)a[1] * 256;
  if (!strcmp(kernel, "pal_triad")) return 48.0 * *(uint64_t *)a[3];
  return threads * *(unsigned *)a[3] * 8;
}
R cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, void *st, void **a, void **e) {
  if (!strcmp(f->name, "pal_fill")) return 0;
  if (!strcmp(f->name, "pal_fault")) {
    const char *path = setting("xid");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
      fprintf(f, "sys event.1 %d 8 31 -1\n", current);
      fclose(f);
    }
    illegal = 1;
    return 0;
  }
  if (!strcmp(f->name, "pal_sum")) { // the checksum covers what "corrupt" and "wrong" change
    uint64_t sum = 0, n = *(uint64_t *)a[2];
    char wrong[16];
    for (uint64_t i = 0; i < n * 16 && i < 64; i++) sum += (2 * i + 1) * (*(unsigned char **)a[1])[i];
    snprintf(wrong, sizeof wrong, "wrong.%d", current);
    **(uint64_t **)a[0] = sum + (uint64_t)number(wrong, 0);
    return 0;
  }
  launches++;
  if (!strstr(launched, f->name)) strcat(launched, f->name);
  if (failing("lost")) return LOST;
  if (failing("ecc")) return ECC;
  char key[16];
  snprintf(key, sizeof key, "slow.%d", current);
  rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17;
  double u = (double)(rng >> 11) / 9007199254740992.0 - 0.5;
  clock_ms += 1e3 * work(f->name, gx, bx, a) / rate(f->name) * number(key, 1) * (1 + number("noise", 0.001) * 3.46 * u);
  if (failing("corrupt") && strcmp(f->name, "pal_triad")) (*(char **)a[0])[launches % 64]++;
  return 0;
}
// A real driver keeps a core busy in cuEventSynchronize, unless the event was created with
// CU_EVENT_BLOCKING_SYNC (1). This driver refuses all other events.
R cuEventCreate(double **ev, unsigned flags) { if (flags != 1) return 1; *ev = calloc(1, sizeof(double)); return 0; }
R cuEventRecord(double *ev, void *stream) { *ev = clock_ms; return 0; }
R cuEventSynchronize(double *ev) {
  if (illegal) return ILLEGAL;
  if (failing("hang")) for (;;) pause();
  if (failing("lost")) return LOST;
  double s = (*ev - slept_ms) / 1e3 * number("scale", 0.001);
  if (s > 0) {
    struct timespec t = {(time_t)s, (long)((s - (time_t)s) * 1e9)};
    nanosleep(&t, NULL);
    slept_ms = *ev;
  }
  return 0;
}
R cuEventElapsedTime(float *ms, double *a, double *b) { *ms = (float)(*b - *a); return 0; }
