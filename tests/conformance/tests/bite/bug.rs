//! The bugs, each with the cases that must catch it.

/// Mode in which a bug shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Pools of blocks.
    Plain,
    /// Pools of pages.
    Paged,
    /// The strange device, whose staging memory is incoherent.
    Strange,
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $name:ident $place:ident [$($case:ident),+];)*) => {
        /// A bug in a backend.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug {
            /// The backend as it is.
            None,
            $($(#[doc = $doc])* $name,)*
        }

        /// Every bug, where it shows, and the cases of which one must catch it.
        pub(crate) const BUGS: &[(Bug, Where, &[&str])] =
            &[$((Bug::$name, Where::$place, &[$(stringify!($case)),+])),*];
    };
}

bugs! {
    /// A copy does nothing.
    CopyDoesNothing Plain [random_copies_match_a_shadow];
    /// A batch loses its last copy.
    CopyLosesTheLast Plain [a_batch_of_copies_is_done_whole];
    /// A batch is copied one by one, so that nobody sees its copies overlap.
    CopiesOneByOne Plain [a_bad_batch_is_refused_by_the_backend_itself];
    /// A write goes one unit too far.
    WriteOneUnitOff Plain [every_byte_asked_for_can_be_written_and_read, random_copies_match_a_shadow];
    /// A write loses its last unit.
    WriteShort Plain [every_byte_asked_for_can_be_written_and_read];
    /// A read starts at the block's base.
    ReadFromBase Plain [tiny_neighbours_keep_their_bytes];
    /// A read gives zeros.
    ReadZeros Plain [every_byte_asked_for_can_be_written_and_read];
    /// A fill takes the wrong value.
    FillWrongValue Plain [random_copies_match_a_shadow];
    /// A fill stops one unit early.
    FillShort Plain [random_copies_match_a_shadow];
    /// A fill runs on beside the timeline instead of in it.
    FillOnMain Plain [an_order_between_timelines_is_kept];
    /// A free keeps the memory.
    FreeKeeps Plain [live_allocations_share_no_byte];
    /// A free says that it failed.
    FreeComplains Plain [a_slow_free_corrupts_nothing];
    /// A free says what the seam does not list for it.
    FreeAsleep Plain [live_allocations_share_no_byte];
    /// A block has half the bytes.
    BlockTooSmall Plain [a_block_holds_what_was_asked_for];
    /// A size that never fits is told as one that does not fit now.
    NeverIsNotNow Plain [a_backend_tells_never_from_not_now];
    /// Zero bytes are allocated.
    ZeroIsServed Plain [zero_bytes_are_refused_everywhere];
    /// A heap that does not exist is served by the first one.
    AnyHeapWillDo Plain [heaps_that_do_not_exist_are_refused];
    /// An address is one byte off.
    AddressOff Plain [device_addresses_are_aligned_too];
    /// A block maps only once.
    MapsOnce Plain [mapping_twice_gives_the_same_bytes, neighbours_map_apart];
    /// A flush does nothing.
    FlushDoesNothing Strange [host_and_device_see_the_same_bytes];
    /// An invalidation does nothing.
    InvalidateDoesNothing Strange [host_and_device_see_the_same_bytes];
    /// A mark is reached one job too early.
    MarkEarly Plain [a_free_after_a_point_waits_for_it];
    /// A mark of all work stands for nothing.
    MarkAllEarly Plain [
        a_mark_of_all_work_waits_for_every_timeline, bytes_that_leave_a_timeline_wait_for_uses_that_nobody_declared
    ];
    /// Every epoch is reached.
    ReachedTooFar Plain [only_the_full_join_makes_reuse_legal, a_free_after_a_point_waits_for_it];
    /// No epoch is ever reached.
    NeverReached Plain [a_free_after_a_point_waits_for_it];
    /// Work does not wait for the point it was ordered after.
    OrderIgnored Plain [an_order_between_timelines_is_kept];
    /// A closed timeline cannot be told from a broken one.
    ClosedIsBroken Plain [a_timeline_may_close_before_its_frees_are_collected];
    /// The driver's account never moves.
    BudgetStands Plain [the_driver_counts_what_we_take];
    /// The budget is more than the heap.
    BudgetTooLarge Plain [the_driver_counts_what_we_take];
    /// Pages are mapped in reverse.
    PagesReversed Paged [trim_gives_back_empty_pages_only];
    /// Destroyed pages stay.
    PagesStay Paged [live_allocations_share_no_byte];
    /// Host pages are memory of the device.
    HostPagesAreNot Paged [host_pages_and_device_pages_take_each_others_place];
    /// Unmapping does nothing.
    UnmapDoesNothing Paged [trim_gives_back_empty_pages_only];
    /// Every block can be exported.
    ExportsZeroSize Plain [an_import_that_does_not_match_is_refused, only_blocks_made_for_it_can_be_exported];
    /// An import believes whatever it is told of the device.
    ImportsStrangers Plain [an_import_that_does_not_match_is_refused];
    /// Exportable memory keeps what was in it.
    ExportDirty Plain [an_exported_block_is_zero_and_all_its_own];
    /// A lost device is told as a broken driver.
    LossIsBroken Plain [a_lost_device_says_so_at_once_and_is_left_alone];
    /// A launch does nothing.
    LaunchDoesNothing Plain [kernels_run_in_the_order_of_their_timeline];
    /// A kernel reads other constants than were written.
    ConstantsNotSeen Plain [kernels_see_constants_and_have_shared_memory];
    /// Any amount of shared memory is promised.
    SharedUnchecked Plain [kernels_that_ask_for_what_is_not_there_are_refused];
    /// Shared memory keeps what another kernel left there.
    SharedKeepsBytes Plain [kernels_find_zeros_in_shared_memory_that_counts_on_them];
}
