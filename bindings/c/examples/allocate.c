/* Allocates on the host backend, writes, reads back, shows a placement, and prints the report.
 *
 *   cc allocate.c $(pkg-config --cflags --libs omniheap) && ./a.out
 */
#include <omniheap.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with what the library says. */
static void must(omniheap_status status) {
    if (status != OMNIHEAP_STATUS_OK) {
        fprintf(stderr, "omniheap: %s (status %d)\n", omniheap_error(), (int)status);
        exit(1);
    }
}

static void expect(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "not as it should be: %s\n", what);
        exit(1);
    }
}

static uint32_t on_pressure(uint32_t heap, uint64_t wanted, uint64_t reserved, void *user) {
    (void)heap, (void)wanted, (void)reserved;
    ++*(int *)user;
    return 0; /* nothing was freed */
}

int main(void) {
    expect(omniheap_version() == OMNIHEAP_VERSION, "header and library belong together");
    const char *trace = getenv("OMNIHEAP_TRACE"); /* recorded there, where it is set */
    omniheap_config config = omniheap_config_default();
    config.trace = trace;
    omniheap_manager manager;
    must(omniheap_open("host", 0, &config, &manager));

    /* Allocate, write, read. */
    omniheap_request request = omniheap_request_default(1 << 20);
    request.name = "weights";
    omniheap_allocation weights;
    must(omniheap_allocate(manager, &request, &weights));
    char text[] = "one memory manager for every device", back[sizeof text];
    must(omniheap_write(weights, 4096, text, sizeof text));
    must(omniheap_read(weights, 4096, back, sizeof back));
    expect(memcmp(text, back, sizeof text) == 0, "bytes survive a round trip");

    /* Where would a table go that the host writes every frame, and why? */
    omniheap_request upload = omniheap_request_default(64 << 10);
    upload.writer = OMNIHEAP_WRITER_HOST_PER_FRAME;
    char why[1024];
    size_t length;
    must(omniheap_explain_json(manager, &upload, why, sizeof why, &length));
    printf("explain: %s\n", why);
    omniheap_planned plan = omniheap_planned_default();
    must(omniheap_plan(manager, &upload, &plan));
    printf("plan: heap %u, %llu new bytes\n", plan.heap, (unsigned long long)plan.new_bytes);

    /* A table that is final: kernels of every stream rely on it. */
    omniheap_request constants = omniheap_request_default(4096);
    constants.writer = OMNIHEAP_WRITER_HOST_ONCE;
    constants.pattern = OMNIHEAP_PATTERN_BROADCAST;
    constants.flags = OMNIHEAP_ZEROED;
    omniheap_allocation table;
    must(omniheap_allocate(manager, &constants, &table));
    must(omniheap_write(table, 0, text, sizeof text));
    must(omniheap_publish(table));
    expect(omniheap_write(table, 0, text, 1) == OMNIHEAP_STATUS_PUBLISHED, "what is final stays");
    must(omniheap_placement_json(manager, table, why, sizeof why, &length));
    printf("placed: %s\n", why);
    must(omniheap_free(table));

    /* A budget, a callback before requests fail, and an error that says what to do. */
    int calls = 0;
    must(omniheap_on_pressure(manager, on_pressure, &calls));
    must(omniheap_set_budget(manager, plan.heap, 8 << 20, 8 << 20));
    omniheap_request large = upload;
    large.size = 64 << 20;
    large.heap = plan.heap;
    omniheap_allocation none = {0};
    omniheap_status refused = omniheap_allocate(manager, &large, &none);
    expect(refused == OMNIHEAP_STATUS_OVER_BUDGET && none.id == 0, "a budget holds");
    expect(calls > 0, "the callback was asked first");
    printf("refused: %s\n", omniheap_error());

    /* Handles know when they are stale. */
    omniheap_allocation again = weights;
    expect(omniheap_close(manager) == OMNIHEAP_STATUS_BUSY, "a manager with live allocations stays");
    must(omniheap_free(weights));
    expect(omniheap_free(again) == OMNIHEAP_STATUS_STALE, "a second free is refused");
    expect(omniheap_write(again, 0, text, 1) == OMNIHEAP_STATUS_STALE, "a write after the free too");

    /* The report. */
    must(omniheap_report_json(manager, NULL, 0, &length));
    char *report = malloc(length + 1);
    must(omniheap_report_json(manager, report, length + 1, &length));
    printf("report: %.120s…\n", report);
    free(report);
    uint64_t trimmed;
    must(omniheap_trim(manager, &trimmed));
    must(omniheap_close(manager));
    expect(omniheap_trim(manager, NULL) == OMNIHEAP_STATUS_STALE, "a closed manager is gone");
    puts("ok");
    return 0;
}
