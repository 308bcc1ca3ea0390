/* A libnvidia-ml.so.1 that answers from a small text file, so that the real pynvml path runs on a machine without a GPU.
 *
 * FAKE_NVML names a file of "key=value" lines. "key.N" answers for GPU N only, "key.N.M" for the pair N, M.
 *
 *   gpus=2                     how many
 *   init=18                    what nvmlInit returns (9 driver not loaded, 18 library and module differ, 4 no permission)
 *   hang=nvmlDeviceGetName     this function never returns          crash=...   this one kills the process
 *   refuse=nvmlX:3,nvmlY:999   these return that code               hang_gpu=1  limits hang, crash and refuse to one GPU
 *   lost=1   forbidden=2       no handle (15, 4)                    lost_late=1 a handle, but every reading says 15
 *   name= uuid= bus= memory= cc=9.0 links=s*18 | 1,1,1,1,- | none  mig=1 fabric=3 ...
 *   p2p=0,0,0,0,5              read, write, nvlink, atomics, pci    path=30
 *
 * A link's letter: a number is a GPU, s a switch, h a switch whose address is hidden, n a CPU, ? an end the driver does not tell, - a link that is down.
 * Built with -DOLD_DRIVER it lacks the functions that drivers before 2022 lack.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LINES 256
#define MAX_GPUS 64
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };

static char keys[MAX_LINES][96], values[MAX_LINES][512];
static int lines = -1;
static int numbers[MAX_GPUS];

static void load(void) {
  if (lines >= 0) return;
  lines = 0;
  const char *name = getenv("FAKE_NVML");
  FILE *file = name ? fopen(name, "r") : NULL;
  char line[700];
  while (file && lines < MAX_LINES && fgets(line, sizeof line, file)) {
    char *equal = strchr(line, '=');
    if (line[0] == '#' || !equal) continue;
    *equal = 0;
    equal[1 + strcspn(equal + 1, "\n")] = 0;
    snprintf(keys[lines], sizeof keys[0], "%.95s", line);
    snprintf(values[lines], sizeof values[0], "%.511s", equal + 1);
    lines++;
  }
  if (file) fclose(file);
  for (int i = 0; i < MAX_GPUS; i++) numbers[i] = i;
}

static const char *value(const char *key, const char *otherwise) {
  load();
  for (int i = 0; i < lines; i++)
    if (!strcmp(keys[i], key)) return values[i];
  return otherwise;
}

static const char *gpu_value(const char *key, int gpu, const char *otherwise) {
  char own[128];
  snprintf(own, sizeof own, "%s.%d", key, gpu);
  const char *found = value(own, NULL);
  return found ? found : value(key, otherwise);
}

static const char *pair_value(const char *key, int a, int b, const char *otherwise) {
  char own[128];
  snprintf(own, sizeof own, "%s.%d.%d", key, a, b);
  const char *found = value(own, NULL);
  return found ? found : value(key, otherwise);
}

/* Whether a comma list holds the word; *code gets what follows a colon. */
static int listed(const char *list, const char *word, int *code) {
  size_t length = strlen(word);
  for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (!strncmp(at, word, length) && (at[length] == 0 || at[length] == ',' || at[length] == ':')) {
      if (code && at[length] == ':') *code = atoi(at + length + 1);
      return 1;
    }
  return 0;
}

static int listed_gpu(const char *key, int gpu) {
  char word[16];
  snprintf(word, sizeof word, "%d", gpu);
  return listed(value(key, ""), word, NULL);
}

static int trouble(const char *function, int gpu) {
  int code = 0;
  const char *only = value("hang_gpu", NULL);
  if (only && gpu != atoi(only)) return OK;
  if (listed(value("hang", ""), function, NULL))
    for (;;) pause();
  if (listed(value("crash", ""), function, NULL)) raise(SIGSEGV);
  if (listed(value("refuse", ""), function, &code)) return code;
  return OK;
}

#define ENTER(gpu)                                    \
  do {                                                \
    int refused = trouble(__func__, gpu);             \
    if (refused) return refused;                      \
  } while (0)
