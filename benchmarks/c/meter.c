/*
 * meter.c - runs a program and writes what it took.
 *
 *	meter FILE COMMAND [ARG…]
 *
 * FILE gets CPU time in ns and the largest resident size in bytes. A process of
 * its own for that, because the kernel counts into a program's largest size
 * that of the process it was started from, and this one is small.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	pid_t pid = fork();
	if (pid == 0) {
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		_exit(127);
	}
	int status;
	struct rusage u;
	if (pid < 0 || wait4(pid, &status, 0, &u) != pid)
		return 1;
	FILE *f = fopen(argv[1], "w");
	if (f == NULL)
		return 1;
	long long cpu = (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000ll + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000ll;
	fprintf(f, "%lld %lld\n", cpu, (long long)u.ru_maxrss << 10);
	fclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
