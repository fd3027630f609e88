//! Requests as plain data.
#![expect(unsafe_code, reason = "reads the caller's texts")]
use crate::sized::{grows, read_sized, write_usual};
use crate::status::{Failure, OmniheapStatus, text};
use core::ffi::{c_char, c_void};
use omniheap::{
    Align, HeapId, Request, Tag, TimelineId,
    placement::{Access, Dependence, Lifetime, Pattern, Work, Writer},
    seam::Class,
};

/// Kernels write the bytes.
pub const OMNIHEAP_WRITER_DEVICE: u32 = 0;
/// The host writes them once.
pub const OMNIHEAP_WRITER_HOST_ONCE: u32 = 1;
/// The host writes them for every frame.
pub const OMNIHEAP_WRITER_HOST_PER_FRAME: u32 = 2;
/// Kernels read the bytes.
pub const OMNIHEAP_ACCESS_DEVICE: u32 = 0;
/// The host reads them.
pub const OMNIHEAP_ACCESS_HOST: u32 = 1;
/// Both read them all the time.
pub const OMNIHEAP_ACCESS_BOTH: u32 = 2;
/// Neighbouring lanes read neighbouring addresses.
pub const OMNIHEAP_PATTERN_COALESCED: u32 = 0;
/// Every lane reads the same address, and the compiler knows which: a loop over a whole table.
pub const OMNIHEAP_PATTERN_BROADCAST: u32 = 1;
/// Every lane reads a number where it likes, from numbers side by side.
pub const OMNIHEAP_PATTERN_GATHERED: u32 = 2;
/// A group reads the same tile many times.
pub const OMNIHEAP_PATTERN_TILED: u32 = 3;
/// Every lane reads the same address, which the kernel computes.
pub const OMNIHEAP_PATTERN_UNIFORM: u32 = 4;
/// Every lane reads a whole record, 16 bytes or so, where it likes.
pub const OMNIHEAP_PATTERN_RECORDS: u32 = 5;
/// Every lane reads a number or two of a record, 16 bytes or so, where it likes.
pub const OMNIHEAP_PATTERN_FIELDS: u32 = 6;
/// Unspecified, or kernels do much beside reading the bytes.
pub const OMNIHEAP_WORK_ANY: u32 = 0;
/// Kernels do little beside: at most a multiplication and an addition for each number that they read here, addresses aside, and
/// several numbers from here for each one of other memory.
pub const OMNIHEAP_WORK_LIGHT: u32 = 1;
/// Unspecified: reads may wait for each other or not.
pub const OMNIHEAP_DEPENDENCE_ANY: u32 = 0;
/// Every address is known without what was read before.
pub const OMNIHEAP_DEPENDENCE_INDEPENDENT: u32 = 1;
/// Each read depends on the one before: what is read says where to read next.
pub const OMNIHEAP_DEPENDENCE_CHAINED: u32 = 2;
/// The bytes live until they are freed.
pub const OMNIHEAP_LIFETIME_PERSISTENT: u32 = 0;
/// The bytes live for one frame.
pub const OMNIHEAP_LIFETIME_FRAME: u32 = 1;
/// The bytes live for one kernel.
pub const OMNIHEAP_LIFETIME_KERNEL: u32 = 2;
/// Buffers and linear images.
pub const OMNIHEAP_CLASS_LINEAR: u32 = 0;
/// Tiled images.
pub const OMNIHEAP_CLASS_TILED: u32 = 1;
/// The request shares no block with others.
pub const OMNIHEAP_DEDICATED: u32 = 1;
/// The bytes never move.
pub const OMNIHEAP_PINNED: u32 = 2;
/// The driver is not asked for more.
pub const OMNIHEAP_NO_GROW: u32 = 4;
/// The bytes move only in passes that ask about them.
pub const OMNIHEAP_MOVED_ON_CONSENT: u32 = 8;
/// Host and device see each other's writes without a flush or an invalidation.
pub const OMNIHEAP_COHERENT: u32 = 16;
/// No other region serves where the best one is missing or too small: the request fails instead.
pub const OMNIHEAP_NO_SUBSTITUTE: u32 = 32;
/// Host memory serves where every permitted heap is full: slow for kernels, and `omniheap_placement_json` says so.
pub const OMNIHEAP_MAY_SPILL: u32 = 64;
/// The bytes are zero at first.
pub const OMNIHEAP_ZEROED: u32 = 128;
/// The bytes are zeroed when they are freed, and never move.
pub const OMNIHEAP_SECRET: u32 = 256;
/// Communication libraries can register the bytes: one driver handle of their own that can be exported. They never move.
pub const OMNIHEAP_REGISTRABLE: u32 = 512;
/// For `heap`, `timeline` and `tag`: none in particular.
pub const OMNIHEAP_ANY: u32 = u32::MAX;

