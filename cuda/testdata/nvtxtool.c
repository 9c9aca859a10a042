/* Another tool, that NVTX was to load before we came: it takes some functions,
 * gives out handles of its own, and prints what reaches it. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void (*fn)(void);
struct attributes {
	uint16_t version, size;
	char between[28];
	int32_t message_type;
	uint32_t pad;
	const void *message;
};

static int domain, string;

static const char *say(const struct attributes *e)
{
	return e->message_type == 3 ? e->message == &string ? "its own string" : "somebody else's string" : e->message_type == 1 ? e->message : "?";
}
static const char *whose(const void *d) { return d == NULL ? "none" : d == &domain ? "its own domain" : "somebody else's domain"; }

static void mark(const char *s) { printf("tool: mark %s\n", s); }
static uint64_t start(const char *s)
{
	printf("tool: start %s\n", s);
	return 77;
}
static void end(uint64_t id) { printf("tool: end %d\n", (int)id); }
static int push(const char *s)
{
	printf("tool: push %s\n", s);
	return 40;
}
static int pop(void)
{
	printf("tool: pop\n");
	return 41;
}
static void *create(const char *s)
{
	printf("tool: create %s\n", s);
	return &domain;
}
static void *reg(void *d, const char *s)
{
	printf("tool: register in %s %s\n", whose(d), s);
	return &string;
}
static int domain_push(void *d, const struct attributes *e)
{
	printf("tool: push in %s %s\n", whose(d), say(e));
	return 42;
}

static void category(void *d, uint32_t id, const char *s) { printf("tool: category %u in %s %s\n", id, whose(d), s); }
static void *resource(void *d, const void *attributes)
{
	printf("tool: resource in %s\n", whose(d));
	return (void *)attributes;
}

int InitializeInjectionNvtx2(const void *(*get)(uint32_t));
int InitializeInjectionNvtx2(const void *(*get)(uint32_t))
{
	const struct {
		size_t size;
		int (*table)(uint32_t, fn ***, unsigned *);
	} *callbacks = get(1);
	fn **one, **two;
	unsigned size;
	if (!callbacks->table(1, &one, &size) || !callbacks->table(5, &two, &size))
		return 0;
	*one[2] = (fn)mark;
	*one[5] = (fn)start;
	*one[7] = (fn)end;
	*one[9] = (fn)push;
	*one[11] = (fn)pop;
	*two[4] = (fn)domain_push;
	*two[6] = (fn)resource;
	*two[8] = (fn)category;
	*two[10] = (fn)reg;
	*two[12] = (fn)create;
	return 1;
}

/* The payload extension: it takes pops and schemas, and a slot that nobody
 * between it and the program can know. */
struct segment {
	size_t id, slots;
	intptr_t *functions;
};
struct module {
	uint16_t version, size, id, compatible;
	size_t segments;
	struct segment *segment;
};

static int payload_pop(void *d, const void *payloads, size_t n)
{
	(void)payloads;
	printf("tool: pop in %s with %d payload\n", whose(d), (int)n);
	return 43;
}
static uint64_t schema(void *d, const void *attributes)
{
	(void)attributes;
	printf("tool: schema in %s\n", whose(d));
	return 44;
}

int InitializeInjectionNvtxExtension(struct module *);
int InitializeInjectionNvtxExtension(struct module *m)
{
	printf("tool: extension %d\n", m->id);
	m->segment->functions[0] = (intptr_t)schema;
	m->segment->functions[4] = (intptr_t)payload_pop;
	m->segment->functions[20] = (intptr_t)payload_pop;
	return 1;
}
