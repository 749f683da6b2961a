/* The one program that volunteers' clients run for Windfall: it runs the tasks of a workunit, one after another.

   Reads the file `job` (netstrings, see windfall/boinc/bundle.py), writes the archive `out` and, last of all, the file
   `boinc_finish_called`. Speaks the client's shared memory (boinc_mmap_file): suspend, resume, quit, abort, heartbeat.
   Each task runs in a directory and a process group of its own, within its wall time and memory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHANNEL 1024
#define CONTROL 0
#define HEARTBEAT (4 * CHANNEL)
#define STATUS (5 * CHANNEL)
#define MAX_FILES 10000
#define HEARTBEAT_S 30.0
#define POLL_NS 50000000
#define EXIT_BROKEN 190
#define EXIT_ABORTED 194

static char *shared;           /* the client's shared memory; NULL if it has none */
static pid_t group;            /* the process group of the running task; 0 if none runs */
static pid_t client;
static double heard_s;         /* when the client's heart was last heard */
static int suspended;
static double cpu_before_s;    /* processor time of the tasks that have ended */
static long tasks_total, tasks_done;

struct text { char *at; size_t size; };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void kill_group(int signal) {
    if (group > 0) kill(-group, signal);
}

static void end(int code, const char *why) {
    kill_group(SIGKILL);
    fprintf(stderr, "launcher: %s\n", why);
    exit(code);
}

static void *memory(size_t size) {
    void *made = calloc(1, size ? size : 1);
    if (!made) end(EXIT_BROKEN, "out of memory");
    return made;
}

/* --- the job file ------------------------------------------------------------------------------------------------ */

static char *job_at, *job_end;

/* The next netstring; always followed by a NUL, which replaces its comma. */
static struct text next(void) {
    struct text found = {0, 0};
    char *rest;
    if (job_at >= job_end) end(EXIT_BROKEN, "the job file ends early");
    found.size = strtoul(job_at, &rest, 10);
    if (*rest != ':' || found.size > (size_t)(job_end - rest) - 2 || rest[1 + found.size] != ',')
        end(EXIT_BROKEN, "the job file is damaged");
    found.at = rest + 1;
    found.at[found.size] = 0;
    job_at = found.at + found.size + 1;
    return found;
}

static double number(void) { return strtod(next().at, NULL); }

static char *slurp(const char *path, size_t *size) {
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about)) end(EXIT_BROKEN, "a file of the workunit cannot be read");
    char *data = memory(about.st_size + 1);
    size_t have = 0;
    ssize_t got;
    while (have < (size_t)about.st_size && (got = read(file, data + have, about.st_size - have)) > 0) have += got;
    close(file);
    *size = have;
    return data;
}

/* The client leaves a small file that names the real one; its path is returned. */
static char *resolved(const char *name) {
    static char path[4096];
    char head[4200] = "";
    int file = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, head, sizeof head - 1);
    if (file >= 0) close(file);
    char *start = got > 0 ? strstr(head, "<soft_link>") : NULL, *stop = start ? strstr(start, "</soft_link>") : NULL;
    if (start == head && stop && stop - start - 11 < (long)sizeof path) {
        memcpy(path, start + 11, stop - start - 11);
        path[stop - start - 11] = 0;
    } else {
        snprintf(path, sizeof path, "%s", name);
    }
    return path;
}

/* --- what the client says ------------------------------------------------------------------------------------------ */

static int take(int channel, char *into) {
    if (!shared || shared[channel] != 1) return 0;
    memcpy(into, shared + channel + 1, CHANNEL - 1);
    into[CHANNEL - 1] = 0;
    shared[channel] = 0;
    return 1;
}