/// A request for memory. Start from `omniheap_request_default`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OmniheapRequest {
    /// Bytes of this struct, which `omniheap_request_default` sets.
    pub struct_size: usize,
    /// Bytes.
    pub size: u64,
    /// The start is a multiple of this power of two.
    pub align: u64,
    /// Bytes of it that one group reads; zero for all of them.
    pub touches: u64,
    /// `OMNIHEAP_WRITER_…`.
    pub writer: u32,
    /// `OMNIHEAP_ACCESS_…`.
    pub access: u32,
    /// `OMNIHEAP_PATTERN_…`.
    pub pattern: u32,
    /// `OMNIHEAP_WORK_…`.
    pub work: u32,
    /// `OMNIHEAP_DEPENDENCE_…`.
    pub dependence: u32,
    /// `OMNIHEAP_LIFETIME_…`.
    pub lifetime: u32,
    /// `OMNIHEAP_CLASS_…`.
    pub class_: u32,
    /// `OMNIHEAP_DEDICATED`, `_PINNED`, `_NO_GROW`, `_MOVED_ON_CONSENT`, `_COHERENT`, `_NO_SUBSTITUTE`, `_MAY_SPILL`, `_ZEROED`,
    /// `_SECRET` and `_REGISTRABLE`, added up.
    pub flags: u32,
    /// Exactly this heap, or `OMNIHEAP_ANY`.
    pub heap: u32,
    /// The timeline in whose order it is used and freed, or `OMNIHEAP_ANY`.
    pub timeline: u32,
    /// Number of times that a group reads each of its bytes, on average; 0 is less than once.
    pub reuse: u32,
    /// Groups it in reports, up to 65535; or `OMNIHEAP_ANY`.
    pub tag: u32,
    /// Shown in reports; may be null.
    pub name: *const c_char,
    /// The caller's pointer, for `omniheap_user` and moves; may be null.
    pub user: *mut c_void,
}

/// `size` bytes of device memory; C has it as an inline function.
#[must_use]
pub fn omniheap_request_default(size: u64) -> OmniheapRequest {
    OmniheapRequest {
        struct_size: size_of::<OmniheapRequest>(),
        size,
        align: 1,
        touches: 0,
        writer: OMNIHEAP_WRITER_DEVICE,
        access: OMNIHEAP_ACCESS_DEVICE,
        pattern: OMNIHEAP_PATTERN_COALESCED,
        work: OMNIHEAP_WORK_ANY,
        dependence: OMNIHEAP_DEPENDENCE_ANY,
        lifetime: OMNIHEAP_LIFETIME_PERSISTENT,
        class_: OMNIHEAP_CLASS_LINEAR,
        flags: 0,
        heap: OMNIHEAP_ANY,
        timeline: OMNIHEAP_ANY,
        reuse: 1,
        tag: OMNIHEAP_ANY,
        name: core::ptr::null(),
        user: core::ptr::null_mut(),
    }
}

grows!(OmniheapRequest to name: "request" from "omniheap_request_default");

/// Writes the usual values into a struct of `struct_size` bytes; `omniheap_request_default` is the short way.
///
/// # Safety
///
/// `request` is null, or `struct_size` bytes may be written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omniheap_request_init(
    request: *mut OmniheapRequest,
    struct_size: usize,
    size: u64,
) -> OmniheapStatus {
    // SAFETY: the caller's promise.
    unsafe { write_usual(request, struct_size, &omniheap_request_default(size)) }
}

/// Patterns in the order of their numbers.
const PATTERNS: [Pattern; 7] = [
    Pattern::Coalesced,
    Pattern::Broadcast,
    Pattern::Gathered,
    Pattern::Tiled,
    Pattern::Uniform,
    Pattern::Records,
    Pattern::Fields,
];

/// Returns the value that a number stands for.
fn choose<T: Copy>(number: u32, among: &[T], field: &str) -> Result<T, Failure> {
    let found = usize::try_from(number).ok().and_then(|at| among.get(at)).copied();
    found.ok_or_else(|| {
        let message = format!("request.{field} is {number}; start from omniheap_request_default()");
        Failure::invalid(message)
    })
}

