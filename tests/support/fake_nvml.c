/* A libnvidia-ml.so.1 without GPUs: as much of it as pynvml needs, told by the environment what to
 * pretend.  tests/support/nvml.py builds it and writes the variables.
 *
 *   FAKE_NVML_COUNT          how many devices (default 0)
 *   FAKE_NVML_NAME[_I]       name of device I, or of all; any bytes
 *   FAKE_NVML_MEMORY[_I]     bytes of memory
 *   FAKE_NVML_CC[_I]         compute capability, such as 9.0
 *   FAKE_NVML_UUID[_I]
 *   FAKE_NVML_FAIL           words STEP=CODE or STEP:I=CODE: that call returns that NVML code
 *   FAKE_NVML_CRASH          words STEP or STEP:I: that call crashes
 *   FAKE_NVML_HANG           the same: that call never returns
 *
 * Steps: Init Count Handle Name Memory Capability Uuid.
 */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NO_SIZE = 7 };

struct memory {
    unsigned long long total, free, used;
};

/* The text behind STEP or STEP:I in the list of words, or NULL. */
static const char *told(const char *variable, const char *step, int index) {
    const char *list = getenv(variable);
    char exact[64];
    snprintf(exact, sizeof exact, "%s:%d", step, index);
    while (list && *list) {
        size_t word = strcspn(list, " ");
        size_t name = strcspn(list, " =");
        if ((name == strlen(step) && !strncmp(list, step, name)) ||
            (name == strlen(exact) && !strncmp(list, exact, name)))
            return list + name;
        list += word + (list[word] == ' ');
    }
    return NULL;
}

/* Carries out what was asked of this call; the code that it is to return. */
static int act(const char *step, int index) {
    const char *code = told("FAKE_NVML_FAIL", step, index);
    if (told("FAKE_NVML_CRASH", step, index)) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    while (told("FAKE_NVML_HANG", step, index))
        pause();
    return code ? atoi(code + 1) : SUCCESS;
}

static const char *value(const char *name, int index, const char *fallback) {
    char variable[64];
    const char *found;
    snprintf(variable, sizeof variable, "FAKE_NVML_%s_%d", name, index);
    if ((found = getenv(variable)))
        return found;
    snprintf(variable, sizeof variable, "FAKE_NVML_%s", name);
    found = getenv(variable);
    return found ? found : fallback;
}

static int count(void) { return atoi(value("COUNT", -1, "0")); }

static int copy(const char *text, char *into, unsigned int size) {
    if (strlen(text) >= size)
        return NO_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

/* A handle is the device's index plus one, so that none is NULL. */
static int index_of(void *handle) { return (int)(long)handle - 1; }

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    return act("Init", -1);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *into) {
    *into = (unsigned int)count();
    return act("Count", -1);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **into) {
    if (index >= (unsigned int)count())
        return INVALID_ARGUMENT;
    *into = (void *)((long)index + 1);
    return act("Handle", (int)index);
}

int nvmlDeviceGetName(void *handle, char *into, unsigned int size) {
    int index = index_of(handle);
    int code = act("Name", index);
    return code ? code : copy(value("NAME", index, "NVIDIA Fake"), into, size);
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *into) {
    int index = index_of(handle);
    into->total = into->free = strtoull(value("MEMORY", index, "85520809984"), NULL, 10);
    into->used = 0;
    return act("Memory", index);
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    int index = index_of(handle);
    int code = act("Capability", index);
    if (!code && sscanf(value("CC", index, "9.0"), "%d.%d", major, minor) != 2)
        return INVALID_ARGUMENT;
    return code;
}

int nvmlDeviceGetUUID(void *handle, char *into, unsigned int size) {
    int index = index_of(handle);
    int code = act("Uuid", index);
    char fallback[64];
    snprintf(fallback, sizeof fallback, "GPU-%08d-0000-0000-0000-000000000000", index);
    return code ? code : copy(value("UUID", index, fallback), into, size);
}

const char *nvmlErrorString(int code) {
    static char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}
