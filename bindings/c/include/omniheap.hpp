/* omniheap.h for C++17: move-only owners that close their handles, and exceptions instead of statuses.
 *
 *     auto manager = omniheap::manager::open("cuda");
 *     omniheap::allocation weights = manager.allocate(1 << 20);
 *     weights.write(0, bytes.data(), bytes.size());
 *
 * Any thread may use an owner, as any thread may use a handle. Only one thread at a time may move or end it. Allocations and pools end
 * before their manager: declare them after it. `get()` returns the handle, for every function of omniheap.h that has no method here.
 */
#pragma once

#include "omniheap.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace omniheap {

/* A call that failed; `what()` says what to do. */
class error : public std::runtime_error {
public:
    error(omniheap_status status, const char *reason) : std::runtime_error(reason), status_(status) {}

    omniheap_status status() const noexcept { return status_; }

    /* Returns true if there would have been memory for less. */
    bool is_out_of_memory() const noexcept {
        return status_ == OMNIHEAP_STATUS_OUT_OF_DEVICE_MEMORY || status_ == OMNIHEAP_STATUS_OUT_OF_HOST_MEMORY
            || status_ == OMNIHEAP_STATUS_FRAGMENTED || status_ == OMNIHEAP_STATUS_OVER_BUDGET;
    }

private:
    omniheap_status status_;
};

/* Throws where a call of omniheap.h has failed on this thread. */
inline void check(omniheap_status status) {
    if (status != OMNIHEAP_STATUS_OK) {
        throw error(status, omniheap_error());
    }
}

/* The owner of a handle, which ends with it. */
template <class Handle, omniheap_status (*End)(Handle)>
class owner {
public:
    owner() noexcept = default;
    explicit owner(Handle handle) noexcept : handle_(handle) {}
    owner(owner &&other) noexcept : handle_(other.release()) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) {
            end_quietly();
            handle_ = other.release();
        }
        return *this;
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner() { end_quietly(); }

    /* Returns true if it owns a handle. */
    explicit operator bool() const noexcept { return handle_.id != 0; }

    /* Returns the handle; zero where there is none. */
    Handle get() const noexcept { return handle_; }

    /* Gives up the handle and returns it. The caller ends it. */
    [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Handle{}); }

protected:
    /* Ends the handle. If that fails, the owner keeps it. */
    void end() {
        check(End(handle_));
        handle_ = Handle{};
    }

private:
    // Destructors do not throw. A manager or pool in which something lives stays open without an owner; `close` and `destroy` throw instead.
    void end_quietly() noexcept {
        if (handle_.id != 0) {
            (void)End(release());
        }
    }

    Handle handle_{};
};

/* Live bytes. They are freed at the end of the scope, in the order of their timeline. */
class allocation : public owner<omniheap_allocation, omniheap_free> {
public:
    using owner::owner;

    /* Frees now. */
    void free() { end(); }

    /* Frees once a timeline has reached an epoch. */
    void free_after(std::uint32_t timeline, std::uint64_t epoch) {
        check(omniheap_free_after(get(), timeline, epoch));
        (void)release();
    }

    /* Declares that another timeline uses the bytes too. */
    void use_on(std::uint32_t timeline) { check(omniheap_use_on(get(), timeline)); }

    /* Returns the current place. It is valid until the allocation may move. */
    omniheap_placed place() const {
        omniheap_placed found = omniheap_placed_default();
        check(omniheap_place(get(), &found));
        return found;
    }

    /* Pins it for the rest of its life and returns its address; zero where the backend has none. */
    std::uint64_t pin() {
        std::uint64_t address = 0;
        check(omniheap_pin(get(), &address));
        return address;
    }

    /* Returns the pointer that its request or `set_user` gave it. */
    void *user() const {
        void *user = nullptr;
        check(omniheap_user(get(), &user));
        return user;
    }

    /* Sets a pointer, which is never followed. */
    void set_user(void *user) { check(omniheap_set_user(get(), user)); }

    /* Maps it for the host. */
    void *map() {
        void *pointer = nullptr;
        check(omniheap_map(get(), &pointer));
        return pointer;
    }

    void write(std::uint64_t offset, const void *data, std::size_t size) { check(omniheap_write(get(), offset, data, size)); }
    void read(std::uint64_t offset, void *data, std::size_t size) const { check(omniheap_read(get(), offset, data, size)); }
};

