/* A library that uses NVTX: the client's side of the protocol, as a header-only
 * NVTX does it in each library, written from its description. Its function
 * nvtx_client does one of everything and says what came back. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

typedef void (*fn)(void);
struct attributes {
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	uint64_t payload;
	int32_t message_type;
	const void *message;
};

static fn core[16], core2[16];
static fn *core_slots[16], *core2_slots[16];
static uint32_t tool_version;

/* The value of a slot before a tool is there: must never be called again. */
static void stub(void)
{
	fprintf(stderr, "a lazy stub was called\n");
	abort();
}

static int module_table(uint32_t module, fn ***table, unsigned *size)
{
	if (module != 1 && module != 5)
		return 0;
	*table = module == 1 ? core_slots : core2_slots;
	*size = 16;
	return 1;
}

static void set_version(uint32_t v) { tool_version = v; }

static const void *export_table(uint32_t id)
{
	static const struct {
		size_t size;
		int (*get)(uint32_t, fn ***, unsigned *);
	} callbacks = {sizeof callbacks, module_table};
	static const struct {
		size_t size;
		uint32_t version, reserved;
		void (*set)(uint32_t);
	} version = {sizeof version, 3, 0, set_version};
	return id == 1 ? (const void *)&callbacks : id == 3 ? (const void *)&version : NULL;
}

static void init(void)
{
	for (int i = 1; i < 16; i++) {
		core[i] = core2[i] = stub;
		core_slots[i] = &core[i];
		core2_slots[i] = &core2[i];
	}
	const char *path = getenv("NVTX_INJECTION64_PATH");
	void *lib = path ? dlopen(path, RTLD_LAZY) : NULL;
	int (*start)(const void *(*)(uint32_t)) = lib ? (int (*)(const void *(*)(uint32_t)))dlsym(lib, "InitializeInjectionNvtx2") : NULL;
	int ok = start && start(export_table);
	for (int i = 1; i < 16; i++) {
		if (!ok || core[i] == stub)
			core[i] = NULL;
		if (!ok || core2[i] == stub)
			core2[i] = NULL;
	}
	printf("init %d version %u\n", ok, tool_version);
}

/* The payload extension: a table of its own, filled at its first call. 0 in a
 * slot: the tool leaves it. */
struct segment {
	size_t id, slots;
	intptr_t *functions;
};
struct module {
	uint16_t version, size, id, compatible;
	size_t segments;
	struct segment *segment;
	const void *(*get)(uint32_t);
	const void *info;
};
enum { SLOTS = 63 };
static intptr_t payload_slots[SLOTS];

static void init_extension(uint16_t id, intptr_t *slots)
{
	struct segment segment = {0, SLOTS, slots};
	struct module module = {3, sizeof module, id, 0x0104, 1, &segment, NULL, NULL};
	const char *path = getenv("NVTX_INJECTION64_PATH");
	void *lib = path ? dlopen(path, RTLD_LAZY) : NULL;
	int (*start)(struct module *) = lib ? (int (*)(struct module *))dlsym(lib, "InitializeInjectionNvtxExtension") : NULL;
	int ok = start && start(&module), filled = 0;
	for (int i = 0; i < SLOTS; i++) {
		if (!ok)
			slots[i] = 0;
		filled += slots[i] != 0;
	}
	printf("extension %d: %d, %d functions\n", id, ok, filled);
}

#define EXTENSION(slot, type, otherwise, ...) (payload_slots[slot] ? ((type)payload_slots[slot])(__VA_ARGS__) : (otherwise))