#define DEVICE                                        \
  int gpu = *(int *)device;                           \
  if (listed_gpu("lost_late", gpu)) return LOST;      \
  ENTER(gpu)
/* A reading: the file's value, or "not supported" when the file gives "-". */
#define NUMBER(key, otherwise, target, type)                          \
  do {                                                                \
    const char *found = gpu_value(key, gpu, otherwise);               \
    if (!strcmp(found, "-")) return NOT_SUPPORTED;                    \
    *(target) = (type)strtoull(found, NULL, 0);                       \
    return OK;                                                        \
  } while (0)

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } Process;
typedef struct { unsigned version; unsigned char cluster[16]; unsigned status, clique, state, health; unsigned char summary; } FabricV;
typedef struct { unsigned char cluster[16]; unsigned status, clique, state; } Fabric;
typedef struct { unsigned version, sensor; int temperature; } Temperature;
typedef struct {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type, result;
  union { double d; unsigned u; unsigned long long ull; } value;
} FieldValue;

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  ENTER(-1);
  return atoi(value("init", "0"));
}
int nvmlShutdown(void) { ENTER(-1); return OK; }
const char *nvmlErrorString(int code) {
  static char words[64];
  snprintf(words, sizeof words, "Fake error %d", code);
  return words;
}
static int copy(char *buffer, unsigned size, const char *words) { snprintf(buffer, size, "%s", words); return OK; }
int nvmlSystemGetDriverVersion(char *buffer, unsigned size) { ENTER(-1); return copy(buffer, size, value("driver", "580.159.04")); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { ENTER(-1); *version = atoi(value("cuda", "13000")); return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(-1); *count = atoi(value("gpus", "2")); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  load();
  if ((int)index >= atoi(value("gpus", "2"))) return INVALID;
  if (listed_gpu("lost", index)) return LOST;
  if (listed_gpu("forbidden", index)) return NO_PERMISSION;
  ENTER((int)index);
  *device = &numbers[index];
  return OK;
}

static void address_of(int gpu, char *buffer, size_t size) {
  char otherwise[32];
  snprintf(otherwise, sizeof otherwise, "00000000:%02X:00.0", 0x10 + gpu);
  snprintf(buffer, size, "%s", gpu_value("bus", gpu, otherwise));
}
int nvmlDeviceGetPciInfo_v3(void *device, Pci *info) {
  DEVICE;
  memset(info, 0, sizeof *info);
  address_of(gpu, info->address, sizeof info->address);
  return OK;
}
int nvmlDeviceGetName(void *device, char *buffer, unsigned size) { DEVICE; return copy(buffer, size, gpu_value("name", gpu, "NVIDIA H200")); }
int nvmlDeviceGetUUID(void *device, char *buffer, unsigned size) {
  if (*(int *)device >= 32) return copy(buffer, size, gpu_value("mig_uuid", *(int *)device - 32, "MIG-11111111-0000-0000-0000-000000000000"));
  DEVICE;
  char otherwise[64];
  snprintf(otherwise, sizeof otherwise, "GPU-%08x-0000-4000-8000-000000000000", gpu + 1);
  return copy(buffer, size, gpu_value("uuid", gpu, otherwise));
}
int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
  DEVICE;
  const char *total = gpu_value("memory", gpu, "150754820096");
  if (!strcmp(total, "-")) return NOT_SUPPORTED;
  memory->total = strtoull(total, NULL, 0);
  memory->used = strtoull(gpu_value("used", gpu, "646000000"), NULL, 0);
  return OK;
}
int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *clock) { DEVICE; (void)kind; NUMBER("clock", "360", clock, unsigned); }
int nvmlDeviceGetMaxClockInfo(void *device, unsigned kind, unsigned *clock) { DEVICE; (void)kind; NUMBER("max_clock", "1980", clock, unsigned); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *mask) { DEVICE; NUMBER("reasons", "1", mask, unsigned long long); }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { DEVICE; NUMBER("power", "119000", milliwatts, unsigned); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { DEVICE; NUMBER("power_limit", "700000", milliwatts, unsigned); }
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) { DEVICE; (void)sensor; NUMBER("temperature", "40", celsius, unsigned); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *link) { DEVICE; NUMBER("gen", "5", link, unsigned); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *link) { DEVICE; NUMBER("max_gen", "5", link, unsigned); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *link) { DEVICE; NUMBER("width", "16", link, unsigned); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *link) { DEVICE; NUMBER("max_width", "16", link, unsigned); }
int nvmlDeviceGetDisplayMode(void *device, unsigned *mode) { DEVICE; NUMBER("display", "0", mode, unsigned); }
int nvmlDeviceGetDisplayActive(void *device, unsigned *mode) { DEVICE; NUMBER("display_active", "0", mode, unsigned); }
int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned counter, unsigned long long *count) {
  DEVICE;
  (void)kind, (void)counter;
  NUMBER("ecc", "0", count, unsigned long long);
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  DEVICE;
  return sscanf(gpu_value("cc", gpu, "9.0"), "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetUtilizationRates(void *device, Utilization *utilization) { DEVICE; NUMBER("utilization", "0", &utilization->gpu, unsigned); }

static int processes(int gpu, unsigned *count, Process *list) {
  const char *pids = gpu_value("pids", gpu, "");
  unsigned found = 0;
  for (const char *at = pids; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL, found++)
    if (list && found < *count) {
      memset(&list[found], 0, sizeof *list);
      list[found].pid = !strncmp(at, "parent", 6) ? (unsigned)getppid() : !strncmp(at, "self", 4) ? (unsigned)getpid() : (unsigned)atoi(at);
    }
  int small = found > 0 && (!list || found > *count);
  *count = found;
  return small ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, Process *list) { DEVICE; return processes(gpu, count, list); }
int nvmlDeviceGetCpuAffinity(void *device, unsigned words, unsigned long *mask) {
  DEVICE;
  memset(mask, 0, words * sizeof *mask);
  NUMBER("cpus", "0xffffffff", mask, unsigned long);
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) { DEVICE; *pending = 0; NUMBER("mig", "0", current, unsigned); }
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { DEVICE; NUMBER("mig_slots", "7", count, unsigned); }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **slice) {
  DEVICE;
  if ((int)index >= atoi(gpu_value("mig_devices", gpu, "0"))) return NOT_FOUND;
  *slice = &numbers[32 + index];
  return OK;
}

/* The letter of a link: '\0' where the GPU has no such link. For a GPU number, *peer gets it. */
static char link_letter(int gpu, unsigned link, int *peer) {
  const char *list = gpu_value("links", gpu, "none");
  unsigned count;
  if (!strcmp(list, "none")) return 0;
  if (sscanf(list, "s*%u", &count) == 1) return link < count ? 's' : 0;
  const char *at = list;
  for (unsigned i = 0; i < link && at; i++) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
  if (!at || !*at) return 0;
  if (*at >= '0' && *at <= '9') { *peer = atoi(at); return 'g'; }
  return *at;
}
static unsigned links_of(int gpu) { int peer; unsigned n = 0; while (n < 64 && link_letter(gpu, n, &peer)) n++; return n; }

#define LINK                                              \
  DEVICE;                                                 \
  int peer = -1;                                          \
  char letter = link_letter(gpu, link, &peer);            \
  if (!letter) return link ? INVALID : NOT_SUPPORTED;     \
  (void)peer
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) { LINK; *active = letter != '-'; return OK; }
int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *version) { LINK; NUMBER("link_version", "6", version, unsigned); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, Pci *info) {
  LINK;
  memset(info, 0, sizeof *info);
  if (letter == '?') return NOT_SUPPORTED;
  if (letter == 'g') address_of(peer, info->address, sizeof info->address);
  else if (letter == 'h') snprintf(info->address, sizeof info->address, "FFFFFFFF:FF:FF.0");
  else snprintf(info->address, sizeof info->address, "00000000:C%u:00.0", link % 4);
  return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *kind) {
  LINK;
  if (letter == '?') return NOT_SUPPORTED;
  *kind = letter == 'g' ? 0 : letter == 'n' ? 1 : 2;
  return OK;
}
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, unsigned counter, unsigned long long *count) {
  LINK;
  (void)counter;
  NUMBER("link_errors", "0", count, unsigned long long);
}
int nvmlDeviceGetFieldValues(void *device, int count, FieldValue *fields) {
  DEVICE;
  for (int i = 0; i < count; i++) {
    unsigned link = fields[i].scope;
    int peer;
    fields[i].result = NOT_SUPPORTED;
    if (fields[i].field == 91 && strcmp(gpu_value("link_count", gpu, "told"), "-")) {
      fields[i].type = 1, fields[i].value.u = links_of(gpu), fields[i].result = links_of(gpu) ? OK : NOT_SUPPORTED;
    }
#ifndef OLD_DRIVER
    if (fields[i].field >= 161 && fields[i].field <= 163 && strcmp(gpu_value("link_field_errors", gpu, "0"), "-")) {
      fields[i].type = 3, fields[i].value.ull = strtoull(gpu_value("link_field_errors", gpu, "0"), NULL, 0), fields[i].result = OK;
    }
#endif
#ifdef OLD_DRIVER
    if (fields[i].field >= 84 && fields[i].field <= 89) {
#else
    if (fields[i].field == 164 && link_letter(gpu, link, &peer) > 0) {
#endif
      fields[i].type = 1, fields[i].value.u = atoi(gpu_value("link_speed", gpu, "26562")), fields[i].result = OK;
    }
    if ((fields[i].field == 215 || fields[i].field == 219) && strcmp(gpu_value("new_link_errors", gpu, "-"), "-")) {
      fields[i].type = 3, fields[i].value.ull = strtoull(gpu_value("new_link_errors", gpu, "0"), NULL, 0), fields[i].result = OK;
    }
    (void)peer, (void)link;
  }
  return OK;
}
int nvmlDeviceGetTopologyCommonAncestor(void *device, void *other, unsigned *level) {
  DEVICE;
  const char *found = pair_value("path", gpu, *(int *)other, "50");
  if (!strcmp(found, "-")) return NOT_SUPPORTED;
  *level = atoi(found);
  return OK;
}
int nvmlDeviceGetP2PStatus(void *device, void *other, unsigned index, unsigned *status) {
  DEVICE;
  unsigned codes[5] = {6, 6, 6, 6, 6};
  sscanf(pair_value("p2p", gpu, *(int *)other, "0,0,0,0,5"), "%u,%u,%u,%u,%u", codes, codes + 1, codes + 2, codes + 3, codes + 4);
  if (index > 4) return INVALID;
  *status = codes[index];
  return OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *memory) {
  DEVICE;
  const char *total = gpu_value("memory", gpu, "150754820096");
  if (!strcmp(total, "-")) return NOT_SUPPORTED;
  memory->total = strtoull(total, NULL, 0);
  memory->used = strtoull(gpu_value("used_v2", gpu, "0"), NULL, 0);
  return OK;
}
int nvmlDeviceGetMemoryAffinity(void *device, unsigned words, unsigned long *mask, unsigned scope) {
  DEVICE;
  (void)scope;
  memset(mask, 0, words * sizeof *mask);
  NUMBER("nodes", "1", mask, unsigned long);
}
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *mask) { DEVICE; NUMBER("reasons", "1", mask, unsigned long long); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *list) { DEVICE; return processes(gpu, count, list); }
int nvmlDeviceGetTemperatureV(void *device, Temperature *temperature) {
  DEVICE;
  NUMBER("temperature", "40", &temperature->temperature, int);
}
int nvmlDeviceGetGpuFabricInfoV(void *device, FabricV *info) {
  DEVICE;
  const char *state = gpu_value("fabric", gpu, "-");
  if (!strcmp(state, "-")) return NOT_SUPPORTED;
  if (info->version != 0x2000024 && info->version != 0x3000028) return 25;
  info->state = atoi(state);
  info->status = atoi(gpu_value("fabric_status", gpu, "0"));
  info->health = strtoul(gpu_value("fabric_health", gpu, "0"), NULL, 0);
  return OK;
}
#endif
