// omniheap.hpp on host memory: move-only owners that free by themselves and throw on errors.
#include <omniheap.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

static_assert(!std::is_copy_constructible<omniheap::allocation>::value, "bytes have one owner");
static_assert(std::is_nothrow_move_constructible<omniheap::allocation>::value, "vectors move them");

#define EXPECT(what) \
    do { \
        if (!(what)) { \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, #what); \
            std::exit(1); \
        } \
    } while (0)

// The status with which something fails; OMNIHEAP_STATUS_OK where it does not.
template <class Work>
static omniheap_status failure(Work work) {
    try {
        work();
    } catch (const omniheap::error &error) {
        EXPECT(std::strlen(error.what()) > 10);
        return error.status();
    }
    return OMNIHEAP_STATUS_OK;
}

static void bytes(omniheap::manager &manager) {
    omniheap_request request = omniheap_request_default(4096);
    request.writer = OMNIHEAP_WRITER_HOST_ONCE;
    request.name = "weights";
    omniheap::allocation weights = manager.allocate(request);
    const char text[] = "one manager for every device";
    char back[sizeof text];
    weights.write(0, text, sizeof text);
    weights.read(0, back, sizeof back);
    EXPECT(std::memcmp(text, back, sizeof text) == 0 && weights.place().size == 4096);
    EXPECT(manager.report_json().find("weights") != std::string::npos);
    EXPECT(failure([&] { weights.read(4096, back, 1); }) == OMNIHEAP_STATUS_OUT_OF_RANGE);

    omniheap::allocation moved = std::move(weights);
    EXPECT(moved && !weights && failure([&] { weights.pin(); }) == OMNIHEAP_STATUS_STALE);
    omniheap::allocation &same = moved;
    moved = std::move(same);
    EXPECT(moved.pin() != 0 && failure([&] { moved.map(); }) == OMNIHEAP_STATUS_NOT_MAPPABLE);
    request.writer = OMNIHEAP_WRITER_HOST_PER_FRAME;
    moved = manager.allocate(request);
    std::memset(moved.map(), 7, 4096);
    EXPECT(manager.totals().live == 1);
    omniheap::allocation stale(moved.get());
    moved.free();
    EXPECT(!moved && failure([&] { stale.free(); }) == OMNIHEAP_STATUS_STALE);
    EXPECT(failure([&] { moved.free(); }) == OMNIHEAP_STATUS_STALE);
    manager.allocate(64).free_after(0, 0);
}

static void refusals(omniheap::manager &manager) {
    EXPECT(failure([&] { manager.allocate(0); }) == OMNIHEAP_STATUS_ZERO_SIZE);
    EXPECT(failure([&] { manager.overwrites(); }) == OMNIHEAP_STATUS_INVALID_CONFIG);
    EXPECT(failure([] { omniheap::manager::open("metal"); }) == OMNIHEAP_STATUS_INVALID_ARGUMENT);
    EXPECT(failure([] { omniheap::manager().allocate(1); }) == OMNIHEAP_STATUS_STALE);
    for (std::uint64_t size : {std::uint64_t{1} << 63, UINT64_MAX}) {
        EXPECT(failure([&] { manager.allocate(size); }) != OMNIHEAP_STATUS_OK);
    }
    omniheap::pool pool = manager.create_pool(0, omniheap_pool_config_default());
    omniheap::allocation inside = pool.allocate(1 << 20);
    EXPECT(pool.totals().live_bytes == 1 << 20 && manager.step() == OMNIHEAP_STEP_IDLE);
    EXPECT(failure([&] { pool.destroy(); }) == OMNIHEAP_STATUS_BUSY && pool);
    EXPECT(failure([&] { manager.close(); }) == OMNIHEAP_STATUS_BUSY && manager);
    inside.free();
    pool.destroy();
}

// A manager whose blocks have a gap at every place but one in seven; the numbers are the owner's pointers.
static std::vector<omniheap::allocation> scattered(omniheap::manager &manager) {
    std::vector<omniheap::allocation> all, kept;
    for (std::uint64_t number = 0; number < 400; ++number) {
        all.push_back(manager.allocate(256 << 10));
        all.back().write(0, &number, sizeof number);
    }
    for (std::size_t at = 0; at < all.size(); at += 7) kept.push_back(std::move(all[at]));
    for (omniheap::allocation &one : kept) one.set_user(&one);
    return kept;
}

static void passes() {
    omniheap_config config = omniheap_config_default();
    config.paged = 0;
    omniheap::manager manager = omniheap::manager::open("host", 0, &config);
    std::vector<omniheap::allocation> kept = scattered(manager);
    const std::uint64_t before = manager.totals().reserved_bytes;
    manager.begin_defragment().abort();
    EXPECT(manager.totals().reserved_bytes == before);

    omniheap::pass pass = manager.begin_defragment();
    EXPECT(pass.count() > 2 && !pass.ready());
    EXPECT(failure([&] { pass.move(pass.count()); }) == OMNIHEAP_STATUS_OUT_OF_RANGE);
    EXPECT(failure([&] { manager.close(); }) == OMNIHEAP_STATUS_BUSY && manager);
    const omniheap_move first = pass.move(0), second = pass.move(1);
    EXPECT(static_cast<omniheap::allocation *>(first.user)->get().id == first.allocation.id);
    pass.decide(0, OMNIHEAP_MOVE_IGNORE);
    pass.start();
    EXPECT(failure([&] { pass.decide(0, OMNIHEAP_MOVE_COPY); }) == OMNIHEAP_STATUS_BUSY);
    while (!pass.ready()) std::this_thread::yield();
    const omniheap::pass_outcome outcome = pass.commit();
    EXPECT(!pass && failure([&] { pass.commit(); }) == OMNIHEAP_STATUS_STALE);
    EXPECT(outcome.moves[0] == OMNIHEAP_OUTCOME_STAYED && outcome.moves[1] == OMNIHEAP_OUTCOME_MOVED);
    EXPECT(outcome.moved.moves + 1 == outcome.moves.size() && manager.totals().reserved_bytes < before);
    EXPECT(static_cast<omniheap::allocation *>(second.user)->place().offset == second.to_offset);
    for (std::size_t at = 0; at < kept.size(); ++at) {
        std::uint64_t number = 0;
        kept[at].read(0, &number, sizeof number);
        EXPECT(number == 7 * at);
    }
    { omniheap::pass dropped = manager.begin_defragment(); }
    kept.clear();
    manager.close();
}

static void guards() {
    omniheap_config config = omniheap_config_default();
    config.guards = 1;
    omniheap::manager manager = omniheap::manager::open("host", 0, &config);
    omniheap::allocation bytes = manager.allocate(1000);
    EXPECT(manager.overwrites().empty());
    *reinterpret_cast<unsigned char *>(bytes.place().address + 1002) = 7;
    const std::vector<omniheap_overwritten> found = manager.overwrites();
    EXPECT(found.size() == 1 && found[0].distance == 2 && found[0].allocation.id == bytes.get().id);
}

int main() {
    passes();
    guards();
    omniheap::manager manager = omniheap::manager::open("host");
    bytes(manager);
    refusals(manager);
    std::vector<std::thread> threads;
    for (int number = 1; number <= 4; ++number) {
        threads.emplace_back([&] {
            std::vector<omniheap::allocation> held;
            for (std::uint64_t round = 1; round < 200; ++round) {
                held.push_back(manager.allocate(977 * round));
                if (round % 3 == 0) held.erase(held.begin());
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT(manager.totals().live == 0);
    manager.close();
    std::puts("ok");
}