static void listen_to_client(void) {
    char said[CHANNEL];
    if (getppid() != client) end(0, "the client has gone");
    if (!shared) return;
    if (take(HEARTBEAT, said)) heard_s = now_s();
    if (now_s() - heard_s > HEARTBEAT_S) end(0, "the client has fallen silent");
    if (!take(CONTROL, said)) return;
    if (strstr(said, "<suspend/>")) { suspended = 1; kill_group(SIGSTOP); }
    if (strstr(said, "<resume/>")) { suspended = 0; kill_group(SIGCONT); }
    if (strstr(said, "<quit/>")) end(0, "told to quit");
    if (strstr(said, "<abort/>")) end(EXIT_ABORTED, "told to abort");
}

static void tell_client(double cpu_s) {
    if (!shared || shared[STATUS]) return;
    snprintf(shared + STATUS + 1, CHANNEL - 1,
             "<current_cpu_time>%e</current_cpu_time>\n<checkpoint_cpu_time>%e</checkpoint_cpu_time>\n"
             "<fraction_done>%e</fraction_done>\n",
             cpu_s, cpu_before_s, tasks_total ? (double)tasks_done / tasks_total : 0.0);
    shared[STATUS] = 1;
}

/* Resident bytes and processor seconds of all processes of the group. */
static void measure(double *rss_bytes, double *cpu_s) {
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    double pages = 0, ticks = 0;
    while (processes && (entry = readdir(processes))) {
        char path[300], line[1024] = "", *after;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        ssize_t got = read(file, line, sizeof line - 1);
        close(file);
        if (got <= 0 || !(after = strrchr(line, ')'))) continue;
        int its_group;
        unsigned long user, kernel;
        long resident;
        if (sscanf(after + 1, " %*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %*u %*u %ld",
                   &its_group, &user, &kernel, &resident) == 4 && its_group == group) {
            pages += resident;
            ticks += user + kernel;
        }
    }
    if (processes) closedir(processes);
    *rss_bytes = pages * sysconf(_SC_PAGESIZE);
    *cpu_s = ticks / sysconf(_SC_CLK_TCK);
}

/* --- files of a task ------------------------------------------------------------------------------------------------ */

static int is_safe(const char *name) {
    if (!*name || *name == '/') return 0;
    for (const char *at = name; at; at = strchr(at, '/'), at = at ? at + 1 : NULL)
        if (!strncmp(at, "..", 2) && (at[2] == '/' || !at[2])) return 0;
    return 1;
}

static int copy(const char *from, const char *to, mode_t mode) {
    char buffer[65536];
    ssize_t got;
    int in = open(from, O_RDONLY | O_CLOEXEC), out, good = in >= 0;
    if (!good) return 0;
    unlink(to);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    good = out >= 0;
    while (good && (got = read(in, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0, put; good && at < got; at += put)
            if ((put = write(out, buffer + at, got - at)) <= 0) good = 0, put = 0;
    close(in);
    if (out >= 0) {
        good = good && !fchmod(out, mode);
        good = !close(out) && good;
    }
    return good;
}

static int place(const char *root, const char *name, const char *source, mode_t mode) {
    char path[8192];
    if (!is_safe(name) || snprintf(path, sizeof path, "%s/%s", root, name) >= (int)sizeof path) return 0;
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    return copy(resolved(source), path, mode ? mode & 0777 : 0644);
}

static void remove_all(const char *path) {
    struct stat about;
    if (lstat(path, &about)) return;
    if (S_ISDIR(about.st_mode)) {
        chmod(path, 0700);
        DIR *folder = opendir(path);
        struct dirent *entry;
        while (folder && (entry = readdir(folder))) {
            char below[8192];
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) < (int)sizeof below) remove_all(below);
        }
        if (folder) closedir(folder);
        rmdir(path);
    } else {
        unlink(path);
    }
}

static char *found[MAX_FILES];
static int found_count;

static void note(const char *name) {
    for (int i = 0; i < found_count; i++)
        if (!strcmp(found[i], name)) return;
    if (found_count < MAX_FILES && !(found[found_count++] = strdup(name))) end(EXIT_BROKEN, "out of memory");
}

static int all_below(const char *root, const char *name);