/* Ranges that end with a payload, as NCCL's do, and some that begin with one. */
static void payloads(void *domain, struct attributes *e, int (*domain_push)(void *, struct attributes *))
{
	struct {
		uint64_t schema;
		size_t size;
		const void *data;
	} payload = {1 << 24, 4, "data"};
	intptr_t counters[SLOTS] = {0};
	init_extension(2, payload_slots);
	init_extension(4, counters);
	printf("enabled %d\n", EXTENSION(7, uint8_t(*)(void *), 0, domain));
	printf("schema %d\n", (int)EXTENSION(0, uint64_t(*)(void *, void *), 0, domain, &payload));
	printf("domain push %d\n", domain_push ? domain_push(domain, e) : -2);
	printf("payload push %d\n", EXTENSION(3, int (*)(void *, void *, size_t), -2, domain, &payload, 1));
	printf("payload pop %d\n", EXTENSION(4, int (*)(void *, void *, size_t), -2, domain, &payload, 1));
	printf("payload pop %d\n", EXTENSION(4, int (*)(void *, void *, size_t), -2, domain, &payload, 1));
	uint64_t a = EXTENSION(5, uint64_t(*)(void *, void *, size_t), 0, domain, &payload, 1);
	printf("payload range %s\n", a ? "has an id" : "has none");
	if (payload_slots[6])
		((void (*)(void *, uint64_t, void *, size_t))payload_slots[6])(domain, a, &payload, 1);
	if (payload_slots[2])
		((void (*)(void *, void *, size_t))payload_slots[2])(domain, &payload, 1);
}

#define CALL(table, id, type, otherwise, ...) (table[id] ? ((type)table[id])(__VA_ARGS__) : (otherwise))
#define DO(table, id, type, ...) \
	if (table[id]) \
	((type)table[id])(__VA_ARGS__)

void nvtx_client(void)
{
	struct attributes e = {3, 48, 0, 0, 0, 0, 0, 0, 1, "ex"}, registered = e, wide = e, old = e;
	init();
	wide.message_type = 2;
	wide.message = L"wide \u6e2c";
	old.size = 32; /* too small to have a message */

	printf("push %d\n", CALL(core, 9, int (*)(const char *), -2, "outer"));
	printf("push %d\n", CALL(core, 8, int (*)(struct attributes *), -2, &e));
	printf("push %d\n", CALL(core, 10, int (*)(const wchar_t *), -2, L"gr\u00f6\u00dfe"));
	printf("push %d\n", CALL(core, 8, int (*)(struct attributes *), -2, &old));
	printf("pop %d\n", CALL(core, 11, int (*)(void), -2));
	printf("pop %d\n", CALL(core, 11, int (*)(void), -2));

	void *domain = CALL(core2, 12, void *(*)(const char *), NULL, "lib");
	void *other = CALL(core2, 13, void *(*)(const wchar_t *), NULL, L"other");
	void *string = CALL(core2, 10, void *(*)(void *, const char *), NULL, domain, "kept");
	DO(core2, 8, void (*)(void *, uint32_t, const char *), domain, 5, "category");
	DO(core2, 6, void *(*)(void *, void *), domain, &e);
	registered.message_type = 3;
	registered.message = string;
	printf("domain push %d\n", CALL(core2, 4, int (*)(void *, struct attributes *), -2, domain, &registered));
	printf("domain push %d\n", CALL(core2, 4, int (*)(void *, struct attributes *), -2, other, &wide));
	printf("domain pop %d\n", CALL(core2, 5, int (*)(void *), -2, domain));
	printf("domain pop %d\n", CALL(core2, 5, int (*)(void *), -2, domain));
	printf("domain pop %d\n", CALL(core2, 5, int (*)(void *), -2, other));

	uint64_t a = CALL(core, 5, uint64_t(*)(const char *), 0, "range a");
	uint64_t b = CALL(core2, 2, uint64_t(*)(void *, struct attributes *), 0, domain, &registered);
	printf("ranges %s\n", a != 0 && b != 0 && a != b ? "differ" : "are wrong");
	DO(core, 7, void (*)(uint64_t), a);
	DO(core2, 3, void (*)(void *, uint64_t), domain, b);
	DO(core, 2, void (*)(const char *), "mark");
	DO(core2, 1, void (*)(void *, struct attributes *), domain, &registered);
	printf("pop %d\n", CALL(core, 11, int (*)(void), -2));
	printf("pop %d\n", CALL(core, 11, int (*)(void), -2));
	printf("pop %d\n", CALL(core, 11, int (*)(void), -2));
	payloads(domain, &registered, (int (*)(void *, struct attributes *))core2[4]);
	DO(core2, 14, void (*)(void *), domain);
}
