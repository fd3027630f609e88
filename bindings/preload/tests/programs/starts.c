/* Allocates, and starts itself three times: plainly, with a standard error that it reads, and with a file in that place. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
typedef unsigned long long P; typedef void* H;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(H*, int), cuCtxSetCurrent(H), cuMemAlloc_v2(P*, unsigned long);
int main(int count, char** words) {
    H context; P p; int code, in[2];
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
    if (cuMemAlloc_v2(&p, 1 << 20)) return 6;
    for (int way = 0; count == 2 && way < 3; way++) {
        if (pipe(in)) return 3;
        if (!fork()) {
            if (way == 1) dup2(in[1], 2);
            if (way == 2) { close(2); open(words[1], O_CREAT | O_WRONLY, 0600); }
            execl(words[0], words[0], (char*)0);
            _exit(9);
        }
        if (wait(&code) < 0 || code) return 4;
        close(in[1]);
        if (read(in[0], &code, 1)) return 5;
    }
    return 0;
}