/* Files below `root` that match the parts of a pattern; `**` is any number of folders. Links are not followed. */
static int match(const char *root, const char *base, char **parts) {
    char path[8192], name[8192];
    struct stat about;
    int count = 0;
    if (!*parts) {
        if (snprintf(path, sizeof path, "%s/%s", root, base) >= (int)sizeof path || lstat(path, &about)) return 0;
        if (S_ISDIR(about.st_mode)) return all_below(root, base);
        if (!S_ISREG(about.st_mode)) return 0;
        note(base);
        return 1;
    }
    int any = !strcmp(*parts, "**");
    if (any && parts[1]) count += match(root, base, parts + 1);
    snprintf(path, sizeof path, "%s/%s", root, base);
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (snprintf(name, sizeof name, "%s%s%s", base, *base ? "/" : "", entry->d_name) >= (int)sizeof name) continue;
        if (any) {
            if (snprintf(path, sizeof path, "%s/%s", root, name) < (int)sizeof path && !lstat(path, &about)) {
                if (S_ISDIR(about.st_mode)) count += match(root, name, parts);
                else if (!parts[1]) count += match(root, name, parts + 1);
            }
        } else if (!fnmatch(*parts, entry->d_name, 0) || !strcmp(*parts, entry->d_name)) {
            count += match(root, name, parts + 1);
        }
    }
    if (folder) closedir(folder);
    return count;
}

static int all_below(const char *root, const char *name) {
    static char *every[] = {"**", NULL};
    return match(root, name, every);
}

static int find(const char *root, char *pattern) {
    char *parts[256];
    int count = 0;
    if (!is_safe(pattern)) return 0;
    for (char *part = strtok(pattern, "/"); part && count < 255; part = strtok(NULL, "/"))
        if (strcmp(part, ".")) parts[count++] = part;
    parts[count] = NULL;
    return count ? match(root, "", parts) : 0;
}

/* --- the archive ---------------------------------------------------------------------------------------------------- */

static FILE *archive;

/* Bytes of a file into the archive: all of them, or head and tail if there are more than `cap`. */
static void put(const char *path, long long size, long long cap) {
    char buffer[65536];
    FILE *file = fopen(path, "re");
    long long head = size > cap ? cap / 2 : size, tail = size > cap ? cap - head : 0, left;
    for (int part = 0; part < 2; part++) {
        left = part ? tail : head;
        if (part && tail && file) fseeko(file, size - tail, SEEK_SET);
        while (left > 0) {
            size_t want = left < (long long)sizeof buffer ? (size_t)left : sizeof buffer;
            size_t got = file ? fread(buffer, 1, want, file) : 0;
            if (!got) memset(buffer, 0, want), got = want; /* it shrank: the announced length holds */
            fwrite(buffer, 1, got, archive);
            left -= got;
        }
    }
    if (file) fclose(file);
}

static long long size_of(const char *path) {
    struct stat about;
    return stat(path, &about) ? 0 : (long long)about.st_size;
}

/* --- a task ------------------------------------------------------------------------------------------------------------ */

struct ended { const char *cause; int code; double run_s, cpu_s, rss_bytes; };