/// A request, the caller's pointer for what it gives, and its flags.
pub(crate) struct Asked<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) user: *mut c_void,
    /// `OMNIHEAP_DEDICATED` and so on, as they were added up.
    pub(crate) flags: u32,
}

/// Reads a request.
///
/// # Safety
///
/// `request` is null or points to a request whose name is null or a C string.
pub(crate) unsafe fn read<'a>(request: *const OmniheapRequest) -> Result<Asked<'a>, Failure> {
    // SAFETY: the caller's promise.
    let asked = unsafe { read_sized(request, omniheap_request_default(0)) }?;
    let align = Align::new(asked.align).ok_or(omniheap::ErrorKind::InvalidAlignment)?;
    let writers = [Writer::Device, Writer::HostOnce, Writer::HostPerFrame];
    let dependences = [Dependence::Any, Dependence::Independent, Dependence::Chained];
    let lifetimes = [Lifetime::Persistent, Lifetime::Frame, Lifetime::Kernel];
    let mut wanted = Request::new(asked.size)
        .align(align)
        .class(choose(asked.class_, &[Class::Linear, Class::Tiled], "class_")?)
        .writer(choose(asked.writer, &writers, "writer")?)
        .access(choose(asked.access, &[Access::Device, Access::Host, Access::Both], "access")?)
        .pattern(choose(asked.pattern, &PATTERNS, "pattern")?)
        .work(choose(asked.work, &[Work::Any, Work::Light], "work")?)
        .dependence(choose(asked.dependence, &dependences, "dependence")?)
        .lifetime(choose(asked.lifetime, &lifetimes, "lifetime")?)
        .reuse(asked.reuse);
    wanted.touches = (asked.touches > 0).then_some(asked.touches);
    wanted.tag = tag(asked.tag)?;
    wanted = with_flags(wanted, asked.flags)?;
    if asked.heap != OMNIHEAP_ANY {
        wanted.heap = Some(heap(asked.heap)?);
    }
    wanted.timeline = (asked.timeline != OMNIHEAP_ANY).then_some(TimelineId(asked.timeline));
    if !asked.name.is_null() {
        // SAFETY: the caller's promise.
        wanted.name = Some(unsafe { text(asked.name, "request.name") }?);
    }
    Ok(Asked { request: wanted, user: asked.user, flags: asked.flags })
}

/// Effect of one flag on a request.
type Change<'a> = fn(Request<'a>) -> Request<'a>;

/// The request with what its flags say.
fn with_flags<'a>(mut wanted: Request<'a>, flags: u32) -> Result<Request<'a>, Failure> {
    let changes: [(u32, Change<'a>); 10] = [
        (OMNIHEAP_DEDICATED, Request::dedicated),
        (OMNIHEAP_MOVED_ON_CONSENT, Request::moved_on_consent),
        (OMNIHEAP_PINNED, Request::pinned),
        (OMNIHEAP_NO_GROW, Request::no_grow),
        (OMNIHEAP_COHERENT, Request::coherent),
        (OMNIHEAP_NO_SUBSTITUTE, Request::no_substitute),
        (OMNIHEAP_MAY_SPILL, Request::may_spill),
        (OMNIHEAP_ZEROED, Request::zeroed),
        // After those: what is registered never moves.
        (OMNIHEAP_REGISTRABLE, Request::registrable),
        // Last: what is secret never moves, whatever else was said.
        (OMNIHEAP_SECRET, Request::secret),
    ];
    let known = changes.iter().fold(0, |all, (bit, _)| all | bit);
    if flags & !known != 0 {
        let message = format!("request.flags has bits that mean nothing: {:#x}", flags & !known);
        return Err(Failure::invalid(message));
    }
    for (_, change) in changes.iter().filter(|(bit, _)| flags & bit != 0) {
        wanted = change(wanted);
    }
    Ok(wanted)
}

/// A tag's number.
fn tag(number: u32) -> Result<Option<Tag>, Failure> {
    if number == OMNIHEAP_ANY {
        return Ok(None);
    }
    let tag = u16::try_from(number);
    tag.map(|tag| Some(Tag(tag))).map_err(|_| {
        Failure::invalid(format!("request.tag is {number}; pass at most 65535, or OMNIHEAP_ANY"))
    })
}

/// A heap's number.
pub(crate) fn heap(number: u32) -> Result<HeapId, Failure> {
    Ok(HeapId(u8::try_from(number).map_err(|_| omniheap::ErrorKind::NoSuchHeap)?))
}

#[cfg(test)]
mod tests;
