/* Runs every row of the test in its own process; see fake_test.h.
 *
 *   fake_test          all rows; exit 1 if one fails
 *   fake_test NAME     that row, in this process
 */
#include "fake_test.h"

int checks;

CUcontext begin(int device)
{
	CUcontext ctx;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, device));
	OK(cuCtxSetCurrent(ctx));
	return ctx;
}

long long free_now(void)
{
	size_t bytes, total;

	OK(cuMemGetInfo_v2(&bytes, &total));
	return (long long)bytes;
}

static const struct row *const sets[] = {driver_rows, memory_rows, reserve_rows, outside_rows};

static const struct row *find(const char *name)
{
	for (unsigned s = 0; s < sizeof sets / sizeof *sets; s++)
		for (const struct row *r = sets[s]; r->name; r++)
			if (strcmp(r->name, name) == 0)
				return r;
	return NULL;
}

static void start(const struct row *r)
{
	static const char *const ours[] = {"GPUREC_SIM_DEVICES", "GPUREC_SIM_MEMORY", "GPUREC_SIM_CONTEXT_BYTES",
					   "GPUREC_SIM_STATE", "GPUREC_SIM_FAIL", "GPUREC_SIM_NVML_FAIL",
					   "CUDA_VISIBLE_DEVICES"};
	char env[512];

	for (unsigned i = 0; i < sizeof ours / sizeof *ours; i++)
		unsetenv(ours[i]);
	snprintf(env, sizeof env, "%s", r->env);
	for (char *p = strtok(env, " "); p; p = strtok(NULL, " "))
		putenv(p);
	execl("/proc/self/exe", "fake_test", r->name, (char *)NULL);
	perror("execl");
	_exit(127);
}

int main(int argc, char **argv)
{
	int rows = 0, failed = 0;

	if (argc > 1) {
		const struct row *r = find(argv[1]);

		if (!r) {
			fprintf(stderr, "fake_test: no row \"%s\"\n", argv[1]);
			return 2;
		}
		alarm(300); /* a row that hangs must not hang the suite */
		r->run();
		if (checks == 0) {
			fprintf(stderr, "%s: checked nothing\n", r->name);
			return 1;
		}
		return 0;
	}
	for (unsigned s = 0; s < sizeof sets / sizeof *sets; s++) {
		for (const struct row *r = sets[s]; r->name; r++, rows++) {
			int status;
			pid_t pid = fork();

			if (pid == 0)
				start(r);
			if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
				printf("FAIL %s (status %#x)\n", r->name, pid < 0 ? -1 : status);
				failed++;
			}
		}
	}
	printf("fake_test: %d rows, %d failed\n", rows, failed);
	return failed || rows == 0;
}