static struct ended run(char **argv, char **env, double wall_s, double memory_bytes, int has_input) {
    struct ended result = {"done", 0, 0, 0, 0};
    struct rusage used;
    int status, errors[2], why = 0;
    if (pipe2(errors, O_CLOEXEC)) end(EXIT_BROKEN, "no pipe");
    pid_t child = fork();
    if (child < 0) end(EXIT_BROKEN, "no process");
    if (!child) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        int in = open(has_input ? "task.stdin" : "/dev/null", O_RDONLY);
        int out = open("task.stdout", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        int err = open("task.stderr", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (in < 0 || out < 0 || err < 0 || chdir("task")) _exit(EXIT_BROKEN);
        dup2(in, 0); dup2(out, 1); dup2(err, 2);
        close(in); close(out); close(err);
        execvpe(argv[0], argv, env);
        why = errno;
        if (write(errors[1], &why, sizeof why) < 0) _exit(EXIT_BROKEN);
        _exit(127);
    }
    setpgid(child, child);
    group = child;
    if (suspended) kill_group(SIGSTOP);
    close(errors[1]);
    double last_s = now_s(), looked_s = 0;
    for (;;) {
        pid_t got = wait4(child, &status, WNOHANG, &used);
        if (got == child) break;
        if (got < 0 && errno != EINTR) end(EXIT_BROKEN, "the task cannot be waited for");
        listen_to_client();
        double t = now_s();
        if (!suspended) result.run_s += t - last_s;
        last_s = t;
        if (t - looked_s >= 1.0) {
            double rss, cpu;
            measure(&rss, &cpu);
            looked_s = t;
            if (rss > result.rss_bytes) result.rss_bytes = rss;
            tell_client(cpu_before_s + cpu);
            if (memory_bytes > 0 && rss > memory_bytes) { result.cause = "oom"; kill_group(SIGKILL); }
        }
        if (wall_s > 0 && result.run_s > wall_s) { result.cause = "time"; kill_group(SIGKILL); }
        struct timespec pause = {0, result.run_s < 0.05 ? 1000000 : POLL_NS};
        nanosleep(&pause, NULL);
    }
    kill_group(SIGKILL); /* whatever it left behind */
    group = 0;
    result.run_s += now_s() - last_s;
    result.cpu_s = used.ru_utime.tv_sec + used.ru_utime.tv_usec / 1e6 + used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6;
    cpu_before_s += result.cpu_s;
    if (used.ru_maxrss * 1024.0 > result.rss_bytes) result.rss_bytes = used.ru_maxrss * 1024.0;
    ssize_t told = read(errors[0], &why, sizeof why);
    close(errors[0]);
    if (WIFSIGNALED(status)) {
        if (!strcmp(result.cause, "done")) result.cause = "signal";
        result.code = -WTERMSIG(status);
    } else {
        result.code = WEXITSTATUS(status);
        if (result.code && !strcmp(result.cause, "done")) result.cause = told == sizeof why ? "no-command" : "exit";
    }
    return result;
}

static void one_task(int wanted) {
    long task = number();
    double wall_s = number(), memory_bytes = number();
    long long cap = number(), most = number();
    long n = number();
    char **argv = memory((n + 1) * sizeof *argv);
    for (long i = 0; i < n; i++) argv[i] = next().at;
    n = number();
    char **env = memory((n + 1) * sizeof *env);
    for (long i = 0; i < n; i++) env[i] = next().at;
    if (wanted) {
        remove_all("task");
        mkdir("task", 0700);
    }
    int placed = 1;
    n = number();
    for (long i = 0; i < n; i++) {
        char *name = next().at, *source = next().at;
        mode_t mode = number();
        if (wanted) placed = place("task", name, source, mode) && placed;
    }
    n = number();
    char **patterns = memory((n + 1) * sizeof *patterns);
    for (long i = 0; i < n; i++) patterns[i] = next().at;
    struct text input = next();
    if (!wanted) goto out;
    struct ended result = {"inputs", 0, 0, 0, 0};
    unlink("task.stdout");
    unlink("task.stderr");
    if (placed) {
        if (input.size) {
            FILE *file = fopen("task.stdin", "we");
            if (!file || fwrite(input.at, 1, input.size, file) != input.size || fclose(file))
                end(EXIT_BROKEN, "the input cannot be written");
        }
        result = run(argv, env, wall_s, memory_bytes, input.size > 0);
    }
    found_count = 0;
    if (!strcmp(result.cause, "done"))
        for (long i = 0; patterns[i]; i++)
            if (!find("task", patterns[i])) result.cause = "outputs";
    long long out_size = size_of("task.stdout"), err_size = size_of("task.stderr"), total = 0;
    for (int i = 0; i < found_count; i++) {
        char path[8300];
        snprintf(path, sizeof path, "task/%s", found[i]);
        total += size_of(path);
    }
    if (total > most) result.cause = "outputs", found_count = 0; /* more than the server takes */
    long long out_kept = out_size > cap ? cap : out_size, err_kept = err_size > cap ? cap : err_size;
    fprintf(archive, "T %ld %s %d %.3f %.3f %.0f %lld %lld %lld %lld %d\n", task, result.cause, result.code,
            result.run_s, result.cpu_s, result.rss_bytes, out_kept, out_size - out_kept, err_kept, err_size - err_kept,
            found_count);
    put("task.stdout", out_size, cap);
    put("task.stderr", err_size, cap);
    for (int i = 0; i < found_count; i++) {
        char path[8300];
        struct stat about;
        snprintf(path, sizeof path, "task/%s", found[i]);
        if (lstat(path, &about)) memset(&about, 0, sizeof about);
        fprintf(archive, "F %o %lld %zu\n%s", (unsigned)(about.st_mode & 0777), (long long)about.st_size,
                strlen(found[i]), found[i]);
        put(path, about.st_size, about.st_size);
        free(found[i]);
    }
out:
    free(argv);
    free(env);
    free(patterns);
}

/* A client that is started again begins a workunit anew; tasks that have ended need not run twice. */
static void save_progress(void) {
    if (fflush(archive) || fsync(fileno(archive))) end(EXIT_BROKEN, "the archive cannot be written");
    FILE *file = fopen("progress.new", "we");
    if (!file || fprintf(file, "%ld %lld %f\n", tasks_done, (long long)ftello(archive), cpu_before_s) < 0 || fclose(file) ||
        rename("progress.new", "progress"))
        end(EXIT_BROKEN, "the progress cannot be written");
}

static long long load_progress(void) {
    long long size = 0;
    FILE *file = fopen("progress", "re");
    if (!file) return 0;
    if (fscanf(file, "%ld %lld %lf", &tasks_done, &size, &cpu_before_s) != 3) tasks_done = size = 0, cpu_before_s = 0;
    fclose(file);
    if (size_of("out.part") < size) tasks_done = size = 0, cpu_before_s = 0;
    return size;
}

int main(void) {
    size_t size;
    client = getppid();
    heard_s = now_s();
    int file = open("boinc_mmap_file", O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        if (size_of("boinc_mmap_file") >= 8 * CHANNEL)
            shared = mmap(NULL, 8 * CHANNEL, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (shared == MAP_FAILED) shared = NULL;
        close(file);
    }
    job_at = slurp(resolved("job"), &size);
    job_end = job_at + size;
    if (strcmp(next().at, "windfall-bundle-1")) end(EXIT_BROKEN, "the job file is of another version");
    tasks_total = number();
    long long kept = load_progress();
    archive = fopen("out.part", kept ? "r+e" : "we");
    if (!archive || ftruncate(fileno(archive), kept) || fseeko(archive, kept, SEEK_SET))
        end(EXIT_BROKEN, "the archive cannot be written");
    if (!kept) fprintf(archive, "WF1 %ld\n", tasks_total);
    long skip = tasks_done;
    for (long i = 0; i < tasks_total; i++) {
        listen_to_client();
        while (suspended) {
            struct timespec pause = {0, POLL_NS};
            nanosleep(&pause, NULL);
            listen_to_client();
        }
        one_task(i >= skip);
        if (i < skip) continue;
        tasks_done = i + 1;
        save_progress();
    }
    remove_all("task");
    fputs("E\n", archive);
    if (fflush(archive) || fsync(fileno(archive)) || fclose(archive) || rename("out.part", "out"))
        end(EXIT_BROKEN, "the archive cannot be written");
    tell_client(cpu_before_s);
    FILE *finish = fopen("boinc_finish_called", "we");
    if (!finish || fputs("0\n", finish) < 0 || fclose(finish)) end(EXIT_BROKEN, "the finish file cannot be written");
    return 0;
}
