/*
 * unhooked.c - what is looked up in libcuda, may take memory, and has no wrapper:
 * functions of a driver that is newer than this library, told by words of their
 * names (format/api.go).
 */
#include "hook.h"

static bool may_take(const char *name)
{
	static const char *const words[] = {
#define WORD(word) word,
		GPUREC_UNHOOKED_WORDS(WORD)
#undef WORD
	};
	if (strstr(name, "Get") != NULL)
		return false;
	for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strstr(name, words[i]) != NULL)
			return true;
	return false;
}

/* Hashes of the names that were noted; beyond that many a name may be noted again. */
enum { NOTED = 64 };
static uint64_t noted[NOTED];

static bool was_noted(uint64_t hash)
{
	for (unsigned i = 0; i < NOTED; i++)
		if (__atomic_load_n(&noted[i], __ATOMIC_RELAXED) == hash)
			return true;
	return false;
}

static uint64_t hash_of(const char *name) { return gpurec_text_hash(name, strnlen(name, GPUREC_MAX_NAME_BYTES), 0); }

bool gpurec_unhooked(const char *name) { return may_take(name) && !was_noted(hash_of(name)); }

void gpurec_note_unhooked(const char *name)
{
	if (may_take(name))
		gpurec_note_past(name);
}

void gpurec_note_past(const char *name)
{
	if (was_noted(hash_of(name)))
		return;
	struct thread *t = gpurec_enter();
	if (t == NULL)
		return;
	uint64_t text = gpurec_def_name(t, name);
	struct record *r = gpurec_record(t, 1, false);
	r->s = (gpurec_scope){.kind = GPUREC_KIND_UNHOOKED, .device = -1, .name = text};
	if (gpurec_publish(t, r, 1))
		for (unsigned i = 0; i < NOTED; i++) {
			uint64_t none = 0;
			if (__atomic_compare_exchange_n(&noted[i], &none, hash_of(name), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
				break;
		}
	gpurec_leave();
}