namespace detail {
template <class Of>
allocation allocated(omniheap_status (*call)(Of, const omniheap_request *, omniheap_allocation *), Of of, const omniheap_request &request) {
    omniheap_allocation made{};
    check(call(of, &request, &made));
    return allocation(made);
}
} // namespace detail

/* A pool of its own. Its allocations end before it. */
class pool : public owner<omniheap_pool, omniheap_pool_destroy> {
public:
    using owner::owner;

    allocation allocate(const omniheap_request &request) { return detail::allocated(omniheap_pool_allocate, get(), request); }
    allocation allocate(std::uint64_t size) { return allocate(omniheap_request_default(size)); }

    /* Returns the sums of it alone. */
    omniheap_sums totals() const {
        omniheap_sums sums = omniheap_sums_default();
        check(omniheap_pool_totals(get(), &sums));
        return sums;
    }

    /* Destroys it; throws while something of it lives. */
    void destroy() { end(); }
};

/* A `VkBuffer` or `VkImage` with its memory. Both end once all work has ended that was submitted before its end, without a wait. */
template <omniheap_status (*Retire)(std::uint64_t, omniheap_allocation)>
class vulkan_resource {
public:
    vulkan_resource() noexcept = default;
    vulkan_resource(std::uint64_t handle, allocation memory) noexcept : handle_(handle), memory_(std::move(memory)) {}
    vulkan_resource(vulkan_resource &&other) noexcept : handle_(std::exchange(other.handle_, 0)), memory_(std::move(other.memory_)) {}
    vulkan_resource &operator=(vulkan_resource &&other) noexcept {
        if (this != &other) {
            retire_quietly();
            handle_ = std::exchange(other.handle_, 0);
            memory_ = std::move(other.memory_);
        }
        return *this;
    }
    ~vulkan_resource() { retire_quietly(); }

    /* Returns true if it owns a handle. */
    explicit operator bool() const noexcept { return handle_ != 0; }

    /* Returns the native handle; zero where there is none. */
    std::uint64_t get() const noexcept { return handle_; }

    /* Returns the memory behind it. */
    allocation &memory() noexcept { return memory_; }

    /* Takes another handle in its place, such as the one that was bound where a pass has moved the memory. Returns the old one, which the caller destroys
     * once no work uses it. */
    [[nodiscard]] std::uint64_t replace(std::uint64_t handle) noexcept { return std::exchange(handle_, handle); }

    /* Retires it now. */
    void retire() {
        check(Retire(handle_, memory_.get()));
        handle_ = 0;
        (void)memory_.release();
    }

private:
    void retire_quietly() noexcept {
        if (handle_ != 0) {
            (void)Retire(std::exchange(handle_, 0), memory_.release());
        }
    }

    std::uint64_t handle_ = 0;
    allocation memory_;
};

using vulkan_buffer = vulkan_resource<omniheap_vulkan_retire_buffer>;
using vulkan_image = vulkan_resource<omniheap_vulkan_retire_image>;

/* Result of a pass: one of `OMNIHEAP_OUTCOME_…` for each move, and the sums. */
struct pass_outcome {
    std::vector<std::uint32_t> moves;
    omniheap_moved moved;
};

/* A pass of the program's own. It is aborted at its end, unless it was committed: every allocation is then where it was. */
class pass : public owner<omniheap_pass, omniheap_pass_abort> {
public:
    using owner::owner;

    /* Returns the number of its moves. */
    std::size_t count() const {
        std::size_t count = 0;
        check(omniheap_pass_count(get(), &count));
        return count;
    }

    /* Returns a move, as it was planned. */
    omniheap_move move(std::size_t which) const {
        omniheap_move one = omniheap_move_default();
        check(omniheap_pass_move(get(), which, &one));
        return one;
    }

    /* Decides about a move: one of `OMNIHEAP_MOVE_…`. */
    void decide(std::size_t which, std::uint32_t decision) { check(omniheap_pass_decide(get(), which, decision)); }

    /* Submits the copies. */
    void start() { check(omniheap_pass_start(get())); }

    /* Returns true once the copies have finished. */
    bool ready() const {
        std::uint32_t ready = 0;
        check(omniheap_pass_ready(get(), &ready));
        return ready != 0;
    }

    /* Waits for the copies and shows the new places. */
    pass_outcome commit() {
        pass_outcome outcome{std::vector<std::uint32_t>(count()), omniheap_moved_default()};
        const omniheap_status status = omniheap_pass_commit(get(), outcome.moves.data(), outcome.moves.size(), &outcome.moved);
        (void)release(); // It has ended, also where the driver refused.
        check(status);
        return outcome;
    }

    /* Aborts it now. */
    void abort() { end(); }
};

namespace detail {
inline pass begun(
    omniheap_status (*call)(omniheap_manager, const omniheap_budget *, omniheap_pass *), omniheap_manager of, const omniheap_budget &budget) {
    omniheap_pass made{};
    check(call(of, &budget, &made));
    return pass(made);
}
} // namespace detail

/* The memory of one device. */
class manager : public owner<omniheap_manager, omniheap_close> {
public:
    using owner::owner;

    /* Opens a device: "cuda", "hip", "vulkan", "wgpu" or "host". Without settings, the usual ones. */
    static manager open(const char *backend, std::uint32_t ordinal = 0, const omniheap_config *config = nullptr) {
        omniheap_manager made{};
        check(omniheap_open(backend, ordinal, config, &made));
        return manager(made);
    }

    /* Opens the best device here; host memory where there is nothing else. */
    static manager open_best(const omniheap_config *config = nullptr) {
        omniheap_manager made{};
        check(omniheap_open_best(config, &made));
        return manager(made);
    }

    allocation allocate(const omniheap_request &request) { return detail::allocated(omniheap_allocate, get(), request); }
    allocation allocate(std::uint64_t size) { return allocate(omniheap_request_default(size)); }

    /* Makes a pool in one of the heaps that `omniheap_heap` describes. */
    pool create_pool(std::uint32_t heap, const omniheap_pool_config &config) {
        omniheap_pool made{};
        check(omniheap_pool_create(get(), heap, &config, &made));
        return pool(made);
    }

    /* Creates a buffer as a `VkBufferCreateInfo` says, with memory as `bind` says. */
    vulkan_buffer create_vulkan_buffer(const void *info, omniheap_vulkan_bind bind = omniheap_vulkan_bind_default()) {
        check(omniheap_vulkan_create_buffer(get(), info, &bind));
        return vulkan_buffer(bind.buffer, allocation(bind.allocation));
    }

    /* Creates an image as a `VkImageCreateInfo` says, with memory as `bind` says. */
    vulkan_image create_vulkan_image(const void *info, omniheap_vulkan_bind bind = omniheap_vulkan_bind_default()) {
        check(omniheap_vulkan_create_image(get(), info, &bind));
        return vulkan_image(bind.image, allocation(bind.allocation));
    }

    /* Plans a pass that moves live data together. */
    pass begin_defragment(const omniheap_budget &budget = omniheap_budget_default()) {
        return detail::begun(omniheap_begin_defragment, get(), budget);
    }

    /* Plans a pass that brings back what lies in a farther heap than its request preferred. */
    pass begin_recall(const omniheap_budget &budget = omniheap_budget_default()) {
        return detail::begun(omniheap_begin_recall, get(), budget);
    }

    /* Does a little of the background moves; returns one of `OMNIHEAP_STEP_…`. */
    std::uint32_t step() {
        std::uint32_t step = OMNIHEAP_STEP_IDLE;
        omniheap_moved moved = omniheap_moved_default();
        check(omniheap_step(get(), &step, &moved));
        return step;
    }

    /* Returns the writes behind the end of allocations that were found since it was opened. */
    std::vector<omniheap_overwritten> overwrites() {
        std::size_t count = 0;
        check(omniheap_overwrites(get(), &count));
        std::vector<omniheap_overwritten> found(count, omniheap_overwritten_default());
        for (std::size_t which = 0; which < count; ++which) {
            check(omniheap_overwrite(get(), which, &found[which]));
        }
        return found;
    }

    omniheap_sums totals() const {
        omniheap_sums sums = omniheap_sums_default();
        check(omniheap_totals(get(), &sums));
        return sums;
    }

    /* Returns the report as JSON. */
    std::string report_json() const {
        for (std::string text(4096, '\0');;) {
            std::size_t length = 0;
            const omniheap_status status = omniheap_report_json(get(), text.data(), text.size(), &length);
            if (status != OMNIHEAP_STATUS_SHORT_BUFFER) {
                check(status);
                text.resize(length);
                return text;
            }
            // The text may have grown between the two calls.
            text.resize(2 * length);
        }
    }

    /* Closes it; throws while something of it lives. */
    void close() { end(); }
};

} // namespace omniheap
